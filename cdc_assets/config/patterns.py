"""Regular expressions that people give, in settings and in signals: the one place where they are compiled and matched.

Some expressions try exponentially many ways before they give up on a long name, and a stream that waits for that stands
still. So matching is bounded by time (`regex`, which means by an expression what Python's `re` means), and so is all the
matching that one request asks for (`Patience`). What runs out of time is an error of the expression; whoever asked
decides what that stops. It is remembered, so that a name that is looked at again and again costs the time once.
"""

import re
import time
import warnings
from functools import lru_cache
from typing import Any, Literal

import regex

from cdc_assets.errors import shortened

MATCH_S = 1.0
"""Seconds for one expression and one name: a million times what an ordinary one takes."""


_MOST_SLOW = 10_000
_slow: set[tuple[str, str, str, bool]] = set()
"""Ways of matching, expressions, names and whether letter case plays no part, that took longer than `MATCH_S`."""


class PatternError(ValueError):
    """An expression does not compile, or takes too long."""


class Patience:
    """Seconds that matching may take in all.

    Args:
        seconds: from now on.
    """

    def __init__(self, seconds: float = MATCH_S) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """What is left of them; not negative."""
        return max(0.0, self._end - time.monotonic())


@lru_cache(maxsize=4096)
def compiled(text: str, *, ignore_case: bool = False) -> Any:
    """An expression, ready to be matched.

    Raises:
        PatternError: it does not compile, or would mean something else in Java.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            re.compile(text)  # says what would mean another thing in Java: `[a&&b]`, flags in the middle, `\p{Alpha}`
            return regex.compile(text, regex.IGNORECASE if ignore_case else 0)
    except RecursionError:
        raise PatternError(f"{shortened(text)!r} does not compile: it is nested too deeply") from None
    except (regex.error, re.error, FutureWarning, OverflowError) as error:
        raise PatternError(f"{shortened(text)!r} does not compile: {str(error) or type(error).__name__}") from None


def matches(text: str, name: str, *, ignore_case: bool = False, patience: Patience | None = None) -> bool:
    """Whether an expression matches a whole name.

    Args:
        name: what it is to match.
        ignore_case: whether letter case plays no part.
        patience: what this and other matches may take together; `MATCH_S` for this one if absent.

    Raises:
        PatternError: it does not compile, or takes too long.
    """
    limit = MATCH_S if patience is None else patience.left
    return _bounded("fullmatch", text, name, ignore_case, limit)


def finds(text: str, name: str, *, ignore_case: bool = False) -> bool:
    """Whether an expression matches some part of a name.

    Raises:
        PatternError: it does not compile, or takes too long.
    """
    return _bounded("search", text, name, ignore_case, MATCH_S)


def _bounded(way: Literal["fullmatch", "search"], text: str, name: str, ignore_case: bool, limit: float) -> bool:
    key = (way, text, name, ignore_case)
    try:
        if limit > 0 and key not in _slow:
            return getattr(compiled(text, ignore_case=ignore_case), way)(name, timeout=limit) is not None
    except TimeoutError:
        if limit >= MATCH_S and len(_slow) < _MOST_SLOW:
            _slow.add(key)
    raise _too_slow(text, name)


def replaced(text: str, replacement: str, name: str) -> str:
    """A name in which all that an expression matches is replaced.

    Raises:
        PatternError: it does not compile, or takes too long.
    """
    try:
        result: str = compiled(text).sub(lambda _: replacement, name, timeout=MATCH_S)
    except TimeoutError:
        raise _too_slow(text, name) from None
    return result


def _too_slow(text: str, name: str) -> PatternError:
    return PatternError(
        f"{shortened(text)!r} takes too long to match {shortened(name)!r}: something repeated within something repeated tries all ways"
    )
