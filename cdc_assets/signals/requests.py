"""Sends requests of the command line and of Dagster to a capture: each is a signal in its inbox."""

import json
from collections.abc import Mapping, Sequence

from cdc_assets.config.patterns import PatternError
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.config.snapshot_modes import rule_of
from cdc_assets.core.signal import Signal
from cdc_assets.errors import ConfigurationError
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.state import CaptureState
from cdc_assets.signals.inbox import Inbox
from cdc_assets.signals.model import ExecuteSnapshot, ParsedSignal, Problem, SnapshotKind, StopSnapshot, parse
from cdc_assets.signals.tables import EXPECTED, TableMatcher
from cdc_assets.signals.watch import tables_named_by_signals


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
    """Make a valid signal.

    Args:
        own_id: id of the signal; a second signal with the same id has no effect.
        kind: type of the signal.
        tables: regular expressions for `db.schema.table`.
        conditions: predicate by such an expression, or a complete SELECT for a blocking snapshot.
        snapshot: kind of snapshot.
        surrogate: column that orders the chunks instead of the key.
        message: text of a `log` signal.

    Raises:
        ConfigurationError: the signal is invalid; the message says why.
    """
    if kind == "execute-snapshot" and not tables:
        raise ConfigurationError(
            "tables", "", "at least one regular expression for database.schema.table", "name the tables to read"
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
    if kind == "log" and not message:
        raise ConfigurationError(
            "message", "", "the text to write into the log", "give it (cdc-assets signal log --message)"
        )
    if message:
        data["message"] = message
    composed = parse(Signal(own_id, kind, json.dumps(data)))
    if isinstance(composed.request, Problem):
        raise ConfigurationError("signal", kind, composed.request.expected, "see docs/signals.md")
    return composed


def ask(config: CaptureConfig, composed: ParsedSignal) -> Sequence[str]:
    """Put a signal into the capture's inbox, where the streaming run finds it now or later.

    Args:
        composed: signal from `compose`.

    Returns:
        Expressions that match no captured table, if others do.

    Raises:
        ConfigurationError: nothing was captured into the lake, no captured table matches, an incremental snapshot is
            requested without a configured signal table, or no run streams.
        LakeError: the lake cannot be read or written.
    """
    if not rule_of(config.snapshot).streams:
        raise ConfigurationError(
            "snapshot.mode",
            config.snapshot.mode,
            "a mode in which changes are streamed, since the streaming run carries signals out",
            "choose another mode; or read tables again with `cdc-assets capture --table`, or by their snapshot assets",
        )
    location, prefix = Location.of(config.lake), config.events.topic_prefix
    tables = TopicTables.of(config)
    state = Manifest(tables, prefix).read()
    if not state.tables:
        raise ConfigurationError(
            "lake.path",
            location.root,
            f"a lake into which {prefix} was captured",
            "check the path and the working directory, or run the capture once",
        )
    request = composed.request
    if isinstance(request, ExecuteSnapshot) and request.kind == "incremental" and not config.signals.collections:
        raise ConfigurationError(
            "signal.data.collection",
            "",
            "a signal table, into which an incremental snapshot writes its markers",
            "set it, or request a blocking snapshot",
        )
    unknown = (
        _unknown(config, state, request.collections) if isinstance(request, ExecuteSnapshot | StopSnapshot) else []
    )
    Inbox(location, prefix).put(composed.signal)
    return unknown


def _unknown(config: CaptureConfig, state: CaptureState, patterns: Sequence[str]) -> Sequence[str]:
    """Expressions that match no captured table.

    Raises:
        ConfigurationError: no expression matches, or matching takes too long.
    """
    databases = sorted({table.database for table in state.tables})
    captured = [table for database in databases for table in tables_named_by_signals(config.signals, state, database)]
    try:
        found, unknown = TableMatcher(captured).of_all(patterns)
    except PatternError as error:
        raise ConfigurationError("tables", ", ".join(patterns), str(error), "simplify it") from None
    if patterns and not found:
        names = ", ".join(map(str, captured)) or "none"
        known = names if len(names) <= 300 else names[:300] + " …"
        raise ConfigurationError(
            "tables", ", ".join(patterns), f"{EXPECTED}, of a captured table: {known}", "correct it"
        )
    return unknown
