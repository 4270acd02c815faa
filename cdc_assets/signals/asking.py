"""How the command line and Dagster ask a capture for something: one signal in its inbox."""

import json
from collections.abc import Mapping, Sequence

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import ConfigurationError
from cdc_assets.lake.location import Location
from cdc_assets.lake.manifest import Manifest
from cdc_assets.lake.topics import TopicTables
from cdc_assets.signals.inbox import Inbox
from cdc_assets.signals.model import ExecuteSnapshot, Problem, Signal, SnapshotKind, parse


def compose(
    own_id: str,
    kind: str,
    tables: Sequence[str] = (),
    conditions: Mapping[str, str] | None = None,
    *,
    snapshot: SnapshotKind = "incremental",
    surrogate: str = "",
    message: str = "",
) -> Signal:
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
    signal = Signal(own_id, kind, json.dumps(data))
    problem = parse(signal)
    if isinstance(problem, Problem):
        raise ConfigurationError("signal", kind, problem.expected, "see docs/signals.md")
    return signal


def ask(config: CaptureConfig, signal: Signal) -> None:
    """Put a signal into the capture's inbox; the run that follows the log finds it there, now or later.

    Raises:
        ConfigurationError: nothing was captured into the lake, or the settings lack the signal table that an
            incremental snapshot needs.
        LakeError: the lake cannot be read or written.
    """
    location, prefix = Location.of(config.lake), config.events.topic_prefix
    tables = TopicTables.of(config)
    if not Manifest(tables, prefix).read().tables:
        raise ConfigurationError(
            "lake.path",
            location.root,
            f"a lake into which {prefix} was captured",
            "check the path and the working folder, or run the capture once",
        )
    request = parse(signal)
    if isinstance(request, ExecuteSnapshot) and request.kind == "incremental" and not config.signals.collections:
        raise ConfigurationError(
            "signal.data.collection",
            "",
            "a signal table, into which an incremental snapshot writes its markers",
            "set it, or ask for a blocking snapshot",
        )
    Inbox(location, prefix).put(signal)
