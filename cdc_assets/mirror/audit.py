"""Compares the tables of mirrors with the record of their steps, and that record with the tables.

*The tables.* The record says what both tables of a mirror held after its newest step: which step each had reached, at which version,
and how many rows. They are compared as topics are (`lake.audit`): a folder that is gone or an older copy, a commit that was lost or
emptied, a data file that is missing or cut off. What another program has deleted on purpose is not missed; but a version that it has put back (RESTORE) lacks what steps have made since, though it keeps their number.
*While a step is in flight* a table that the step has not reached holds what the step before has left, so it is compared, too: the step
would be made upon what is left, and its end would be recorded as right. One that has reached it was as recorded when the step was
committed, and holds more or fewer rows since; only its data files are compared, and whether it was put back. If that is `current` alone, its commit says whether `history`
had the step before.

*The record.* Numbers of steps come from the record only. If it was removed, restored from an older copy, or has lost its newest
commits, the tables have reached steps that it does not know. A step that is planned now would be found as made, though other
events were in it. So a step that is found counts only if it took the events that the plan names, and no number is given twice.

Either way the mirror is rebuilt from its topic, and that is said. *Crash*: nothing is written here. A process that goes on compares the tables again
when they have commits that are not of a step (`versions_of`). One that another program makes while a step is carried out is in what the record
says after it, and is not found here.

*From outside*, for reports and the sensor, one list of the lake finds folders that are gone, and all else is examined in turns while time
remains: reading a commit of each table would cost a lake of a thousand mirrors too much. A step may be made meanwhile, so what
was found counts only if the record says the same after it, without a step in flight.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from cdc_assets.errors import LakeError
from cdc_assets.lake.audit import Examined, Loss, Turns, audit
from cdc_assets.lake.commits import rows_by_path
from cdc_assets.lake.marks import Mark
from cdc_assets.mirror.delta import MirrorTables, current_directory, history_directory
from cdc_assets.mirror.fold_step import ENDED
from cdc_assets.mirror.ledger import MirrorState, PlannedStep

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


def versions_of(tables: MirrorTables, topic: str) -> Sequence[int]:
    """Versions of the tables of a mirror; -1 of one that is not there or cannot be read."""

    def version(directory: str) -> int:
        try:
            handle = tables.tables.open(directory)
        except LakeError:  # whoever reads it meets the error
            return -1
        return -1 if handle is None else handle.version()

    return [version(directory) for directory in directories(topic)]


def damaged_mirrors(
    tables: MirrorTables, states: Mapping[str, MirrorState], topics: Sequence[str], suspected: Collection[str] = ()
) -> set[str]:
    """Topics whose mirror lacks what the record says, also below a step in flight; it is logged.

    Args:
        suspected: topics whose mirrors are examined whatever time that takes.

    Raises:
        LakeAwayError: the store does not answer.
    """
    marks = _marks(states, topics)
    whole = {directory for topic in suspected for directory in directories(topic)}
    turns = Turns()  # nothing records this
    found = audit(tables.tables, marks, marks, whole=whole, seconds=_SECONDS, turns=turns, derived=True)
    lost = _losses(found, states, topics)
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
    settled = [topic for topic in topics if topic in states and states[topic].pending is None]
    if not (marks := _marks(states, settled)):
        return {}
    gone = marks.keys() - set(tables.location.directories())
    found = audit(
        tables.tables, marks, marks, whole=gone, seconds=seconds, turns=turns, first_sight=False, derived=True
    )
    if not (lost := _losses(found, states, settled)):
        return {}
    now = read()
    return {topic: losses for topic, losses in lost.items() if now.get(topic) == states[topic]}


def _marks(states: Mapping[str, MirrorState], topics: Collection[str]) -> dict[str, Mark]:
    """What the tables of mirrors must hold that a step in flight has not reached."""
    return {
        directory: Mark(step, version, rows, counted=version)
        for topic in topics
        if (state := states.get(topic)) is not None
        for directory, (step, version, rows) in zip(directories(topic), state.marks, strict=False)
    }


def _losses(
    found: Mapping[str, Examined], states: Mapping[str, MirrorState], topics: Collection[str]
) -> dict[str, list[Loss]]:
    lost = {
        topic: [
            result.loss
            for name in directories(topic)
            if (result := found.get(name)) is not None
            and result.loss is not None
            and (result.loss.damaged or result.loss.is_put_back or not _holds_pending(result, states[topic]))
        ]
        for topic in topics
    }
    return {topic: losses for topic, losses in lost.items() if losses}


def _holds_pending(found: Examined, state: MirrorState) -> bool:
    """Whether a table has reached the step in flight, whose rows its mark does not count."""
    return state.pending is not None and found.mark is not None and found.mark.window >= state.pending.step


def unknown_step(tables: MirrorTables, topic: str, state: MirrorState) -> int:
    """The step that the tables of a mirror have reached, if it is none that the record knows, or not in both of them, which is logged;
    else 0.

    Raises:
        LakeError: a table cannot be read.
    """
    reached = {directory: tables.reached(directory) for directory in directories(topic)}
    newest, pending = max(reached.values()), state.pending
    made = {
        name: tables.about(name, pending.step) for name, step in reached.items() if pending and step == pending.step
    }
    if newest >= state.next_step or any(not _is_planned(about, pending) for about in made.values()):
        log.warning(
            "Rebuilding the mirror of %s: its tables have reached step %d, which the record of mirrors does not have like this. The record was removed, "
            "or is an older copy, or has lost its newest commits.",
            topic, newest,
        )  # fmt: skip
        return newest
    history = history_directory(topic)
    if history not in made and any(ENDED in about for about in made.values()):
        log.warning(
            "Rebuilding the mirror of %s: %s lacks the versions that step %d has ended: the newest commits of its log are lost.",
            topic, history, newest,
        )  # fmt: skip
        return newest
    return 0


def _is_planned(about: Mapping[str, str], pending: PlannedStep | None) -> bool:
    """Whether a step took the events that the plan names."""
    return pending is not None and (about.get("from_lsn"), about.get("to_lsn")) == (pending.after, pending.until)
