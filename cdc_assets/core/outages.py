"""What lasts is reported in the log when it begins, once in ten minutes, and when it ends; attempts in between say nothing.

An outage is reported once for each kind of error: if a server that was away refuses the login then, that is another line. Lines of single
attempts, which may or may not belong to an outage, are not repeated within ten minutes if they say the same.
"""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

AGAIN_S = 600.0
"""Seconds after which the same is reported again."""


@dataclass(slots=True)
class _Outage:
    since: float
    error: Exception
    lines: dict[str, float] = field(default_factory=dict)
    """When it was reported last, by kind of error."""


class Outages:
    """The outages of one process, each by what is affected."""

    def __init__(self) -> None:
        self._open: dict[str, _Outage] = {}

    @property
    def errors(self) -> Mapping[str, Exception]:
        """The newest error of each outage that lasts, by what is affected."""
        return {what: outage.error for what, outage in self._open.items()}

    def report(self, logger: logging.Logger, what: str, error: Exception, then: str) -> None:
        """Log an error of something that is tried again, unless that was done a short time ago.

        Args:
            logger: whose line it is.
            what: what does not work, in words with which the line of its end begins.
            then: what happens now, as a sentence.
        """
        now, kind = time.monotonic(), type(error).__name__
        outage = self._open.setdefault(what, _Outage(now, error))
        outage.error = error
        if now - outage.lines.get(kind, float("-inf")) < AGAIN_S:
            return
        lasts = f" This has lasted for {now - outage.since:,.0f} s." if outage.lines else ""
        outage.lines[kind] = now
        logger.warning("%s: %s. %s%s", what, str(error).rstrip("."), then, lasts)

    def end(self, what: str) -> None:
        """It works; logged if it did not before."""
        if (outage := self._open.pop(what, None)) is not None:
            log.info("%s: works again, after %s s.", what, f"{time.monotonic() - outage.since:,.0f}")


_lines: dict[str, float] = {}
_lock = threading.Lock()


def warn_seldom(logger: logging.Logger, line: str) -> None:
    """Log a warning, unless the same was logged a short time ago; numbers in it do not count."""
    now, key = time.monotonic(), "".join(letter for letter in line if not letter.isdigit())
    with _lock:
        for known in [known for known, at in _lines.items() if now - at >= AGAIN_S]:
            del _lines[known]
        if key in _lines:
            return
        _lines[key] = now
    logger.warning("%s", line)


def forget_lines() -> None:
    """Log everything again."""
    with _lock:
        _lines.clear()
