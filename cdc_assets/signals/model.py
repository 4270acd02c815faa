"""The content of a signal (spec debezium-sqlserver §8).

Anybody who may write into the signal table can write nonsense, so `parse` never
raises: it returns what is to be done, or a `Problem` with the reason.
It is called once for each signal, where the signal arrives (`watch`, `requests`);
from there on the `ParsedSignal` is passed. Whatever it accepts can be stored, compared and sent to the server: valid
Unicode texts, expressions that compile, and conditions that can only read. `signals.tables` finds the tables that they
match.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from cdc_assets.config.patterns import Patience, PatternError, compiled
from cdc_assets.core.signal import LONGEST_DATA, Signal, storable
from cdc_assets.errors import InvalidValueError
from cdc_assets.shared.selects import embedded, require_predicate

_MAX_NAMES = 1000
"""Maximum number of entries in `data-collections`, since each is matched and reported."""
_PARSING_S = 2.0
"""Maximum time in seconds to compile the expressions of one signal."""
_SEPARATOR = re.compile(r"\\\.|\[\.\]|\.(?![*+?{])")
_LITERAL = re.compile(r"[\w $#@-]+")
WATERMARKS = ("snapshot-window-open", "snapshot-window-close")
"""Types of the rows that a capture writes itself, around a chunk."""

SnapshotKind = Literal["incremental", "blocking"]


@dataclass(frozen=True, slots=True)
class ExecuteSnapshot:
    """Request to read tables.

    Args:
        kind: beside the stream, or while the stream pauses.
        collections: regular expressions for `db.schema.table` or `schema.table`.
        conditions: pairs of such an expression and a predicate or complete SELECT; the first match for a table counts.
        surrogate: column that orders the chunks instead of the key, or empty.
    """

    kind: SnapshotKind
    collections: tuple[str, ...]
    conditions: tuple[tuple[str, str], ...] = ()
    surrogate: str = ""


@dataclass(frozen=True, slots=True)
class StopSnapshot:
    """Request to remove tables from the queue; all if none are named."""

    collections: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PauseSnapshot:
    """Request to read no further chunk until `resume-snapshot`."""


@dataclass(frozen=True, slots=True)
class ResumeSnapshot:
    """Request to continue a paused snapshot."""


@dataclass(frozen=True, slots=True)
class ChangeSchemas:
    """Request to record structures in the schema history.

    Args:
        changes: Debezium's `tableChanges` as JSON text.
    """

    database: str
    changes: str


@dataclass(frozen=True, slots=True)
class Log:
    """Request to log a message; `{}` in it is replaced by the position."""

    message: str


@dataclass(frozen=True, slots=True)
class Watermark:
    """The capture's own marker around a chunk; needs no action."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A signal that cannot be carried out.

    Args:
        reason: log message, in Debezium's words.
        expected: what would be valid, for users who send the signal.
    """

    reason: str
    expected: str


Request = ExecuteSnapshot | StopSnapshot | PauseSnapshot | ResumeSnapshot | ChangeSchemas | Log


@dataclass(frozen=True, slots=True)
class ParsedSignal:
    """A signal and its request.

    Args:
        signal: the signal as it arrived.
        request: what is to be done; nothing for `Watermark` and `Problem`.
    """

    signal: Signal
    request: Request | Watermark | Problem

    @property
    def databases(self) -> tuple[str, ...]:
        """The databases that it names literally, each once."""
        if isinstance(self.request, ChangeSchemas):
            return (self.request.database,)
        return tuple(dict.fromkeys(name for name in map(_database_of, self._collections) if name))

    @property
    def is_general(self) -> bool:
        """Whether some of it names no database, so that it may concern each."""
        return not self.databases or any(not _database_of(pattern) for pattern in self._collections)

    def part(self, database: str, *, general: bool) -> "ParsedSignal":
        """What it requests of one database: the tables that it names there and, if `general`, those without a database."""
        request = self.request
        if not isinstance(request, ExecuteSnapshot | StopSnapshot) or not request.collections:
            return self
        wanted = {database.lower(), ""} if general else {database.lower()}
        kept = tuple(pattern for pattern in request.collections if _database_of(pattern).lower() in wanted)
        return replace(self, request=replace(request, collections=kept))

    @property
    def _collections(self) -> tuple[str, ...]:
        return self.request.collections if isinstance(self.request, ExecuteSnapshot | StopSnapshot) else ()


def _database_of(pattern: str) -> str:
    """The database that an expression names literally, or an empty text; also of `dbo.o.*`, which may begin with a schema."""
    first, *rest = _SEPARATOR.split(pattern)
    return first if len(rest) > 1 and _LITERAL.fullmatch(first) else ""


class _BadDataError(ValueError):
    """The data of a signal are invalid; holds the reason."""


def parse(signal: Signal) -> ParsedSignal:
    """The signal with its request; never raises."""
    return ParsedSignal(signal, _request_of(signal))


def _request_of(signal: Signal) -> Request | Watermark | Problem:
    if signal.type in WATERMARKS:
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
            f"valid data: {error}",
        )


def _data(text: str | None) -> Mapping[str, Any]:
    if text is not None and len(text) > LONGEST_DATA:
        raise _BadDataError(f"it has {len(text)} characters, more than {LONGEST_DATA}")
    data = json.loads(text) if text and text.strip() else {}
    if not isinstance(data, dict):
        raise _BadDataError("it is not a JSON object")
    for part in _texts(data):
        if part != storable(part) or "\0" in part:
            raise _BadDataError(
                f"{_short(part)} holds half a surrogate pair or U+0000, which neither names nor statements can hold"
            )
    return data


def _texts(data: object) -> Iterator[str]:
    """All texts in JSON data, at any depth."""
    unvisited = [data]
    while unvisited:
        part = unvisited.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            unvisited += [*part.keys(), *part.values()]
        elif isinstance(part, list):
            unvisited += part


def _short(data: object) -> str:
    text = repr(data)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _execute(data: Mapping[str, Any]) -> ExecuteSnapshot:
    collections = _patterns(data, required=True)
    surrogate = data.get("surrogate-key") or ""
    if not isinstance(surrogate, str):
        raise _BadDataError("surrogate-key is not the name of one column")
    kind = _kind(data)
    return ExecuteSnapshot(kind, collections, _conditions(data, kind), surrogate.strip())


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
        raise _BadDataError("message is missing or not a text")
    return Log(message)


def _change(data: Mapping[str, Any]) -> ChangeSchemas:
    database, changes = data.get("database"), data.get("changes")
    if not isinstance(database, str) or not database.strip():
        raise _BadDataError("database is missing or not a text")
    if not isinstance(changes, list) or not changes or not all(isinstance(change, dict) for change in changes):
        raise _BadDataError("changes is missing or not an array of table changes")
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
        raise _BadDataError("data-collections is missing or not an array of names")
    if len(given) > _MAX_NAMES:
        raise _BadDataError(f"data-collections has more than {_MAX_NAMES} entries; name many tables by one expression")
    return _checked(entry.strip() for entry in given)


def _checked(patterns: Iterable[str]) -> tuple[str, ...]:
    patience, checked = Patience(_PARSING_S), []
    for pattern in patterns:
        try:
            compiled(pattern)
        except PatternError as error:
            raise _BadDataError(f"it holds an invalid regular expression: {error}") from None
        if not patience.left:
            raise _BadDataError(f"its regular expressions take more than {_PARSING_S:g} s to compile")
        checked.append(pattern)
    return tuple(checked)


def _conditions(data: Mapping[str, Any], kind: SnapshotKind) -> tuple[tuple[str, str], ...]:
    legacy = data.get("additional-condition")
    found = [(".*", legacy)] if isinstance(legacy, str) and legacy.strip() else []
    given = data.get("additional-conditions") or []
    if not isinstance(given, list):
        raise _BadDataError("additional-conditions is not an array")
    for entry in given:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(k), str) for k in ("data-collection", "filter")):
            raise _BadDataError("an additional condition lacks data-collection or filter")
        found.append((entry["data-collection"].strip(), entry["filter"]))
    _checked(pattern for pattern, _ in found)
    for _, text in found:
        _require_query(text, kind)
    return tuple(found)


def _require_query(text: str, kind: SnapshotKind) -> None:
    """Check that a condition can be nothing but a part of a query, whatever the rights of the login."""
    try:
        if kind == "incremental":
            require_predicate(text)
        elif text.strip():
            embedded(text, "*")
    except InvalidValueError as error:
        raise _BadDataError(f"{_short(text)} is not {error.expected}") from None


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Request]] = {
    "execute-snapshot": _execute,
    "stop-snapshot": _stop,
    "pause-snapshot": _pause,
    "resume-snapshot": _resume,
    "schema-changes": _change,
    "log": _log,
}
