"""A schema registry: Confluent's, and those that are compatible with it (Karapace, Apicurio's `ccompat`), by Confluent's client.

Avro's records name their schema by its number in the registry: a zero byte, the number in four bytes, the value.
"""

import importlib
import ssl
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from cdc_assets.core.interruption import in_thread
from cdc_assets.errors import ConfigurationError, ConnectionLostError, InvalidValueError

HEAD_BYTES: Final = 5
_REQUEST_TIMEOUT_S: Final = 30.0
_NOT_NOW: Final = (408, 429)
"""What a client is to repeat; all others from 400 to 499 are about what was requested."""
_NO_RIGHTS: Final = (401, 403)
_OPTION: Final = "converter.schema.registry.url"

T = TypeVar("T")


def wire_head(number: int) -> bytes:
    """What precedes a value of the schema with this number."""
    return b"\0" + number.to_bytes(4, "big")


class SchemaRegistry:
    """A schema registry.

    Args:
        addresses: of the registry, comma separated; the next one is tried if one does not answer.
        credentials: `user:password`, or empty.

    Raises:
        ConfigurationError: an address is no web address, or holds a password; or the extra `kafka` is not installed.
    """

    def __init__(self, addresses: str, credentials: str = "") -> None:
        self._addresses = [text.strip().rstrip("/") for text in addresses.split(",") if text.strip()]
        if "@" in addresses:  # also where it is no web address, or the password has a comma
            expected, step = "an address without a password", "give user:password as basic.auth.user.info"
            raise ConfigurationError(_OPTION, "(hidden)", expected, step)
        for address in self._addresses or [""]:
            if urlsplit(address).scheme not in ("http", "https"):
                raise ConfigurationError(_OPTION, address, "an address with http or https", "correct it")
        self._library = _client_library(addresses)
        options: dict[str, Any] = {"url": ",".join(self._addresses), "timeout": _REQUEST_TIMEOUT_S, "max.retries": 0}
        paths = ssl.get_default_verify_paths()
        if authorities := paths.cafile or paths.capath:  # what the system trusts, a company's own among them
            options["ssl.ca.location"] = authorities
        if credentials:
            options["basic.auth.user.info"] = credentials
        try:
            self._client = self._library.SchemaRegistryClient(options)
        except ValueError:
            raise ConfigurationError(
                "converter.basic.auth.user.info", "(hidden)", "user:password", "correct it"
            ) from None
        weakref.finalize(self, self._client.close)  # its connections, which nothing else closes

    def check(self) -> None:
        """Request something that every registry answers.

        Raises:
            ConnectionLostError: the registry does not answer.
            ConfigurationError: it does not let this user in.
        """
        try:
            self._request(self._client.get_subjects)
        except self._library.SchemaRegistryError as error:
            raise self._unreachable(error) from None

    def schema(self, number: int) -> Any | None:
        """A schema, with `schema_str`, `schema_type` and `references`; None if there is none with this number.

        Raises:
            ConnectionLostError: the registry does not answer.
            ConfigurationError: it does not let this user in.
        """
        try:
            return self._request(lambda: self._client.get_schema(number))
        except self._library.SchemaRegistryError as error:
            if error.http_status_code == 404:
                return None
            raise self._unreachable(error) from None

    def number(self, subject: str, schema: str, *, registers: bool) -> int:
        """The number of a schema under a subject.

        Args:
            registers: whether it is added if the subject does not have it.

        Raises:
            InvalidValueError: the registry refuses it: it is not compatible with earlier ones, or is not there.
            ConnectionLostError: the registry does not answer.
            ConfigurationError: it does not let this user in.
        """
        own = self._library.Schema(schema, "AVRO")
        try:
            if registers:
                return self._request(lambda: int(self._client.register_schema(subject, own)))
            return self._request(lambda: int(self._client.lookup_schema(subject, own).schema_id))
        except self._library.SchemaRegistryError as error:
            raise InvalidValueError(
                "schema of subject",
                subject,
                f"one that the registry accepts ({error})",
                "set the subject's compatibility, or register the schema",
            ) from None

    def _request(self, question: Callable[[], T]) -> T:
        """The answer; a schema that is refused, or is not there, is an error of the client."""
        try:
            return in_thread(question)
        except self._library.SchemaRegistryError as error:
            if error.http_status_code in _NO_RIGHTS:
                raise ConfigurationError(
                    "converter.basic.auth.user.info",
                    "(hidden)",
                    f"a user whom {', '.join(self._addresses)} accepts",
                    "correct it",
                ) from None
            if 400 <= error.http_status_code < 500 and error.http_status_code not in _NOT_NOW:
                raise
            raise self._unreachable(error) from None
        except Exception as error:  # noqa: BLE001 - of whichever web client it has, or an answer that it does not understand
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> ConnectionLostError:
        return ConnectionLostError(
            f"The schema registry does not answer at {', '.join(self._addresses)}: {error}. "
            "Next: check value.converter.schema.registry.url, and basic.auth.user.info."
        )


def _client_library(addresses: str) -> Any:
    try:
        return importlib.import_module("confluent_kafka.schema_registry")
    except ImportError as error:
        raise ConfigurationError(
            _OPTION,
            addresses,
            f"a setting whose client library is installed ({error})",
            "pip install 'cdc-assets[kafka]', or choose a converter without a registry",
        ) from None
