"""State of a table whose changes are gone, or that is no longer the table its position belongs to.

*Why the reason of a gap is what it is.* A gap has three possible causes, and afterwards the
change tables look the same: empty. The capture instance that the table was last read from
distinguishes them. If it still exists,
the clean-up job has moved its low-water mark. If another one has its name,
it was disabled and enabled again. If it is gone, another one replaced it.

*Why an instance that was replaced leaves a gap even if nothing seems to be missing.* The orders "second created, first dropped" and "first dropped, rows
changed, second created" leave the same catalogue and the same LSNs: a change made without an instance leaves no trace in `cdc`. Nor do changes that the
capture job had not read when the first instance was dropped. So it is certain that
nothing is missing only if both instances were seen while the log had passed the start of the
second; `planner` searches for that moment and hands over then.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.ledger.gaps import with_lost
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.instances import Gap, newest
from cdc_assets.shared.losses import SNAPSHOT_AGAIN

ENABLE_AGAIN = "Next: enable it again with sys.sp_cdc_enable_table and materialize its snapshot asset"
"""How the next steps for a table without a capture instance begin, also in records of earlier releases, which end here."""

Instances = Mapping[TableId, Sequence[CaptureInstance]]


def with_gap(state: TableState, gap: Gap, policy: str, instances: Sequence[CaptureInstance]) -> TableState:
    """The table's state after a gap; with policy `ignore` it continues after the gap.

    Args:
        state: state before the gap.
        gap: the gap that was found.
        policy: `gap.policy`.
        instances: the table's capture instances now.
    """
    after = state.position or gap.after
    marked = dataclasses.replace(state, gaps=with_lost(state.gaps, after, gap.until))
    if policy == "ignore":
        ignored = with_lost(state.ignored_gaps, after, gap.until)
        return dataclasses.replace(marked, position=gap.until, ignored_gaps=ignored)
    reason = f"{_cause(state, gap, instances)} Next: {SNAPSHOT_AGAIN}."
    return dataclasses.replace(marked, status="gap", reason=reason)


def _cause(state: TableState, gap: Gap, instances: Sequence[CaptureInstance]) -> str:
    lost = f"Changes after {state.position or gap.after} up to {gap.until}"
    if any(instance.identity == state.identity for instance in instances):
        return f"{lost} were removed by the clean-up job before they were read."
    namesake = next((instance for instance in instances if instance.name == state.instance), None)
    if namesake is not None:
        return (
            f"Capture instance {namesake.name} was disabled and enabled again, and begins at {namesake.start_lsn} now. "
            f"{lost} are in no change table, if there were any."
        )
    last = newest(instances)
    if state.instance and last is not None:
        return (
            f"Capture instance {state.instance} was dropped before it was completely read, and {last.name} begins at "
            f"{last.start_lsn}. {lost} are in no change table, if there were any."
        )
    return f"{lost} were removed by the clean-up job before they were read."


def identity_problem(state: TableState, current: Sequence[CaptureInstance], instances: Instances) -> str:
    """Why a table is no longer the one its position belongs to; empty if it is."""
    last = newest(current)
    if last is None:
        renamed = next(
            (name for name, found in instances.items() if found[0].source_object_id == state.object_id), None
        )
        if renamed:
            return (
                f"{state.table} was renamed or moved to {renamed}; its changes end at {state.position}. "
                f"Next: capture {renamed}, then {_forget(state.table)}."
            )
        ended = f"{state.table} was dropped or has no capture instance any more; its changes end at {state.position}."
        return f"{ended} {ENABLE_AGAIN}; if it is gone for good, {_forget(state.table)}."
    if last.source_object_id != state.object_id:
        return (
            f"{state.table} was dropped and created again (object {state.object_id}, now {last.source_object_id}); "
            f"its old changes end at {state.position}. Next: materialize its snapshot asset."
        )
    return ""


def _forget(table: TableId) -> str:
    """The step that ends the trouble with a table that never comes back, which excluding it does not."""
    return f"cdc-assets reset {table} --yes"


def hidden_reason(state: TableState) -> str:
    """Why a table that is still captured is not read: it is not known what it is called now, nor what columns it has."""
    return (
        f"{state.table} is captured, but the login does not see it (its rights were taken away, or it is being dropped); it is read up to "
        f"{state.position}. Next: grant the login SELECT on it; it is tried again by itself, as long as its changes are kept."
    )


def beginning_reason(state: TableState) -> str:
    """Why a table that is captured again is not read yet: it is not known which changes its instance will hold."""
    return (
        f"{state.table} was enabled again, and the capture job has not reached the start of its capture instance; it is read up to "
        f"{state.position}. Next: nothing; if that lasts, see that the capture job runs."
    )
