"""What librdkafka logs, without its repeats: a client whose broker is away reports the refused connection ten times a second."""

import logging
import re
import time
from typing import Final

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
