"""Decisions of `snapshot.mode` at a start (spec debezium-sqlserver §2.1).

A table of rules, and one pure function over the known facts of one table. A start is the opening of a `Capture`; under
Dagster's sensor it is the loading of the code location, since its runs follow one another all the time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from cdc_assets.config.settings import SnapshotMode, SnapshotSettings

When = Literal["never", "first", "each start", "needed", "position lost", "history lost"]
"""`first`: there is no position. `needed`: also when the position cannot be read any more, or the history is lost."""


@dataclass(frozen=True, slots=True)
class ModeRule:
    """One row of the table.

    Args:
        schema: when structures are recorded.
        data: when rows are read, which records structures too.
        streams: whether changes are streamed afterwards.
        keeps_position: whether a stored position is required and kept.
    """

    schema: When
    data: When
    streams: bool = True
    keeps_position: bool = False


RULES: Final[Mapping[SnapshotMode, ModeRule]] = {
    "always": ModeRule("each start", "each start"),
    "initial": ModeRule("first", "first"),
    "initial_only": ModeRule("first", "first", streams=False),
    "no_data": ModeRule("first", "never"),
    "recovery": ModeRule("each start", "never", keeps_position=True),
    "when_needed": ModeRule("needed", "needed"),
    "when_needed_no_data": ModeRule("needed", "never"),
}
"""Rules of all modes but `configuration_based`, for which see `rule_of`."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Known facts of a table at a start.

    Args:
        has_position: its first snapshot is complete.
        available: changes after its position can still be read.
        has_history: its structure is in the schema history.
        done: it was snapshotted since this start.
    """

    has_position: bool
    available: bool = True
    has_history: bool = True
    done: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """Actions for one table.

    Args:
        schema: record its structure.
        data: read its rows.
        stream: stream its changes afterwards.
        reason: explanation for people.
    """

    schema: bool
    data: bool
    stream: bool
    reason: str


def rule_of(settings: SnapshotSettings) -> ModeRule:
    """The rule of the configured mode; `configuration_based` derives it from five booleans."""
    if settings.mode != "configuration_based":
        return RULES[settings.mode]
    schema: When = "history lost" if settings.on_schema_error else "never"
    data: When = "position lost" if settings.on_data_error else "never"
    return ModeRule(
        "each start" if settings.schema else schema,
        "each start" if settings.data else data,
        streams=settings.start_stream,
    )


def decide(settings: SnapshotSettings, table: Situation) -> Decision:
    """Apply the mode to one table.

    A table that is to be streamed needs a position, so its structure is recorded at the first start regardless of the
    rule; Debezium would stream it without knowing its columns.
    """
    rule = rule_of(settings)
    lost = table.has_position and not table.available
    due = {
        "never": False,
        "first": not table.has_position,
        "each start": not table.done,
        "needed": not table.has_position or lost or not table.has_history,
        "position lost": lost,
        "history lost": table.has_position and not table.has_history,
    }
    data = due[rule.data]
    schema = data or due[rule.schema] or (rule.streams and not table.has_position)
    return Decision(schema, data, rule.streams, f"snapshot.mode={settings.mode}: {_reason(table)}")


def _reason(table: Situation) -> str:
    if not table.has_position:
        return "no position yet"
    if not table.available:
        return "changes after its position can no longer be read"
    return "position can be read" if table.has_history else "its structure is not in the schema history"
