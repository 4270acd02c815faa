"""The log of an engine's process, repeated as this process's own, without secrets.

Only there does a connector say that it could not convert a value and sends null in its place (`event.converting.failure.handling.mode=warn`, its
default). So these records are counted, by column. A value with line breaks makes several lines of one record: these are put together, up to a
length that no other text of such a record needs.
"""

import logging
import re
import threading
from collections import Counter, deque
from collections.abc import Mapping
from typing import IO, Final

from cdc_assets.config.masks import Masks
from cdc_assets.config.property import HIDDEN

log = logging.getLogger("cdc_assets.engine.log")

_LEVELS: Final = {"ERROR": logging.ERROR, "FATAL": logging.ERROR, "WARN": logging.WARNING}
_LEVEL: Final = re.compile(r"^\d\d:\d\d:\d\d\.\d+ +([A-Z]+)")
_NULLED: Final = (
    re.compile(r"Failed to properly convert data value for '([^']+)' of type"),
    re.compile(r"Unexpected value for JDBC type \S+ and column (\S+).*: class=", re.DOTALL),
    re.compile(r"Failed to convert value '.*' from column '([^']+)' to ", re.DOTALL),
)
"""What it says of values that it could not convert, with the column."""
_COLUMN_BESIDE: Final = ("' of type", ": class=", "' from column '")
"""What stands in the line that completes one: a record of thousands of lines is searched there only."""
_NULLING: Final = re.compile(r"Failed to (properly )?convert|Unexpected value for JDBC type")
"""How their first lines begin."""
_REMEMBERED: Final = 50
_MAX_TEXT: Final = 1 << 16


class EngineLog:
    """Repeats the lines of a stream until it ends.

    Args:
        properties: the connector's, with the secrets.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        masks = Masks(properties)
        secrets = {text.strip() for name, text in properties.items() if masks.hides(name)} - {""}
        self._secrets = sorted(secrets, key=len, reverse=True)
        self._last: deque[str] = deque(maxlen=_REMEMBERED)
        self._level = logging.WARNING
        self._nulled: Counter[str] = Counter()
        self._record = ""
        """Begin of a record that may contain a value, while it has not named the column."""
        self._lock = threading.Lock()

    def nulled(self) -> dict[str, int]:
        """Number of values that became null since the last call, by column."""
        with self._lock:
            found, self._nulled = self._nulled, Counter()
        return dict(found)

    def follow(self, stream: IO[bytes]) -> threading.Thread:
        """Read it in a thread, which ends with the stream."""
        thread = threading.Thread(target=self._read, args=(stream,), name="engine-log", daemon=True)
        thread.start()
        return thread

    def masked(self, text: str) -> str:
        """A text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def last_error(self) -> str:
        """The last line about an error; empty if there is none."""
        found = [line for line in self._last if re.search(r"ERROR|FATAL|Error|Exception", line)]
        return found[-1] if found else ""

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for raw in stream:
                line = self.masked(raw.decode(errors="replace").rstrip())
                self._last.append(line)
                if level := _LEVEL.match(line):
                    self._level = _LEVELS.get(level[1], logging.INFO)
                    self._record = line if _NULLING.search(line) else ""
                elif self._record:
                    self._record = f"{self._record}\n{line}" if len(self._record) < _MAX_TEXT else ""
                if any(text in line for text in _COLUMN_BESIDE):
                    self._count()
                log.log(self._level, "%s", line)

    def _count(self) -> None:
        if self._record and (
            column := next((found[1] for text in _NULLED if (found := text.search(self._record))), None)
        ):
            self._record = ""
            with self._lock:
                self._nulled[column] += 1
