"""Questions to web services that answer in JSON: schema registries, and endpoints of tokens.

Requests carry a password. Python's own client sends it along wherever an answer redirects to, also to another host and without
encryption. So a redirect is followed within one address alone, or from http to https of the same host. And an answer
has a limit, because the service may be anybody's.
"""

import json
from http.client import HTTPMessage
from typing import IO, Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

MOST_BYTES: Final = 32 * 1024 * 1024
"""Maximum size of an answer; a schema has some thousand bytes."""


class _KeptWithin(HTTPRedirectHandler):
    """Follows no redirect to another address."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """The request to the address to which an answer redirects."""
        if not _is_within(req.full_url, newurl):
            raise HTTPError(req.full_url, code, "it redirects to another address, which is not followed", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _is_within(address: str, other: str) -> bool:
    here, there = urlsplit(address), urlsplit(other)
    if here.hostname != there.hostname:
        return False
    return (here.scheme, here.port) == (there.scheme, there.port) or (here.scheme, there.scheme) == ("http", "https")


_OPENER: Final = build_opener(_KeptWithin)


def ask(request: Request, timeout_s: float) -> Any:
    """What a service answers.

    Args:
        request: to an address with http or https.
        timeout_s: longest silence.

    Raises:
        HTTPError: it answers with an error, or redirects elsewhere; an OSError.
        OSError, HTTPException: it does not answer.
        ValueError: its answer is no JSON, or too long.
    """
    with _OPENER.open(request, timeout=timeout_s) as answer:
        return read(answer)


def read(answer: IO[bytes] | HTTPError) -> Any:
    """The JSON of an answer.

    Raises:
        OSError, HTTPException: it breaks off.
        ValueError: it is no JSON, or too long.
    """
    text = answer.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise ValueError(f"the answer has more than {MOST_BYTES} bytes")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the answer is nested too deeply") from None
