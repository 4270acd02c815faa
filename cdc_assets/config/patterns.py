"""Compiles and matches all regular expressions that users give, in settings and in signals.

They are Java's, as in the connector, where `\\w`, `\\d`, `\\s`, `\\b` and letter case mean those of ASCII alone (`java_syntax`).

Some expressions backtrack exponentially on a long name, which would block the stream. So each match has a limit of
processor time (package `regex`), and so has all the matching of one request (`Patience`). A
match that exceeds it is an error of the expression; the caller decides what fails. The result is cached, so that
matching the same name again costs the time only once. Compiling has no time limit, so an expression whose counts would
take all memory is refused before (`repetitions`).
"""

import re
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal, TypeVar

import regex

from cdc_assets.config.java_syntax import translated
from cdc_assets.config.repetitions import written_out
from cdc_assets.errors import shortened

MAX_REPEATED = 10_000
"""Maximum number of parts that the counts of an expression add."""
MATCH_S = 1.0
"""Limit in seconds of processor time for one expression and one name: a million times an ordinary match."""


T = TypeVar("T")

_LITERAL = re.compile(r"(?:[A-Za-z0-9_ @-]|\\\.)+")
_MAX_SLOW = 10_000
_slow: set[tuple[str, str, str, bool]] = set()
"""Calls that took longer than `MATCH_S`: method, expression, name, ignore_case."""


class PatternError(ValueError):
    """An expression does not compile, or takes too long."""


class Patience:
    """Limit of processor time for several matches together, for the thread that makes them.

    Processor time, because on a busy machine a thread may have to wait for seconds, which says nothing about an expression.

    Args:
        seconds: the limit, counted from now.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.thread_time() + seconds

    @property
    def left(self) -> float:
        """Remaining seconds; not negative."""
        return max(0.0, self._end - time.thread_time())

    def of(self, match: Callable[[float], T]) -> T:
        """What `match` returns, which is called with the seconds that it may take.

        It is called again if it gave up early: `regex` counts the processor time of all threads.

        Raises:
            TimeoutError: it takes longer.
        """
        while left := self.left:
            with suppress(TimeoutError):
                return match(left)
        raise TimeoutError


@lru_cache(maxsize=4096)
def compiled(text: str, *, ignore_case: bool = False, all_scripts: bool = False) -> Any:
    """The compiled expression.

    Args:
        ignore_case: whether letter case is ignored.
        all_scripts: whether classes such as `\\w`, and letter case, mean those of every script, and not of ASCII.

    Raises:
        PatternError: it does not compile, has another meaning in Java, or counts that would take much memory.
    """
    try:
        own = translated(text)
        if written_out(own) > len(own) + MAX_REPEATED:
            raise ValueError(f"its counts repeat more than {MAX_REPEATED} characters, and no name is that long")
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            re.compile(own)  # warns of syntax with another meaning in Java: `[a&&b]`, flags in the middle, `\p{Alpha}`
            return regex.compile(own, (regex.IGNORECASE if ignore_case else 0) | (0 if all_scripts else regex.ASCII))
    except RecursionError:
        raise PatternError(f"{shortened(text)!r} does not compile: it is nested too deeply") from None
    except (regex.error, re.error, FutureWarning, OverflowError, ValueError) as error:
        raise PatternError(f"{shortened(text)!r} does not compile: {str(error) or type(error).__name__}") from None


def matches(text: str, name: str, *, ignore_case: bool = False, patience: Patience | None = None) -> bool:
    """Whether an expression matches a whole name.

    Args:
        name: text to match.
        ignore_case: whether letter case is ignored.
        patience: limit shared with other matches; if absent, `MATCH_S` for this one.

    Raises:
        PatternError: it does not compile, or takes too long.
    """
    return _bounded("fullmatch", text, name, ignore_case, patience)


def expression_for(name: str) -> str:
    """The expression that only this name matches."""
    return "".join(f"\\{letter}" if letter in r".\+*?()|[]{}^$" else letter for letter in name)


def literal(text: str) -> str | None:
    """The one name in small letters that an expression matches if letter case is ignored; None if it may match others."""
    return text.replace("\\.", ".").lower() if _LITERAL.fullmatch(text) else None


def match_any(text: str, names: Iterable[str]) -> bool:
    """Whether an expression matches the whole of any name, letter case ignored.

    Raises:
        PatternError: it does not compile, or takes too long.
    """
    whole = compiled(text, ignore_case=True).fullmatch
    for name in names:
        try:
            if whole(name, timeout=MATCH_S) is not None:
                return True
        except TimeoutError:  # `regex` counts the processor time of all threads
            if matches(text, name, ignore_case=True):
                return True
    return False


def would_match(text: str, name: str) -> bool:
    """Whether an expression matches a whole name only if its classes and letter case are taken for those of every script.

    Raises:
        PatternError: it does not compile, or takes too long.
    """
    if name.isascii() or match_any(text, [name]):
        return False
    try:
        return compiled(text, ignore_case=True, all_scripts=True).fullmatch(name, timeout=MATCH_S) is not None
    except TimeoutError:
        raise _too_slow(text, name) from None


def finds(text: str, name: str, *, ignore_case: bool = False) -> bool:
    """Whether an expression matches some part of a name.

    Raises:
        PatternError: it does not compile, or takes too long.
    """
    return _bounded("search", text, name, ignore_case, None)


def _bounded(
    way: Literal["fullmatch", "search"], text: str, name: str, ignore_case: bool, patience: Patience | None
) -> bool:
    key, expression = (way, text, name, ignore_case), compiled(text, ignore_case=ignore_case)
    patience = patience or Patience(MATCH_S)
    limit = patience.left
    try:
        if key not in _slow:
            return patience.of(lambda left: getattr(expression, way)(name, timeout=left) is not None)
    except TimeoutError:
        if limit >= MATCH_S and len(_slow) < _MAX_SLOW:
            _slow.add(key)
    raise _too_slow(text, name)


@lru_cache(maxsize=4096)  # a window asks for its tables' names several times
def replaced(text: str, replacement: str, name: str) -> str:
    """A name with all matches of an expression replaced; its classes mean characters of every script.

    Raises:
        PatternError: it does not compile, or takes too long.
    """
    expression = compiled(text, all_scripts=True)
    try:
        return Patience(MATCH_S).of(lambda left: str(expression.sub(lambda _: replacement, name, timeout=left)))
    except TimeoutError:
        raise _too_slow(text, name) from None


def _too_slow(text: str, name: str) -> PatternError:
    return PatternError(
        f"{shortened(text)!r} takes too long to match {shortened(name)!r}: nested repetitions backtrack exponentially"
    )
