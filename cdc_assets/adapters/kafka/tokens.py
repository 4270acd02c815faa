"""Tokens of OAUTHBEARER for aiokafka."""

import asyncio
import base64
import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Final

from aiokafka.abc import AbstractTokenProvider

from cdc_assets.errors import ConfigurationError

_TOKEN_S: Final = 20.0
"""Time limit of a request for a token."""
_PART: Final = 0.8
"""The part of its life after which a token is asked for anew."""


class ClientTokens(AbstractTokenProvider):
    """Tokens by client credentials (OIDC), each kept for most of its life.

    Args:
        address: of the token endpoint.
        client: its id.
        secret: of the client; never printed.
        scope: asked for; empty for none.
        extensions: of SASL.
    """

    def __init__(
        self,
        address: str,
        client: str,
        secret: str,
        scope: str = "",
        extensions: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
            name = "producer.sasl.oauthbearer.token.endpoint.url"
            raise ConfigurationError(name, address, "an address with http or https", "correct it")
        pair = f"{client}:{secret}"  # as they are: so send Java's client and librdkafka
        form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        self._request = urllib.request.Request(  # noqa: S310 - the scheme is checked
            address,
            urllib.parse.urlencode(form).encode(),
            {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode(), "Accept": "application/json"},
        )
        self._extensions, self._clock = dict(extensions or {}), clock
        self._token, self._until = "", 0.0

    async def token(self) -> str:
        """A token that is valid."""
        if self._clock() >= self._until:
            self._token, lifetime = await asyncio.get_running_loop().run_in_executor(None, self._ask)
            self._until = self._clock() + lifetime * _PART
        return self._token

    def extensions(self) -> dict[str, str]:
        """Of SASL, with each token."""
        return self._extensions

    def _ask(self) -> tuple[str, float]:
        with urllib.request.urlopen(self._request, timeout=_TOKEN_S) as answer:  # noqa: S310 - the scheme is checked
            text = answer.read()
        try:
            found = json.loads(text)
            return str(found["access_token"]), float(found.get("expires_in", 300))
        except (ValueError, TypeError, LookupError, AttributeError):  # without the text, which may hold a token
            raise OSError("the token endpoint has answered without access_token, or not as JSON") from None
