"""A schema registry's web interface, as Confluent's and those that are compatible with it have it (Karapace, Apicurio's `ccompat`).

Avro's records name their schema by its number in the registry: a zero byte, the number in four bytes, the value.
"""

import json
from base64 import b64encode
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request

from cdc_assets.core import web
from cdc_assets.errors import ConfigurationError, ConnectionLostError, InvalidValueError, has_credentials

HEAD_BYTES: Final = 5
_ANSWER_S: Final = 30.0
_FORM: Final = "application/vnd.schemaregistry.v1+json"
_REFUSED: Final = (404, 409, 422)
_NO_RIGHTS: Final = (401, 403)
_OPTION: Final = "converter.schema.registry.url"


def wire_head(number: int) -> bytes:
    """What stands before a value of the schema with this number."""
    return b"\0" + number.to_bytes(4, "big")


class SchemaRegistry:
    """A schema registry.

    Args:
        addresses: of the registry, comma separated; the next one is asked if one does not answer.
        credentials: `user:password`, or empty.

    Raises:
        ConfigurationError: an address is no web address, or holds a password.
    """

    def __init__(self, addresses: str, credentials: str = "") -> None:
        self._addresses = [text.strip().rstrip("/") for text in addresses.split(",") if text.strip()]
        for address in self._addresses or [""]:
            if urlsplit(address).scheme not in ("http", "https"):
                raise ConfigurationError(_OPTION, address, "an address with http or https", "correct it")
            if has_credentials(address):
                raise ConfigurationError(
                    _OPTION, address, "an address without a password", "give user:password as basic.auth.user.info"
                )
        self._headers = {"Accept": _FORM, "Content-Type": _FORM}
        if credentials:
            self._headers["Authorization"] = "Basic " + b64encode(credentials.encode()).decode()

    def check(self) -> None:
        """Ask for something that every registry has.

        Raises:
            ConnectionLostError: the registry does not answer.
            ConfigurationError: it does not let this user in.
        """
        try:
            self._ask("/subjects", None)
        except _NotTakenError as error:
            raise self._silent(error) from None

    def schema(self, number: int) -> Mapping[str, Any] | None:
        """The answer for a schema's number: its text in `schema`; None if there is none.

        Raises:
            ConnectionLostError: the registry does not answer.
            ConfigurationError: it does not let this user in.
        """
        try:
            found: Mapping[str, Any] = self._ask(f"/schemas/ids/{number}", None)
        except _NotTakenError as error:
            if error.code == 404:
                return None
            raise self._silent(error) from None
        return found

    def number(self, subject: str, schema: str, *, registers: bool) -> int:
        """The number of a schema under a subject.

        Args:
            registers: whether it is added if the subject does not have it.

        Raises:
            InvalidValueError: the registry refuses it: it is not compatible with earlier ones, or is not there.
            ConnectionLostError: the registry does not answer.
            ConfigurationError: it does not let this user in.
        """
        path = f"/subjects/{quote(subject, safe='')}" + ("/versions" if registers else "")
        try:
            return int(self._ask(path, json.dumps({"schema": schema}).encode())["id"])
        except _NotTakenError as error:
            if error.code not in _REFUSED:
                raise self._silent(error) from None
            raise InvalidValueError(
                "schema of subject",
                subject,
                f"one that the registry takes ({error})",
                "set the subject's compatibility, or register the schema",
            ) from None
        except (KeyError, TypeError) as error:
            raise self._silent(error) from None

    def _ask(self, path: str, body: bytes | None) -> Any:
        """The answer of the first address that gives one."""
        failure: Exception = OSError("no address")
        for address in self._addresses:
            request = Request(address + path, body, self._headers)  # noqa: S310 - checked to be a web address
            try:
                return web.ask(request, _ANSWER_S)
            except HTTPError as error:
                with error:
                    failure = _NotTakenError(error.code, _reason(error))
                if error.code in _NO_RIGHTS:
                    raise ConfigurationError(
                        "converter.basic.auth.user.info", "(hidden)", f"a user whom {address} lets in", "correct it"
                    ) from None
                if error.code < 500:
                    raise failure from None
            except (OSError, HTTPException, ValueError) as error:
                failure = error
        raise self._silent(failure) from None

    def _silent(self, error: Exception) -> ConnectionLostError:
        return ConnectionLostError(
            f"The schema registry does not answer at {', '.join(self._addresses)}: {error}. "
            "Next: check value.converter.schema.registry.url, and basic.auth.user.info."
        )


class _NotTakenError(Exception):
    """The registry answered with an error."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code


def _reason(error: HTTPError) -> str:
    try:
        return str(web.read(error)["message"])[:300]
    except (OSError, ValueError, KeyError, TypeError):
        return str(error.reason)
