"""A range of what the lake holds, which is published again into topics of another prefix.

*Once.* A replay has a transactional id and a marker of its own, the key of which is the other prefix, in `<prefix>.__replayed`; it
begins, continues and is fenced by them as the publisher by its own (`publisher`), which it never moves. The marker holds the range: the same
command continues, or finds nothing to do; another range under that prefix is refused, because what is there would be unknown.

*A range that the lake does not have yet* is published as far as the lake is complete: each topic as far as its database is, as by the
publisher. The command then says what holds the rest, and fails; the same one continues.

*Retention does not wait for a replay.* Events that are dropped meanwhile stop their topic, as those of a publisher do.
"""

import re
from dataclasses import dataclass

from cdc_assets.core.lsn import Lsn
from cdc_assets.errors import ConfigurationError, InvalidValueError

_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,200}")
_NUMBER = re.compile(r"\d{1,18}")


@dataclass(frozen=True, slots=True)
class Span:
    """A range, by windows or by commit LSNs of the only database.

    Args:
        first: number of the first window.
        last: number of the last window; None for all that are complete.
        after: commit LSN after which events are wanted; empty for the beginning.
        until: commit LSN up to which events are wanted, inclusive; empty for the end.
    """

    first: int = 0
    last: int | None = None
    after: str = ""
    until: str = ""

    def text(self) -> str:
        """As it is given."""
        if self.after or self.until:
            return f"{self.after}..{self.until}"
        return f"{self.first}..{'' if self.last is None else self.last}"


@dataclass(frozen=True, slots=True)
class Replay:
    """What is published again, and where.

    Args:
        span: the range.
        prefix: of the topics.
    """

    span: Span
    prefix: str

    def topic(self, own: str, name: str) -> str:
        """Name of a topic under the other prefix.

        Args:
            own: topic prefix of the capture.
        """
        if name == own:
            return self.prefix
        return f"{self.prefix}.{name.removeprefix(f'{own}.')}"


def replay_of(text: str, prefix: str, own: str) -> Replay:
    """The replay that two options describe.

    Args:
        text: `FROM..TO`: numbers of windows, both included, or commit LSNs, the first one not included; either may be missing.
        prefix: of the topics.
        own: topic prefix of the capture.

    Raises:
        ConfigurationError: they are not valid.
    """
    if not _PREFIX.fullmatch(prefix) or prefix in (own, ".", "..") or prefix.startswith(f"{own}."):
        expected = f"a topic prefix other than {own}, of letters, digits, dots, - and _"
        raise ConfigurationError("--prefix", prefix, expected, "choose one that has no topics yet")
    return Replay(_span(text), prefix)


def _span(text: str) -> Span:
    start, dots, end = (part.strip() for part in text.partition(".."))
    try:
        if not dots:
            raise InvalidValueError("range", text, "two dots", "")
        if all(not part or _NUMBER.fullmatch(part) for part in (start, end)):
            found = Span(int(start or 0), int(end) if end else None)
            empty = found.last is not None and found.last < found.first
        else:
            found = Span(after=str(Lsn.parse(start)) if start else "", until=str(Lsn.parse(end)) if end else "")
            empty = bool(found.until) and found.until <= found.after
    except InvalidValueError:
        expected = "FROM..TO, both numbers of windows or both commit LSNs; either may be missing"
        raise ConfigurationError(
            "--replay", text, expected, "copy LSNs from events, windows from `cdc-assets status`"
        ) from None
    if empty:
        raise ConfigurationError("--replay", text, "a range that is not empty", "correct it")
    return found
