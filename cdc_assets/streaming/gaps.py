"""What is recorded of a table whose changes are gone, or that is no longer the one its position belongs to.

*Why a gap is told as it is.* Three things leave one behind, and what is in the
change tables afterwards is the same: nothing. They are told apart by the capture
instance that the table was read from last. It is there still, made when it was:
the clean-up job has moved its low-water mark. It is there, but was made later:
it was disabled and enabled again. It is gone: another one was put in its place.

*Why an instance that was put in another's place leaves a gap even if nothing
seems to be missing.* "Second made, first dropped" and "first dropped, rows
changed, second made" leave the same catalogue and the same LSNs behind, for what
is changed without an instance leaves no trace in `cdc`. Nor do changes that the
capture job had not read when the first instance was dropped. So only who saw both
instances while the log had passed the start of the second knows that nothing is
missing; `planner` looks for that moment, and hands over then.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from cdc_assets.capture.instances import Gap, gap_of, newest, reads_of
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.ledger.state import TableState

_KEEP_GAPS = 100
"""Gaps a table's state remembers; the manifest's rows and Delta's versions hold older ones."""

Instances = Mapping[TableId, Sequence[CaptureInstance]]


def gap_behind(state: TableState, own: Sequence[CaptureInstance]) -> Gap | None:
    """Changes behind a table's position that no capture instance has any more; None if it has no instance or position.

    Args:
        state: what the manifest says.
        own: the table's capture instances now.
    """
    last = newest(own)
    if last is None or state.position is None:
        return None
    reads = reads_of(state.table, own, state.position, max(state.position.next(), last.start_lsn))
    return gap_of(reads, {instance.name: instance.start_lsn for instance in own})


def with_gap(state: TableState, gap: Gap, policy: str, own: Sequence[CaptureInstance]) -> TableState:
    """The table's state after a gap; with policy `ignore` it goes on behind it.

    Args:
        state: before.
        gap: that was found.
        policy: `gap.policy`.
        own: the table's capture instances now.
    """
    after = state.position or gap.after
    marked = dataclasses.replace(state, gaps=(*state.gaps, (after, gap.until))[-_KEEP_GAPS:])
    if policy == "ignore":
        return dataclasses.replace(marked, position=gap.until)
    reason = f"{_cause(state, gap, own)} Next: materialize the table's snapshot asset, or set gap.policy=resnapshot."
    return dataclasses.replace(marked, status="gap", reason=reason)


def _cause(state: TableState, gap: Gap, own: Sequence[CaptureInstance]) -> str:
    lost = f"Changes after {state.position or gap.after} up to {gap.until}"
    read = next((instance for instance in own if instance.name == state.instance), None)
    last = newest(own)
    if read is None and state.instance and last is not None:
        return (
            f"Capture instance {state.instance} was dropped before it was read to its end, and {last.name} begins at "
            f"{last.start_lsn}. {lost} are in no change table, if there were any."
        )
    if read is not None and state.made is not None and read.created != state.made:
        return (
            f"Capture instance {read.name} was disabled and enabled again, and begins at {read.start_lsn} now. "
            f"{lost} are in no change table, if there were any."
        )
    return f"{lost} were removed by the clean-up job before they were read."


def identity_problem(state: TableState, own: Sequence[CaptureInstance], instances: Instances) -> str:
    """Why a table is no longer the one its position belongs to, or nothing."""
    last = newest(own)
    if last is None:
        renamed = next(
            (name for name, found in instances.items() if found[0].source_object_id == state.object_id), None
        )
        if renamed:
            return (
                f"{state.table} was renamed or moved to {renamed}; its changes stop at {state.position}. "
                f"Next: capture {renamed} and materialize its snapshot asset."
            )
        return (
            f"{state.table} was dropped or has no capture instance any more; its changes stop at {state.position}. "
            "Next: enable it again with sys.sp_cdc_enable_table and materialize its snapshot asset."
        )
    if last.source_object_id != state.object_id:
        return (
            f"{state.table} was dropped and created again (object {state.object_id}, now {last.source_object_id}); "
            f"its old changes stop at {state.position}. Next: materialize its snapshot asset."
        )
    return ""
