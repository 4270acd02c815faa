"""Tokens of OAUTHBEARER for aiokafka.

A token is asked for anew before it ends, so an endpoint that fails meanwhile does no harm: the present token goes on until its end.
Behind that, each new connection waits for the next try; one that lives is not disturbed, unless the broker ends it with its token.
"""

import asyncio
import base64
import logging
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Final

from aiokafka.abc import AbstractTokenProvider

from cdc_assets.core import web
from cdc_assets.errors import ConfigurationError

log = logging.getLogger(__name__)

_TOKEN_S: Final = 20.0
"""Time limit of a request for a token."""
_PART: Final = 0.8
"""The part of its life after which a token is asked for anew."""
_AGAIN_S: Final = 1.0
"""Seconds after which an endpoint that has failed is asked again; the client itself would ask thirty times a second."""


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
        self._token, self._until, self._end, self._again = "", 0.0, 0.0, float("-inf")

    async def token(self) -> str:
        """A token that is valid.

        Raises:
            OSError: the endpoint gives none, and the present one has ended.
        """
        if self._clock() >= self._until:
            try:
                await self._renew()
            except OSError as error:
                self._again = self._clock() + _AGAIN_S
                if self._clock() >= self._end:
                    raise
                log.warning("The present token is used until its end, because there is no new one: %s", error)
        return self._token

    async def _renew(self) -> None:
        """Ask for a token, a while after an endpoint has failed; until then the present one does, if it lasts."""
        pause = self._again - self._clock()
        if pause > 0 and self._clock() < self._end:
            return
        await asyncio.sleep(max(0.0, pause))
        begun = self._clock()
        self._token, lifetime = await asyncio.get_running_loop().run_in_executor(None, self._ask)
        self._until, self._end = begun + lifetime * _PART, begun + lifetime

    def extensions(self) -> dict[str, str]:
        """Of SASL, with each token."""
        return self._extensions

    def _ask(self) -> tuple[str, float]:
        try:
            found = web.ask(self._request, _TOKEN_S)
            return str(found["access_token"]), float(found.get("expires_in", 300))
        except HTTPException as error:
            raise OSError(f"the token endpoint has broken off its answer ({type(error).__name__})") from None
        except (ValueError, TypeError, LookupError, AttributeError):  # without the text, which may hold a token
            raise OSError("the token endpoint has answered without access_token, or not as JSON") from None
