"""Compares the tables of mirrors with the record of their steps, and that record with the tables.

*The tables.* The record says what both tables of a mirror held after its newest step: which step each had reached, at which version,
and how many rows. They are compared as topics are (`lake.audit`): a folder that is gone or an older copy, a commit that was lost or
emptied, a data file that is missing or cut off. What another program has deleted on purpose is not missed.

*The record.* Numbers of steps come from the record only. If it was removed, restored from an older copy, or has lost its newest
commits, the tables have reached steps that it does not know. A step that is planned now would be found as made, though other
events were in it. So a step that is found counts only if it took the events that the plan names, and no number is given twice.

Either way the mirror is rebuilt from its topic, and that is said. *Crash*: nothing is written here.

*From outside*, for reports and the sensor, one list of the lake finds folders that are gone, and all else is examined in turns while time
remains: reading a commit of each table would cost a lake of a thousand mirrors too much. A step may be made meanwhile, so what
was found counts only if the record says the same after it.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from cdc_assets.lake.audit import Examined, Loss, Turns, audit
from cdc_assets.lake.commits import rows_by_path
from cdc_assets.lake.marks import Mark
from cdc_assets.mirror.delta import MirrorTables, current_directory, history_directory
from cdc_assets.mirror.ledger import MirrorState

log = logging.getLogger(__name__)

_SECONDS = 2.0
"""Time for tables that look right at first sight."""

TableMark = tuple[int, int, int]
"""Newest step of a table, its version and its rows."""


def directories(topic: str) -> tuple[str, str]:
    """The two tables of a mirror, in the order of `MirrorState.marks`."""
    return current_directory(topic), history_directory(topic)


def marks_of(tables: MirrorTables, topic: str) -> tuple[TableMark, ...]:
    """What the tables of a mirror hold after a step."""
    return tuple(_mark(tables, directory) for directory in directories(topic))


def _mark(tables: MirrorTables, directory: str) -> TableMark:
    """All of one version: another program may commit meanwhile."""
    if (handle := tables.tables.open(directory)) is None:
        return -1, -1, 0
    step = tables.tables.transaction(handle, directory)
    rows = sum(count or 0 for count in rows_by_path(handle).values())
    return -1 if step is None else step, handle.version(), rows


def damaged_mirrors(
    tables: MirrorTables, states: Mapping[str, MirrorState], topics: Sequence[str], suspected: Collection[str] = ()
) -> set[str]:
    """Topics whose mirror lacks what the record says; it is logged. Those with a step in flight are left for the next time.

    Args:
        suspected: topics whose mirrors are examined whatever time that takes.

    Raises:
        LakeAwayError: the store does not answer.
    """
    marks = _marks(states, topics)
    whole = {directory for topic in suspected for directory in directories(topic)}
    found = audit(tables.tables, marks, marks, whole=whole, seconds=_SECONDS, turns=Turns())  # nothing records this
    lost = _losses(found, topics)
    for topic, losses in lost.items():
        for loss in losses:
            log.warning("Rebuilding the mirror of %s: %s %s.", topic, loss.directory, loss.what)
    return set(lost)


def seen_losses(
    tables: MirrorTables,
    read: Callable[[], Mapping[str, MirrorState]],
    topics: Collection[str],
    *,
    seconds: float | None,
    turns: Turns,
) -> Mapping[str, Sequence[Loss]]:
    """What mirrors lack as far as it is found from outside, by topic; nothing is logged.

    Args:
        read: reads the record.
        seconds: time limit; None examines all of them.
        turns: of whoever searches.

    Raises:
        LakeError: the lake cannot be listed, or the record cannot be read.
    """
    states = read()
    if not (marks := _marks(states, topics)):
        return {}
    gone = marks.keys() - set(tables.location.directories())
    found = audit(tables.tables, marks, marks, whole=gone, seconds=seconds, turns=turns, first_sight=False)
    if not (lost := _losses(found, topics)):
        return {}
    now = read()
    return {topic: losses for topic, losses in lost.items() if now.get(topic) == states[topic]}


def _marks(states: Mapping[str, MirrorState], topics: Collection[str]) -> dict[str, Mark]:
    """What the tables of mirrors must hold, without those with a step in flight."""
    return {
        directory: Mark(step, version, rows, counted=version)
        for topic in topics
        if (state := states.get(topic)) is not None and state.pending is None
        for directory, (step, version, rows) in zip(directories(topic), state.marks, strict=False)
    }


def _losses(found: Mapping[str, Examined], topics: Collection[str]) -> dict[str, list[Loss]]:
    lost = {name: result.loss for name, result in found.items() if result.loss is not None}
    by_topic = {topic: [lost[name] for name in directories(topic) if name in lost] for topic in topics}
    return {topic: losses for topic, losses in by_topic.items() if losses}


def unknown_step(tables: MirrorTables, topic: str, state: MirrorState) -> int:
    """The step that the tables of a mirror have reached, if it is none that the record knows, which is logged; else 0.

    Raises:
        LakeError: a table cannot be read.
    """
    reached = {directory: tables.reached(directory) for directory in directories(topic)}
    newest, pending = max(reached.values()), state.pending
    is_known = newest < state.next_step and not (
        pending is not None
        and any(
            step == pending.step and tables.range_of(directory, step) != (pending.after, pending.until)
            for directory, step in reached.items()
        )
    )
    if is_known:
        return 0
    log.warning(
        "Rebuilding the mirror of %s: its tables have reached step %d, which the record of mirrors does not have like this. The record was removed, "
        "or is an older copy, or has lost its newest commits.",
        topic, newest,
    )  # fmt: skip
    return newest
