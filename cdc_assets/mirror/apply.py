"""Brings mirrors to the LSN that their topics have reached, step by step.

A fold is a step that can be read twice (`fold_step`): its bounds are in the ledger's row `planned`, and the LSN is published with the row
`complete`. A fold that is in both tables and not recorded is only recorded.

*A rebuild and retention that meet* (`Mirrors._recorded`): events may go that a rebuild which was planned has not taken yet. Its table had no mirror for
a while, or a process died before it gave up. It is not carried out then (`steps.is_overtaken`):
if its mirror is as before, and has come as far as the topic reaches back, the mirror continues; else it is planned again by what is left.

*Settings that change what a key is made of* give up a step in flight. If a table has reached it, the next step is a rebuild, whatever the
key is now (`Mirrors._is_mixed`).

| after | state | a crash here |
|---|---|---|
| the ledger's row `planned` | bounds of the step | it is carried out by these; a rebuild whose events went since, and a step whose key is no longer right, is given up, or planned again |
| the commit in `history` | versions that have ended | the same step finds them, and takes the rows; if it is given up, the mirror is rebuilt |
| the commit in `current` | rows | the step is only recorded; if `history` has lost it, or it is given up, the mirror is rebuilt (`audit`) |
| the ledger's row `complete` | the LSN is published, and the step given up that was in flight | |

All tables that have something new share the two jobs of a turn (`tasks`) and the two rows of the ledger. An error of one table
stops that table only (`isolation`).
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from cdc_assets.core.capture_runner import CaptureRunner
from cdc_assets.core.ports import Clock
from cdc_assets.core.steps import step as reach
from cdc_assets.errors import (
    LAKE_ERRORS,
    CdcError,
    ConfigurationError,
    LakeConflictError,
    LakeError,
    MirrorError,
    UnknownRowError,
)
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.location import Location
from cdc_assets.lake.presence import require_files
from cdc_assets.lake.retained import retained
from cdc_assets.lake.step import Step, carry_out
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror.audit import damaged_mirrors, directories, marks_of, unknown_step, versions_of
from cdc_assets.mirror.columns import history_schema, is_widened, retyped_from
from cdc_assets.mirror.delta import MirrorTables, current_directory, history_directory
from cdc_assets.mirror.fold_step import EVENTS, events_of, fold_commits
from cdc_assets.mirror.isolation import attempted, folded
from cdc_assets.mirror.jobs import Jobs, staging_of
from cdc_assets.mirror.ledger import MirrorLedger, MirrorState, PlannedStep
from cdc_assets.mirror.rewrite import are_parted
from cdc_assets.mirror.steps import Target, files_of, is_overtaken, next_step, require_events, right_up_to
from cdc_assets.mirror.tasks import FoldResult
from cdc_assets.mirror.unopened import move_unopened
from cdc_assets.mirror.work import MirroredTable, OnStep, StepReport, Work

log = logging.getLogger(__name__)

_LONGEST_NAME = 255
"""Bytes of a file's or folder's name in a file system."""
_FOLDS = 3
"""How often the jobs of steps are tried while other processes are in the way."""
_Moved = tuple[str, MirrorState]
"""A topic, and how far its mirror is without any step."""


class Mirrors:
    """Applies topics to their mirrors; one writer at a time.

    Args:
        topics: the lake's topic tables.
        on_step: called after each step.
    """

    def __init__(
        self,
        topics: TopicTables,
        tables: MirrorTables,
        ledger: MirrorLedger,
        runner: CaptureRunner,
        clock: Clock,
        on_step: OnStep,
    ) -> None:
        self._topics, self._tables, self._ledger = topics, tables, ledger
        self._clock, self._on_step = clock, on_step
        self._jobs, self._account = Jobs(topics, tables, runner), runner.account
        self._parted = set[str]()
        """Topics whose mirror's leaves were checked."""
        self._audited: dict[str, Sequence[int]] = {}
        """Versions of a mirror's tables that were compared with the record."""
        self._of = ""
        """Identity of the record that these are of."""
        self._mixed = dict[str, int]()
        """Steps of mirrors that were carried out in part, before events of theirs were lost."""

    def catch_up(
        self,
        tables: Sequence[MirroredTable],
        *,
        anew: bool = False,
        should_end: Callable[[], bool] = lambda: False,
        suspected: Collection[str] = (),
    ) -> Mapping[str, CdcError]:
        """Apply what is new, step after step.

        Args:
            anew: whether the mirrors are rebuilt from their topics.
            should_end: asked between two turns.
            suspected: topics whose mirrors may lack something, which is examined whatever time it takes.

        Returns:
            Topics whose mirror could not follow, with the reason; the others did.

        Raises:
            FencedError: another writer has taken over.
            LakeError: the ledger cannot be written.
        """
        self._ledger.claim()
        self._begin_again()
        self._mixed.clear()  # another process may have rebuilt them since; what is left so is found again
        topics = [table.topic for table in tables]
        rebuilt = set(topics) if anew else self._damaged(topics, suspected)
        troubles: dict[str, CdcError] = {}
        left = list(tables)
        while left and not should_end():
            found = [attempted(table.topic, troubles, partial(self._planned, table, rebuilt)) for table in left]
            works = [work for work in found if isinstance(work, Work)]
            idle = dict(one for one in found if isinstance(one, tuple) and one[1] != self._state(one[0]))
            new = [work for work in works if self._state(work.table.topic).pending != work.planned]
            if new:
                works = self._recorded(works, new, troubles)
            freed = {topic for topic, state in idle.items() if state.pending is None and self._state(topic).pending}
            before = self._account.of("mirror")
            done = self._carry_out(works, troubles) if works else {}
            ran_on = self._account.of("mirror").since(before)
            if done or idle:
                self._ledger.complete(
                    self._clock.now(), {**idle, **{topic: state for topic, (state, _) in done.items()}}
                )
            for _, report in done.values():
                self._on_step(replace(report, ran_on=ran_on))
            again = {
                work.table.topic for work in works if self._is_unknown(work, rebuilt, troubles)
            } | self._mixed.keys()
            troubles = {topic: error for topic, error in troubles.items() if topic not in again}
            rebuilt = rebuilt - done.keys() | again
            left = [table for table in left if table.topic in done.keys() | again | freed]
        return troubles

    def _begin_again(self) -> None:
        """Forget what is known of mirrors whose record another one has replaced, as after a reset of the capture: they moved with it."""
        if self._of != self._ledger.identity:
            self._tables.tables.forget_all()
            self._parted.clear()
            self._audited.clear()
            self._of = self._ledger.identity

    def _is_unknown(self, work: Work, rebuilt: Collection[str], troubles: Mapping[str, CdcError]) -> bool:
        """Whether events no longer name the rows of a mirror, and its table was read again, so that it can be rebuilt."""
        topic, newest = work.table.topic, work.table.newest or work.table
        is_unknown = isinstance(troubles.get(topic), UnknownRowError) and topic not in rebuilt
        return is_unknown and newest.target.read > self._state(topic).lsn

    def _damaged(self, topics: Sequence[str], suspected: Collection[str]) -> set[str]:
        """Mirrors whose tables lack what the record says; each is checked once, again while it is not rebuilt, and whenever its tables have
        commits that are not of a step: of upkeep, or of another program."""
        seen = {topic: versions_of(self._tables, topic) for topic in topics}
        new = [topic for topic, versions in seen.items() if not self._is_audited(topic, versions)]
        lost = damaged_mirrors(self._tables, self._ledger.state, new, suspected)
        self._audited = {topic: found for topic, found in (self._audited | seen).items() if topic not in lost}
        return lost

    def _is_audited(self, topic: str, versions: Sequence[int]) -> bool:
        return topic in self._audited and versions in (
            self._audited[topic],
            [version for _, version, _ in self._state(topic).marks],
        )

    def _recorded(self, works: list[Work], new: Sequence[Work], troubles: dict[str, CdcError]) -> list[Work]:
        """Record new steps; those that are to be carried out.

        Retention announces first and checks for rebuilds second; here a rebuild is planned first and announcements are checked second. So
        one of the two gives up, before anything of the mirror has changed.
        """
        former = {work.table.topic: self._state(work.table.topic) for work in new}
        self._ledger.plan(self._clock.now(), [work.planned for work in new])
        given_up = {
            work.table.topic: former[work.table.topic]
            for work in new
            if work.planned.whole and retained(self._topics, work.table.topic).after != work.table.target.complete_after
        }
        if given_up:
            self._ledger.complete(self._clock.now(), given_up)
        for topic in given_up:
            troubles[topic] = LakeConflictError(
                f"Events of {topic} were dropped just when its mirror was about to be rebuilt, so the mirror was left unchanged. "
                "Next: start the rebuild again."
            )
        return [work for work in works if work.table.topic not in given_up]

    def _state(self, topic: str) -> MirrorState:
        return self._ledger.state.get(topic, MirrorState())

    def _planned(self, table: MirroredTable, rebuilt: set[str]) -> Work | _Moved | None:
        """The step in flight of a table, or its next one; or its state, if it is proved that the topic has nothing to take, or the
        step in flight is given up.

        None if it can do neither now. A mirror that fails or waits keeps its LSN: there may be events after it that it has not taken.
        """
        _require_names(self._tables.location, table.topic)
        state, anew = self._state(table.topic), table.topic in rebuilt
        if anew:
            move_unopened(self._tables, table.topic, self._clock.now(), self._ledger.require_writer)
        if unknown := self._mixed.pop(table.topic, 0) or unknown_step(self._tables, table.topic, state):
            state, anew = replace(state, step=unknown, pending=None), True
        is_late = not anew and state.pending is not None and is_overtaken(state.pending, table.target)
        if is_late and self._is_untouched(table, state):
            log.warning(
                "Events of %s were dropped just when its mirror was about to be rebuilt, so the mirror was left unchanged, and continues "
                "at %s. Next: if it is still to be rebuilt, start the rebuild again.",
                table.topic, state.lsn,
            )  # fmt: skip
            return table.topic, replace(state, pending=None)
        anew = anew or self._is_mixed(table, state)
        if table.newest is not None and (anew or is_late or self._is_to_be_rebuilt(table, state)):
            table, anew = table.newest, True
        key, planned = table.description.shape.key_text, state.pending
        is_kept = planned is not None and not (anew or is_late) and planned.key == key
        if planned is None or not is_kept or (not planned.whole and self._is_lost(table, state)):
            anew = anew or is_late or self._is_lost(table, state)
            target = _until_read(table) if anew else table.target
            planned = next_step(table.topic, state, target, table.files, key, anew=anew)
        if planned is None and anew and state.step:
            raise table.halt or MirrorError(
                f"The mirror of {table.topic} cannot be rebuilt now, and stays at {state.lsn}: a snapshot has read the table later "
                f"than at {table.target.position}, up to which its topic is complete. Next: run the capture until its topic is "
                "complete behind that snapshot, and start the rebuild again."
            )
        if planned is None:
            is_level = state.step > 0 and state.key == key and state.lsn == table.target.end
            return (table.topic, self._moved(table, state.lsn, table.target.window)) if is_level else None
        is_idle = not files_of(planned, table.files) and not planned.takes(state.absences)
        if is_idle and planned != state.pending and not planned.whole and not planned.void:
            return table.topic, self._moved(table, planned.until, planned.window)
        require_events(planned, table.target)
        return self._work(table, planned)

    def _is_untouched(self, table: MirroredTable, state: MirrorState) -> bool:
        """Whether a mirror can continue as if its step in flight had never been planned: no table has reached it, and no event is lacking."""
        return 0 < state.step >= self._reached(table.topic) and state.lsn >= table.target.complete_after

    def _is_mixed(self, table: MirroredTable, state: MirrorState) -> bool:
        """Whether a step is given up, since what a key is made of was changed, and a table has reached it, or one that was given up before
        it: by the record, the tables are as the newest complete step has left them, and its key may be that of today again."""
        is_given_up = state.pending is not None and state.pending.key != table.description.shape.key_text
        return is_given_up and 0 < state.step < self._reached(table.topic)

    def _reached(self, topic: str) -> int:
        return max(self._tables.reached(directory) for directory in directories(topic))

    def _is_to_be_rebuilt(self, table: MirroredTable, state: MirrorState) -> bool:
        """Whether a mirror cannot follow an older structure: its tables are lost or have other leaves, or a step in flight is later."""
        if state.lsn > table.target.position:  # it has come into the newer one since
            return False
        is_beyond = state.pending is not None and state.pending.until > table.target.position
        return is_beyond or state.key != table.description.shape.key_text or self._is_lost(table, state)

    def _moved(self, table: MirroredTable, lsn: str, window: int) -> MirrorState:
        """The state of a table that has nothing to take up to an LSN; the same if that says nothing new."""
        state = self._state(table.topic)
        # a snapshot of no rows has no READ that a step would take
        begin = state.begin or right_up_to(lsn, table.target)
        gaps = table.target.gaps_since(state.since)
        moved = replace(state, lsn=lsn, window=max(state.window, window), gaps=gaps, begin=begin)
        return moved if (lsn, gaps, begin) != (state.lsn, state.gaps, state.begin) else state

    def _is_lost(self, table: MirroredTable, state: MirrorState) -> bool:
        """Whether the tables of a mirror were removed or rewritten by another program since, or cannot have the columns of today."""
        if not state.step:
            return False
        directory, shape = current_directory(table.topic), table.description.shape
        known, leaves = self._tables.schema(directory), self._tables.leaves(directory)
        if known is None or leaves is None or shape.is_misspelt(known):
            return True
        seen = state.parted or table.topic in self._parted or state.key != shape.key_text
        if seen or are_parted(self._tables.location, directory, shape, leaves):
            self._parted.add(table.topic)
            return False
        log.warning(
            "Rebuilding the mirror of %s: rows lie in other leaves than their events, so some may be there twice, or "
            "still there.",
            table.topic,
        )
        return True

    def _work(self, table: MirroredTable, planned: PlannedStep) -> Work:
        topic = table.topic
        current = self._tables.schema(current_directory(topic))
        shape = table.description.shape
        if planned.whole:
            shape = shape.current_generation()
        elif current is not None:
            shape = shape.keeping(current)
        table = replace(table, description=replace(table.description, shape=shape))
        history = self._tables.schema(history_directory(topic))
        leaves = [] if planned.whole else self._tables.leaves(current_directory(topic))
        if leaves is None:
            raise LakeError(
                f"{current_directory(topic)} was rewritten by another program. Next: cdc-assets mirror --rebuild {topic}."
            )
        wanted = shape.history if planned.whole or history is None else history_schema(history, shape)
        retyped = current is not None and not planned.whole and not is_widened(current, shape.current)
        former = retyped_from(current, shape) if current is not None and retyped else ()
        declared = shape.current if current is None or planned.whole or retyped else current
        strict = frozenset(field.name for field in declared if not field.nullable)
        state = self._state(topic)
        absences, begin = planned.takes(state.absences), state.behind(planned).begin
        return Work(table, planned, leaves, absences, begin, retyped, wanted, retyped_from=former, strict=strict)

    # ---- one turn ----------------------------------------------------------------------------------------------

    def _carry_out(
        self, works: Sequence[Work], troubles: dict[str, CdcError]
    ) -> dict[str, tuple[MirrorState, StepReport]]:
        """Read, fold and commit the planned steps of some tables."""
        done: dict[str, tuple[MirrorState, StepReport]] = {}
        open_: list[Work] = []

        def complete(work: Work, found: Sequence[FoldResult] = ()) -> None:
            done[work.table.topic] = self._finished(work, found)

        def begin(work: Work) -> None:
            if self._tables.reached(current_directory(work.table.topic)) < work.planned.step:
                open_.append(work)
            else:
                complete(work)

        def commit(work: Work, found: Sequence[FoldResult]) -> None:
            self._require_same(work, found)
            commits = fold_commits(self._tables, self._jobs, work, found, self._ledger.require_writer)
            step = Step(work.planned.step, commits, complete=partial(complete, work, found))
            carry_out(step, partial(require_files, self._tables.location))

        for work in works:
            attempted(work.table.topic, troubles, partial(begin, work))
        if not open_:
            return done
        try:
            made = self._folded(open_, troubles)
            reach("mirror-folded")
            for work, found in made:
                attempted(work.table.topic, troubles, partial(commit, work, found))
        finally:
            for work in open_:
                with contextlib.suppress(*LAKE_ERRORS):
                    Folder(self._tables.location, staging_of(work.table.topic)).drop()
        return done

    def _require_same(self, work: Work, found: Sequence[FoldResult]) -> None:
        """Check that the versions of a step, if they are committed already, were made of the events that its rows are made of.

        Raises:
            MirrorError: they were not; it is rebuilt next.
        """
        topic, number = work.table.topic, work.planned.step
        history = history_directory(topic)
        if self._tables.reached(history) < number:
            return
        made, now = self._tables.about(history, number).get(EVENTS), events_of(found)
        if made not in (None, now):  # earlier versions did not say it
            self._mixed[topic] = number
            raise MirrorError(
                f"The topic of {topic} has lost events that step {number} of its mirror had taken: {now} are left of {made}. Next: nothing; the "
                "mirror is rebuilt."
            )

    def _folded(self, works: Sequence[Work], troubles: dict[str, CdcError]) -> list[tuple[Work, list[FoldResult]]]:
        """What steps have made; again if another process that carries out the same ones, and ends first, removes what was staged."""
        left = _FOLDS
        while True:
            own: dict[str, CdcError] = {}  # what befell an attempt that is repeated counts no more
            try:
                made = folded(self._jobs, works, own)
            except LakeConflictError as error:
                self._ledger.require_writer()
                if left := left - 1:
                    continue
                made, own = [], {work.table.topic: error for work in works}
            troubles |= own
            return made

    def _finished(self, work: Work, results: Sequence[FoldResult]) -> tuple[MirrorState, StepReport]:
        planned = work.planned
        state = self._state(planned.topic).behind(planned)
        marks = marks_of(self._tables, planned.topic)
        state = replace(
            state, gaps=work.table.target.gaps_since(state.since), parted=state.parted or bool(results), marks=marks
        )
        files = [file for result in results for file in (*result.leaves, *result.versions)]
        report = StepReport(
            planned.topic,
            planned.step,
            planned.until,
            sum(result.events for result in results),
            sum(len(result.leaves) for result in results),
            sum(result.ended for result in results),
            sum(file.size for file in files),
            marks[0][2],
            sum(bool(result.leaves or result.removed) for result in results),
            max((result.newest for result in results if result.newest), default=None),
        )
        return state, report


def _until_read(table: MirroredTable) -> Target:
    """What a mirror that is rebuilt may know first: if later events may not name their rows, or omit values that are not known, it
    is right at least where the table was read."""
    shape, target = table.description.shape, table.target
    if not target.right_from or (shape.keyed and (shape.own_key or not shape.large)):
        return target
    return replace(target, position=min(target.position, max(target.right_from, target.rows_from)))


def _require_names(location: Location, topic: str) -> None:
    """Check that a file system can hold the folders of a mirror, whose names are longer than its topic's.

    Raises:
        ConfigurationError: it cannot.
    """
    folders = current_directory(topic), history_directory(topic), staging_of(topic)
    most = _LONGEST_NAME - max(len(folder.encode()) for folder in folders) + len(topic.encode())
    if location.on_disk and len(topic.encode()) > most:
        raise ConfigurationError(
            "topic name",
            topic,
            f"up to {most} bytes for a table with a mirror, because the names of its folders are longer, and a file system "
            f"has names of {_LONGEST_NAME} bytes",
            "choose a shorter topic.prefix, or leave the table out by mirror.table.include.list",
        )
