"""The client libraries, and what they log without its repeats.

A client whose broker is away reports the refused connection ten times a second.
"""

import importlib
import logging
import re
import time
from typing import Any, Final

from cdc_assets.errors import ConfigurationError

log = logging.getLogger(__name__)

_AGAIN_S: Final = 60.0
"""Seconds until the same text is logged again."""
_MOST: Final = 100
"""Texts that are remembered."""
_COUNTED: Final = re.compile(r" \(after \d+ms in state (?:[^()]|\(s\))*\)")


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
        if now - self._logged.get(said, -_AGAIN_S) < _AGAIN_S:
            return
        if len(self._logged) >= _MOST:
            self._logged.clear()
        self._logged[said] = now
        log.log(level, "%s", said)


class ThreadLog(logging.Filter):
    """What loggers say in threads of one name goes to a `ClientLog`; nothing less than a warning.

    Args:
        thread: name of the threads.
    """

    def __init__(self, thread: str) -> None:
        super().__init__()
        self._thread, self._log = thread, ClientLog()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record goes on as it would without this; the logger calls this."""
        if record.threadName != self._thread:
            return True
        if record.levelno >= logging.WARNING:
            reason = f": {record.exc_info[1]!r}" if record.exc_info else ""
            self._log.log(record.levelno, "%s", record.getMessage() + reason)
        return False


def client_library(name: str, value: str, library: str = "confluent_kafka") -> Any:
    """A client library.

    Args:
        name: the property that asks for it.
        value: what that property is set to; no secret.
        library: its name.

    Raises:
        ConfigurationError: the extra `kafka` is not installed.
    """
    try:
        if library == "confluent_kafka":
            importlib.import_module("confluent_kafka.admin")
        return importlib.import_module(library)
    except ImportError as error:
        raise ConfigurationError(
            name,
            value,
            f"a setting whose client library is installed ({error})",
            "pip install 'cdc-assets[kafka]', or leave this property out",
        ) from None
