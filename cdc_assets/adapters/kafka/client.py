"""The client library, what it logs without its repeats, and how its clients end.

A client whose broker is away reports the refused connection ten times a second.

*Closing in the background.* To drop a client is to wait for all of its threads, and one may be waiting for a token endpoint that
answers nothing: for 20 seconds, which nothing shortens. A run that is to end would wait for that. So a thread drops it
(`Client.end`), which is waited for only briefly, and ends with the process. An error may keep a `Client` in its frames, but never what is in it.
"""

import importlib
import inspect
import logging
import re
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self

from cdc_assets.adapters.kafka.options import JAVA
from cdc_assets.errors import ConfigurationError

log = logging.getLogger(__name__)

_RETRY_AFTER_S: Final = 60.0
"""Seconds until the same text is logged again."""
_MAX_TEXTS: Final = 100
"""Texts that are remembered."""
_COUNTED: Final = re.compile(r" \(after \d+ms in state (?:[^()]|\(s\))*\)")


_CLOSE_TIMEOUT_S: Final = 0.5
"""Seconds that the end of a client is waited for."""


class Client:
    """One of the library's clients.

    Args:
        own: what the library has made.
        closes: whether it has an end of its own, to which its connections belong.
    """

    def __init__(self, own: Any, *, closes: bool) -> None:
        self._own, self._closes = [own], closes

    def __getattr__(self, name: str) -> Any:
        """A method of the client."""
        found = getattr(self._own[0], name)
        return found if inspect.isbuiltin(found) else partial(self._called, name)

    def _called(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call a method that is written in Python: its frame has the client, and an error would keep it."""
        try:
            return getattr(self._own[0], name)(*arguments, **named)
        except Exception as error:  # noqa: BLE001 - it is raised again
            raise error.with_traceback(None) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End the client; nothing if it has ended."""
        own, self._own = self._own, []
        if own:
            thread = threading.Thread(target=_end, args=(own, self._closes), name="end of a Kafka client", daemon=True)
            thread.start()
            thread.join(_CLOSE_TIMEOUT_S)


def _end(own: list[Any], closes: bool) -> None:
    client = own.pop()
    with suppress(Exception):  # it is gone then, too
        if closes:
            client.close()


class ClientLog:
    """The logger of one client: each text once a minute.

    The times that librdkafka puts into a text are left out, so that it is the same text again.
    """

    def __init__(self) -> None:
        self._logged: dict[str, float] = {}

    def log(self, level: int, text: str, *arguments: object) -> None:
        """Log a text unless it was logged within the last minute; the client calls this.

        Args:
            level: of `logging`.
            text: with places for `%`.
            arguments: for these places.
        """
        said = _COUNTED.sub("", text % arguments if arguments else text)
        now = time.monotonic()
        if now - self._logged.get(said, -_RETRY_AFTER_S) < _RETRY_AFTER_S:
            return
        if len(self._logged) >= _MAX_TEXTS:
            self._logged.clear()
        self._logged[said] = now
        log.log(level, "%s", said)


def client_library(name: str, value: str) -> Any:
    """The client library, `confluent_kafka`.

    Args:
        name: the property that requests it.
        value: what that property is set to; no secret.

    Raises:
        ConfigurationError: the extra `kafka` is not installed.
    """
    try:
        importlib.import_module("confluent_kafka.admin")
        return importlib.import_module("confluent_kafka")
    except ImportError as error:
        raise ConfigurationError(
            name,
            value,
            f"a setting whose client library is installed ({error})",
            "pip install 'cdc-assets[kafka]', or leave this property out",
        ) from None


_OPTION: Final = re.compile(r"[`\"]([a-z]\w*(?:\.\w+)+)[`\"]")
"""An option in what the client says."""


def made(
    library: Any, kind: Any, options: Mapping[str, Any], given: Iterable[tuple[str, str]], prefix: str = "producer"
) -> Client:
    """A client; the caller closes it.

    Args:
        library: the client library.
        kind: which of its clients.
        options: by librdkafka's names.
        given: those among them that the properties name, by the names that they have there.
        prefix: of these properties.

    Raises:
        ConfigurationError: it does not know an option, or refuses its value.
    """
    try:
        return Client(kind(dict(options), logger=ClientLog()), closes=kind is library.Consumer)
    except (library.KafkaException, TypeError, ValueError) as error:
        reason = error.args[0].str() if isinstance(error, library.KafkaException) else str(error)
        named = _OPTION.search(reason)
        names = [name for name, _ in given]
        wrong = [name for name in names if named and named[1] in (name, *JAVA.get(name, ()))]
        raise ConfigurationError(
            ", ".join(f"{prefix}.{name}" for name in wrong or names) or f"{prefix} options",
            "(given)",
            f"an option of Java's client or of librdkafka, with a value that the client accepts ({reason})",
            "correct it, or leave it out; docs/kafka.md lists them",
        ) from None
