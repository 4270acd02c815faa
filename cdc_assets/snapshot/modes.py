"""What `snapshot.mode` decides at a start (spec debezium-sqlserver §2.1).

A table of rules and one pure function. `always` cannot be told from `initial`
by one table's state alone: it applies to each new run, so the caller says
whether the table was snapshotted in this run already.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from cdc_assets.config.settings import SnapshotMode

When = Literal["never", "start", "each run", "unavailable"]


@dataclass(frozen=True, slots=True)
class ModeRule:
    """One row of the table.

    Args:
        schema: when structures are recorded.
        data: when rows are read.
        streams: whether changes are streamed afterwards.
        keeps_position: whether a stored position is required and kept.
    """

    schema: When
    data: When
    streams: bool
    keeps_position: bool = False


RULES: Final[Mapping[SnapshotMode, ModeRule]] = {
    "always": ModeRule("each run", "each run", True),
    "initial": ModeRule("start", "start", True),
    "initial_only": ModeRule("start", "start", False),
    "no_data": ModeRule("start", "never", True),
    "recovery": ModeRule("each run", "never", True, keeps_position=True),
    "when_needed": ModeRule("unavailable", "unavailable", True),
    "when_needed_no_data": ModeRule("unavailable", "never", True),
}
"""`start`: no position, or the first snapshot unfinished. `unavailable`: also when the position can no longer be read."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do for one table.

    Args:
        schema: record its structure.
        data: read its rows.
        stream: stream its changes afterwards.
        reason: for people.
    """

    schema: bool
    data: bool
    stream: bool
    reason: str


def decide(mode: SnapshotMode, *, has_position: bool, available: bool = True, done_in_run: bool = False) -> Decision:
    """Apply a mode to one table.

    Args:
        mode: `snapshot.mode`.
        has_position: whether the table's first snapshot is complete.
        available: whether changes after its position can still be read.
        done_in_run: whether this run has snapshotted it already.
    """
    rule = RULES[mode]
    due = {
        "never": False,
        "start": not has_position,
        "each run": not done_in_run,
        "unavailable": not has_position or not available,
    }
    if not has_position:
        reason = "no position yet"
    else:
        reason = "position can be read" if available else "position is no longer available"
    return Decision(due[rule.schema], due[rule.data], rule.streams, f"snapshot.mode={mode}: {reason}")
