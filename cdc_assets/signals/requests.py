"""How the command line and Dagster ask a capture for something: one signal in its inbox."""

import json
from collections.abc import Mapping, Sequence

from cdc_assets.config.patterns import PatternError
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.signal import Signal
from cdc_assets.errors import ConfigurationError
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.state import CaptureState
from cdc_assets.signals.inbox import Inbox
from cdc_assets.signals.model import ExecuteSnapshot, ParsedSignal, Problem, SnapshotKind, StopSnapshot, parse
from cdc_assets.signals.tables import EXPECTED, Meaning
from cdc_assets.signals.watch import meant_by_signals


def compose(
    own_id: str,
    kind: str,
    tables: Sequence[str] = (),
    conditions: Mapping[str, str] | None = None,
    *,
    snapshot: SnapshotKind = "incremental",
    surrogate: str = "",
    message: str = "",
) -> ParsedSignal:
    """A signal that can be carried out.

    Args:
        own_id: it acts once under this id.
        kind: type of the signal.
        tables: regular expressions of `db.schema.table`.
        conditions: by such an expression, a predicate, or a whole SELECT for a blocking snapshot.
        snapshot: which kind of snapshot.
        surrogate: column to walk along in place of the key.
        message: of a `log` signal.

    Raises:
        ConfigurationError: it makes no sense; the message says why.
    """
    if kind == "execute-snapshot" and not tables:
        raise ConfigurationError(
            "tables", "", "at least one regular expression of database.schema.table", "name what is to be read"
        )
    data: dict[str, object] = {"data-collections": list(tables)} if tables else {}
    if kind == "execute-snapshot":
        data["type"] = snapshot
    if conditions:
        data["additional-conditions"] = [
            {"data-collection": table, "filter": text} for table, text in conditions.items()
        ]
    if surrogate:
        data["surrogate-key"] = surrogate
    if message:
        data["message"] = message
    composed = parse(Signal(own_id, kind, json.dumps(data)))
    if isinstance(composed.request, Problem):
        raise ConfigurationError("signal", kind, composed.request.expected, "see docs/signals.md")
    return composed


def ask(config: CaptureConfig, composed: ParsedSignal) -> Sequence[str]:
    """Put a signal into the capture's inbox; the run that follows the log finds it there, now or later.

    Args:
        composed: what `compose` gave.

    Returns:
        Expressions that mean no captured table, if others do.

    Raises:
        ConfigurationError: nothing was captured into the lake, no captured table is meant, or the settings lack the
            signal table that an incremental snapshot needs.
        LakeError: the lake cannot be read or written.
    """
    location, prefix = Location.of(config.lake), config.events.topic_prefix
    tables = TopicTables.of(config)
    state = Manifest(tables, prefix).read()
    if not state.tables:
        raise ConfigurationError(
            "lake.path",
            location.root,
            f"a lake into which {prefix} was captured",
            "check the path and the working folder, or run the capture once",
        )
    request = composed.request
    if isinstance(request, ExecuteSnapshot) and request.kind == "incremental" and not config.signals.collections:
        raise ConfigurationError(
            "signal.data.collection",
            "",
            "a signal table, into which an incremental snapshot writes its markers",
            "set it, or ask for a blocking snapshot",
        )
    unknown = (
        _unknown(config, state, request.collections) if isinstance(request, ExecuteSnapshot | StopSnapshot) else []
    )
    Inbox(location, prefix).put(composed.signal)
    return unknown


def _unknown(config: CaptureConfig, state: CaptureState, patterns: Sequence[str]) -> Sequence[str]:
    """Expressions that mean no captured table.

    Raises:
        ConfigurationError: all of them, or they take too long.
    """
    databases = sorted({table.database for table in state.tables})
    captured = [table for database in databases for table in meant_by_signals(config.signals, state, database)]
    try:
        found, unknown = Meaning(captured).of_all(patterns)
    except PatternError as error:
        raise ConfigurationError("tables", ", ".join(patterns), str(error), "simplify it") from None
    if patterns and not found:
        names = ", ".join(map(str, captured)) or "none"
        known = names if len(names) <= 300 else names[:300] + " …"
        raise ConfigurationError(
            "tables", ", ".join(patterns), f"{EXPECTED}, of a captured table: {known}", "correct it"
        )
    return unknown
