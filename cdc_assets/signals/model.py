"""What a signal says (spec debezium-sqlserver §8).

Anybody who may write into the signal table can write nonsense, so `parse` never
raises: what it returns says what is to be done, or has a `Problem` with the reason.
It is called once for each signal, where the signal comes in (`watch`, `requests`);
from there on the `ParsedSignal` is carried. What it lets through can be stored, compared and sent to the server: texts of whole
characters, expressions that compile. Which tables they mean is told by
`signals.tables`.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cdc_assets.config.patterns import Patience, PatternError, compiled
from cdc_assets.core.signal import Signal, storable

_LONGEST_DATA = 1_000_000
"""Characters of a signal's data; what it asks for is recorded in one row."""
_MOST_NAMES = 1000
"""Entries of `data-collections`, each of which is looked for and told."""
_PARSING_S = 2.0
"""Seconds that the expressions of one signal may take to compile."""
_SEPARATOR = re.compile(r"\\\.|\[\.\]|\.(?![*+?{])")
_LITERAL = re.compile(r"[\w $#@-]+")

SnapshotKind = Literal["incremental", "blocking"]


@dataclass(frozen=True, slots=True)
class ExecuteSnapshot:
    """Read tables.

    Args:
        kind: beside the stream, or with the stream waiting.
        collections: regexes of `db.schema.table`, or of `schema.table`.
        conditions: (such a regex, predicate or whole SELECT); the first that means a table counts.
        surrogate: column to walk along in place of the key, or empty.
    """

    kind: SnapshotKind
    collections: tuple[str, ...]
    conditions: tuple[tuple[str, str], ...] = ()
    surrogate: str = ""


@dataclass(frozen=True, slots=True)
class StopSnapshot:
    """Take tables out of the queue; all if none are named."""

    collections: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PauseSnapshot:
    """Read no further chunk until `resume-snapshot`."""


@dataclass(frozen=True, slots=True)
class ResumeSnapshot:
    """Go on."""


@dataclass(frozen=True, slots=True)
class ChangeSchemas:
    """Take structures into the schema history.

    Args:
        changes: Debezium's `tableChanges` as JSON text.
    """

    database: str
    changes: str


@dataclass(frozen=True, slots=True)
class Log:
    """Write a line; `{}` in it stands for the position."""

    message: str


@dataclass(frozen=True, slots=True)
class Watermark:
    """The capture's own rows around a chunk; nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A signal that cannot be carried out.

    Args:
        reason: for the log, in Debezium's words.
        expected: what would make sense, for whoever asks by hand.
    """

    reason: str
    expected: str


Request = ExecuteSnapshot | StopSnapshot | PauseSnapshot | ResumeSnapshot | ChangeSchemas | Log


@dataclass(frozen=True, slots=True)
class ParsedSignal:
    """A signal and what it asks for.

    Args:
        signal: as it arrived.
        request: what is to be done; `Watermark` and `Problem`: nothing.
    """

    signal: Signal
    request: Request | Watermark | Problem

    @property
    def database(self) -> str | None:
        """The database that it is about: the one that its first qualified data-collection names without an expression, or None."""
        if isinstance(self.request, ChangeSchemas):
            return self.request.database
        for pattern in self.request.collections if isinstance(self.request, ExecuteSnapshot | StopSnapshot) else ():
            first, *rest = _SEPARATOR.split(pattern, maxsplit=1)
            if rest and "." in rest[0] and _LITERAL.fullmatch(first):
                return first
        return None


class _BadDataError(ValueError):
    """What is wrong with the data of a signal."""


def parse(signal: Signal) -> ParsedSignal:
    """The signal with what it asks for."""
    return ParsedSignal(signal, _request_of(signal))


def _request_of(signal: Signal) -> Request | Watermark | Problem:
    if signal.type in ("snapshot-window-open", "snapshot-window-close"):
        return Watermark()
    reader = _READERS.get(signal.type)
    if reader is None:
        known = ", ".join(sorted(_READERS))
        return Problem(
            f"Signal {signal.id!r} has been received but the type {signal.type!r} is not recognized; known: {known}.",
            f"one of {known}",
        )
    try:
        return reader(_data(signal.data))
    except (ValueError, RecursionError) as error:
        return Problem(
            f"Signal {signal.id!r} has been received but the data {_short(signal.data)} cannot be parsed: {error}.",
            f"data that make sense: {error}",
        )


def _data(text: str | None) -> Mapping[str, Any]:
    if text is not None and len(text) > _LONGEST_DATA:
        raise _BadDataError(f"it has {len(text)} characters, more than {_LONGEST_DATA}")
    data = json.loads(text) if text and text.strip() else {}
    if not isinstance(data, dict):
        raise _BadDataError("it is not a JSON object")
    for part in _texts(data):
        if part != storable(part) or "\0" in part:
            raise _BadDataError(
                f"{_short(part)} holds half a surrogate pair or U+0000, which no name and no statement can"
            )
    return data


def _texts(data: object) -> Iterator[str]:
    """All texts in JSON data, however deep."""
    rest = [data]
    while rest:
        part = rest.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            rest += [*part.keys(), *part.values()]
        elif isinstance(part, list):
            rest += part


def _short(data: object) -> str:
    text = repr(data)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _execute(data: Mapping[str, Any]) -> ExecuteSnapshot:
    collections = _patterns(data, required=True)
    surrogate = data.get("surrogate-key") or ""
    if not isinstance(surrogate, str):
        raise _BadDataError("surrogate-key is not the name of one column")
    return ExecuteSnapshot(_kind(data), collections, _conditions(data), surrogate.strip())


def _stop(data: Mapping[str, Any]) -> StopSnapshot:
    _incremental(data)
    return StopSnapshot(_patterns(data, required=False))


def _pause(data: Mapping[str, Any]) -> PauseSnapshot:
    _incremental(data)
    return PauseSnapshot()


def _resume(data: Mapping[str, Any]) -> ResumeSnapshot:
    _incremental(data)
    return ResumeSnapshot()


def _log(data: Mapping[str, Any]) -> Log:
    message = data.get("message")
    if not isinstance(message, str):
        raise _BadDataError("message is missing or no text")
    return Log(message)


def _change(data: Mapping[str, Any]) -> ChangeSchemas:
    database, changes = data.get("database"), data.get("changes")
    if not isinstance(database, str) or not database.strip():
        raise _BadDataError("database is missing or no text")
    if not isinstance(changes, list) or not changes or not all(isinstance(change, dict) for change in changes):
        raise _BadDataError("changes is missing or no array of table changes")
    return ChangeSchemas(database.strip(), json.dumps(changes))


def _kind(data: Mapping[str, Any]) -> SnapshotKind:
    kind = str(data.get("type", "incremental")).lower()
    if kind == "incremental":
        return "incremental"
    if kind == "blocking":
        return "blocking"
    raise _BadDataError(f"type {_short(kind)} is neither incremental nor blocking")


def _incremental(data: Mapping[str, Any]) -> None:
    if _kind(data) != "incremental":
        raise _BadDataError("only incremental snapshots can be stopped, paused and resumed")


def _patterns(data: Mapping[str, Any], *, required: bool) -> tuple[str, ...]:
    given = data.get("data-collections")
    if given is None and not required:
        return ()
    if not isinstance(given, list) or not given or not all(isinstance(entry, str) and entry.strip() for entry in given):
        raise _BadDataError("data-collections is missing or no array of names")
    if len(given) > _MOST_NAMES:
        raise _BadDataError(
            f"data-collections has more than {_MOST_NAMES} entries; one expression may mean many tables"
        )
    return _checked(entry.strip() for entry in given)


def _checked(patterns: Iterable[str]) -> tuple[str, ...]:
    patience, checked = Patience(_PARSING_S), []
    for pattern in patterns:
        try:
            compiled(pattern)
        except PatternError as error:
            raise _BadDataError(f"it holds what is no regular expression: {error}") from None
        if not patience.left:
            raise _BadDataError(f"its regular expressions take more than {_PARSING_S:g} s to compile")
        checked.append(pattern)
    return tuple(checked)


def _conditions(data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    legacy = data.get("additional-condition")
    found = [(".*", legacy)] if isinstance(legacy, str) and legacy.strip() else []
    given = data.get("additional-conditions") or []
    if not isinstance(given, list):
        raise _BadDataError("additional-conditions is no array")
    for entry in given:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(k), str) for k in ("data-collection", "filter")):
            raise _BadDataError("an additional condition lacks data-collection or filter")
        found.append((entry["data-collection"].strip(), entry["filter"]))
    _checked(pattern for pattern, _ in found)
    return tuple(found)


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Request]] = {
    "execute-snapshot": _execute,
    "stop-snapshot": _stop,
    "pause-snapshot": _pause,
    "resume-snapshot": _resume,
    "schema-changes": _change,
    "log": _log,
}
