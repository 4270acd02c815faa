"""What a signal says (spec debezium-sqlserver §8).

Anybody who may write into the signal table can write nonsense, so `parse` never
raises: it returns what is to be done, or a `Problem` with the reason.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cdc_assets.core.identifiers import TableId, unquoted
from cdc_assets.errors import InvalidValueError

SnapshotKind = Literal["incremental", "blocking"]


@dataclass(frozen=True, slots=True)
class Signal:
    """A request as it arrives: three texts."""

    id: str
    type: str
    data: str | None


@dataclass(frozen=True, slots=True)
class ExecuteSnapshot:
    """Read tables.

    Args:
        kind: beside the stream, or with the stream waiting.
        collections: regexes of `db.schema.table`.
        conditions: (regex, predicate or whole SELECT); the first that matches a table counts.
        surrogate: column to walk along in place of the key, or empty.
    """

    kind: SnapshotKind
    collections: tuple[str, ...]
    conditions: tuple[tuple[str, str], ...] = ()
    surrogate: str = ""

    def condition_of(self, table: TableId) -> str:
        """The condition of a table, or nothing."""
        return next((text for pattern, text in self.conditions if _matches(pattern, table)), "")


@dataclass(frozen=True, slots=True)
class StopSnapshot:
    """Take tables out of the queue; all if none are named."""

    collections: tuple[str, ...] = ()

    def includes(self, table: TableId) -> bool:
        """Whether a table is to be left."""
        return not self.collections or any(_matches(pattern, table) for pattern in self.collections)


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
        database: whose.
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
Parsed = Request | Watermark | Problem


class _BadDataError(ValueError):
    """What is wrong with the data of a signal."""


def parse(signal: Signal) -> Parsed:
    """What a signal asks for."""
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
        data = json.loads(signal.data) if signal.data and signal.data.strip() else {}
        if not isinstance(data, dict):
            raise _BadDataError("it is not a JSON object")
        return reader(data)
    except (ValueError, RecursionError) as error:
        return Problem(
            f"Signal {signal.id!r} has been received but the data {_short(signal.data)} cannot be parsed: {error}.",
            f"data that make sense: {error}",
        )


def _short(data: str | None) -> str:
    text = repr(data)
    return text if len(text) <= 200 else f"{text[:200]}…"


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
    raise _BadDataError(f"type {kind!r} is neither incremental nor blocking")


def _incremental(data: Mapping[str, Any]) -> None:
    if _kind(data) != "incremental":
        raise _BadDataError("only incremental snapshots can be stopped, paused and resumed")


def _patterns(data: Mapping[str, Any], *, required: bool) -> tuple[str, ...]:
    given = data.get("data-collections")
    if given is None and not required:
        return ()
    if not isinstance(given, list) or not given or not all(isinstance(entry, str) and entry.strip() for entry in given):
        raise _BadDataError("data-collections is missing or no array of names")
    return tuple(_checked(entry.strip()) for entry in given)


def _checked(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise _BadDataError(f"{pattern!r} is no regular expression: {error}") from None
    return pattern


def _conditions(data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    legacy = data.get("additional-condition")
    found = [(".*", legacy)] if isinstance(legacy, str) and legacy.strip() else []
    given = data.get("additional-conditions") or []
    if not isinstance(given, list):
        raise _BadDataError("additional-conditions is no array")
    for entry in given:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(k), str) for k in ("data-collection", "filter")):
            raise _BadDataError("an additional condition lacks data-collection or filter")
        found.append((_checked(entry["data-collection"].strip()), entry["filter"]))
    return tuple(found)


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Request]] = {
    "execute-snapshot": _execute,
    "stop-snapshot": _stop,
    "pause-snapshot": _pause,
    "resume-snapshot": _resume,
    "schema-changes": _change,
    "log": _log,
}


_SEPARATOR = re.compile(r"\\\.|\[\.\]|\.(?![*+?{])")
_LITERAL = re.compile(r"[\w $#@-]+")


def database_of(signal: Signal) -> str | None:
    """The database that a signal is about: the one that its first qualified data-collection names without an expression, or None."""
    request = parse(signal)
    if isinstance(request, ChangeSchemas):
        return request.database
    for pattern in request.collections if isinstance(request, ExecuteSnapshot | StopSnapshot) else ():
        first, *rest = _SEPARATOR.split(pattern, maxsplit=1)
        if rest and "." in rest[0] and _LITERAL.fullmatch(first):
            return first
    return None


def _matches(pattern: str, table: TableId) -> bool:
    """Whether a regex, or a name with its parts in quotes as one with dots in it is written, means the table."""
    return str(table) in (pattern, _bare(pattern)) or re.fullmatch(pattern, str(table)) is not None


def _bare(pattern: str) -> str:
    try:
        return unquoted(pattern)
    except InvalidValueError:
        return pattern


def expand(collections: Iterable[str], captured: Iterable[TableId]) -> tuple[list[TableId], list[str]]:
    """Captured tables that regexes match, in the order of the regexes, letter case counting.

    Args:
        collections: regexes of `db.schema.table`.
        captured: the tables there are.

    Returns:
        Tables without repetition, and the regexes that match none.
    """
    known, found, unknown = list(captured), dict[TableId, None](), []
    for pattern in collections:
        own = [table for table in known if _matches(pattern, table)]
        found.update(dict.fromkeys(own))
        if not own:
            unknown.append(pattern)
    return list(found), unknown
