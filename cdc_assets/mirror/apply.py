"""Brings mirrors to the LSN that their topics have reached, step by step.

| after | state | a crash here |
|---|---|---|
| the ledger's row `planned` | which events are taken is fixed | the next run repeats the step |
| the tasks | files that nobody names | the same; the files are removed by vacuum |
| the commit of `history` | versions ended that `current` still has | the step is repeated from the same rows and events, so with the same versions; `history` has reached it and is skipped |
| the commit of `current` | the step is done | the next run only records it |
| the ledger's row `complete` | the LSN is published | |

*Why exactly once.* A step reads the rows that the step before has left and events that its plan has fixed, neither of
which changes, so every attempt makes the same rows and the same versions. `history` is first, because what ended can
only be told from the rows before. Two writers cannot both act: the ledger fences, and until one of them tries to write
to it, it can only repeat the same step, which each table takes once.

All tables that have something new share the two jobs of a turn (`tasks`) and the two rows of the ledger.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain

import pyarrow as pa

from cdc_assets.core.ports import Clock, TaskRunner
from cdc_assets.core.steps import step as reach
from cdc_assets.errors import CdcError, LakeConflictError, LakeError
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.retained import retained
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror.columns import history_schema, is_widened
from cdc_assets.mirror.delta import MirrorTables, current_directory, history_directory
from cdc_assets.mirror.describe import Description
from cdc_assets.mirror.events import EventFile, TopicReader
from cdc_assets.mirror.fold import Void
from cdc_assets.mirror.keys import bound_bytes
from cdc_assets.mirror.leaves import LEAF_BYTES, Leaf, NewFile, groups
from cdc_assets.mirror.ledger import MirrorLedger, MirrorState, PlannedStep
from cdc_assets.mirror.shape import TO_LSN
from cdc_assets.mirror.staged import PartTask, Piece, part, stage
from cdc_assets.mirror.steps import Target, files_of, next_step, range_of, require_events
from cdc_assets.mirror.tasks import ConvertTask, FoldResult, FoldTask, SampleTask, convert, fold_leaf, sample

log = logging.getLogger(__name__)

_SAMPLED_FILES = 32
_PART_ROWS = 500_000
"""Rows of topic files that a task of the first job reads, and events of a new leaf: its task holds them all."""
_LEAST_PART_ROWS = 100_000
"""Rows that are worth a task of their own."""


@dataclass(frozen=True)
class MirroredTable:
    """A table whose mirror may have something new.

    Args:
        files: of its topic.
    """

    topic: str
    description: Description
    target: Target
    files: tuple[EventFile, ...]


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step of one mirror has done.

    Args:
        lsn: commit LSN up to which the mirror is right now.
        events: events that were folded.
        rewritten: files of `current` that were written.
        ended: versions that went to `history`.
        size: bytes that were written.
        rows: rows of `current`.
        leaves: leaves that were folded anew.
        newest: when the newest of the events was committed, if it is known.
    """

    topic: str
    step: int
    lsn: str
    events: int = 0
    rewritten: int = 0
    ended: int = 0
    size: int = 0
    rows: int = 0
    leaves: int = 0
    newest: datetime | None = None

    def after(self, earlier: "StepReport") -> "StepReport":
        """This step and an earlier one of the same mirror, as one."""
        return replace(
            self,
            events=earlier.events + self.events,
            rewritten=earlier.rewritten + self.rewritten,
            ended=earlier.ended + self.ended,
            size=earlier.size + self.size,
            leaves=earlier.leaves + self.leaves,
            newest=max((at for at in (earlier.newest, self.newest) if at), default=None),
        )


OnStep = Callable[[StepReport], None]


@dataclass
class _Work:
    """A step of one table while it is carried out."""

    table: MirroredTable
    planned: PlannedStep
    leaves: list[Leaf]
    retyped: bool = False
    history: pa.Schema | None = None
    pieces: tuple[Piece, ...] = ()
    loose: frozenset[str] = frozenset()
    """Columns that the source declares NOT NULL and that hold NULLs: of rows older than the column, or than its type."""
    strict: frozenset[str] = frozenset()
    """Columns that are NOT NULL in the table that is committed to."""

    @property
    def current(self) -> pa.Schema:
        """Columns of `current` after the step."""
        return pa.schema(
            [
                field.with_nullable(field.nullable or field.name in self.loose)
                for field in self.table.description.shape.current
            ]
        )


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
        runner: TaskRunner,
        clock: Clock,
        on_step: OnStep,
        unavailable: str,
    ) -> None:
        self._topics, self._tables, self._ledger = topics, tables, ledger
        self._runner, self._clock, self._on_step, self._unavailable = runner, clock, on_step, unavailable

    def catch_up(
        self, tables: Sequence[MirroredTable], *, anew: bool = False, should_end: Callable[[], bool] = lambda: False
    ) -> Mapping[str, CdcError]:
        """Apply what is new, step after step.

        Args:
            anew: whether the mirrors are made anew from their topics.
            should_end: asked between two turns.

        Returns:
            Topics whose mirror could not follow, with the reason; the others did.

        Raises:
            FencedError: another writer has taken over.
            LakeError: the ledger cannot be written.
        """
        self._ledger.claim()
        rebuilt = {table.topic for table in tables} if anew else set()
        troubles: dict[str, CdcError] = {}
        left = list(tables)
        while left and not should_end():
            works = [work for table in left if (work := self._planned(table, rebuilt, troubles)) is not None]
            new = [work for work in works if self._state(work.table.topic).pending != work.planned]
            if new:
                works = self._recorded(works, new, troubles)
            done = self._carry_out(works, troubles) if works else {}
            idle = {table.topic: state for table in left if (state := self._moved(table, works)) is not None}
            if done or idle:
                self._ledger.complete(
                    self._clock.now(), {**idle, **{topic: state for topic, (state, _) in done.items()}}
                )
            for _, report in done.values():
                self._on_step(report)
            rebuilt -= done.keys()
            left = [table for table in left if table.topic in done]
        return troubles

    def _recorded(self, works: list[_Work], new: Sequence[_Work], troubles: dict[str, CdcError]) -> list[_Work]:
        """Record new steps; those that are to be carried out.

        Who drops events tells it, and then looks whether a mirror is being made anew; here it is the other way round. So
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
                f"Events of {topic} were dropped at the very moment at which its mirror was to be made anew; the mirror is as it "
                "was. Next: ask for it again."
            )
        return [work for work in works if work.table.topic not in given_up]

    def _state(self, topic: str) -> MirrorState:
        return self._ledger.states.get(topic, MirrorState())

    def _planned(self, table: MirroredTable, rebuilt: set[str], troubles: dict[str, CdcError]) -> _Work | None:
        """The step in flight of a table, or its next one."""
        state, key = self._state(table.topic), table.description.shape.key_text
        try:
            planned = state.pending
            if planned is None or table.topic in rebuilt or planned.key != key:
                anew = table.topic in rebuilt or self._is_lost(table, state)
                planned = next_step(table.topic, state, table.target, table.files, key, anew=anew)
            if planned is None:
                return None
            is_idle = not files_of(planned, table.files) and not planned.takes(state.absences)
            if is_idle and not planned.whole and not planned.void:
                return None
            require_events(planned, table.target)
            return self._work(table, planned)
        except CdcError as error:
            troubles[table.topic] = error
            log.error("The mirror of %s cannot follow: %s", table.topic, error)
            return None

    def _is_lost(self, table: MirroredTable, state: MirrorState) -> bool:
        """Whether the tables of a mirror were removed or rewritten by another program since."""
        directory = current_directory(table.topic)
        return state.step > 0 and (self._tables.schema(directory) is None or self._tables.leaves(directory) is None)

    def _work(self, table: MirroredTable, planned: PlannedStep) -> _Work:
        topic = table.topic
        current = self._tables.schema(current_directory(topic))
        shape = table.description.shape
        if planned.whole:
            shape = shape.of_this_life()
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
        declared = shape.current if current is None or planned.whole or retyped else current
        strict = frozenset(field.name for field in declared if not field.nullable)
        return _Work(table, planned, leaves, retyped, wanted, strict=strict)

    def _moved(self, table: MirroredTable, works: Sequence[_Work]) -> MirrorState | None:
        """The state of a table without new events whose LSN, or whose gaps, are other ones now."""
        state, target = self._state(table.topic), table.target
        if state.step == 0 or any(work.table.topic == table.topic for work in works) or state.pending is not None:
            return None
        lsn = max(state.lsn, target.position)
        moved = replace(state, lsn=lsn, window=max(state.window, target.window), gaps=target.open_gaps)
        return moved if (moved.lsn, moved.gaps) != (state.lsn, state.gaps) else None

    # ---- one turn ----------------------------------------------------------------------------------------------

    def _carry_out(
        self, works: Sequence[_Work], troubles: dict[str, CdcError]
    ) -> dict[str, tuple[MirrorState, StepReport]]:
        """Read, fold and commit the planned steps of some tables."""
        open_ = [
            work for work in works if self._tables.reached(current_directory(work.table.topic)) < work.planned.step
        ]
        done = {work.table.topic: self._finished(work, ()) for work in works if work not in open_}
        if not open_:
            return done
        try:
            self._part(open_)
            tasks = [(work, self._fold_tasks(work)) for work in open_]
            results = iter(self._runner.run(fold_leaf, [task for _, found in tasks for task in found]))
            made = [(work, [next(results) for _ in found]) for work, found in tasks]
            made = [(work, self._loosened(work, found)) for work, found in made]
            reach("mirror-folded")
            for work, found in made:
                try:
                    self._commit(work, found)
                    done[work.table.topic] = self._finished(work, found)
                except CdcError as error:
                    troubles[work.table.topic] = error
                    log.error("The mirror of %s cannot be committed: %s", work.table.topic, error)
        finally:
            for work in open_:
                with contextlib.suppress(LakeError):
                    Folder(self._tables.location, _staging(work.table.topic)).drop()
        return done

    def _part(self, works: Sequence[_Work]) -> None:
        """Stage the events of steps by leaves, in one job for all tables."""
        for work in works:
            if not work.leaves:
                work.leaves = self._first_leaves(work)
        tasks = [(work, self._part_tasks(work)) for work in works]
        results = iter(self._runner.run(part, [task for _, found in tasks for task in found]))
        for work, found in tasks:
            work.pieces = tuple(piece for _ in found for piece in next(results))
            if absences := work.planned.takes(self._state(work.table.topic).absences):
                events = [absence.events(work.table.description.shape) for absence in absences]
                work.pieces += tuple(stage(self._part_task(work, ()), events))

    def _reader(self, work: _Work) -> TopicReader:
        about = work.table.description
        return TopicReader(self._tables.location, about.shape, about.generations, self._unavailable)

    def _part_tasks(self, work: _Work) -> list[PartTask]:
        files = files_of(work.planned, work.table.files)
        even = -(-sum(file.rows for file in files) // self._runner.parallelism)
        shares = _shares(files, max(_LEAST_PART_ROWS, min(even, _PART_ROWS)))
        return [self._part_task(work, share) for share in shares]

    def _part_task(self, work: _Work, share: tuple[EventFile, ...]) -> PartTask:
        bounds = tuple(leaf.bound for leaf in work.leaves)
        return PartTask(self._reader(work), share, range_of(work.planned), bounds, _staging(work.table.topic))

    def _first_leaves(self, work: _Work) -> list[Leaf]:
        """Leaves of a mirror that has no rows: as many as its events will need."""
        files = files_of(work.planned, work.table.files)
        sizes = dict(_sizes(self._topics, work.table.description))
        size = sum(sizes.get((file.generation, file.path), 0) for file in files)
        count = max(size // (2 * LEAF_BYTES), sum(file.rows for file in files) // _PART_ROWS)
        if count < 2:
            return [Leaf((), b"")]
        chosen = files[:: max(1, len(files) // _SAMPLED_FILES)]
        tasks = [SampleTask(self._reader(work), (file,), range_of(work.planned)) for file in chosen]
        keys = sorted(
            {bound_bytes(key) for found in self._runner.run(sample, tasks) for key in found if key is not None}
        )
        bounds = sorted({keys[len(keys) * at // count] for at in range(1, count)} if keys else set())
        return [Leaf((), bound) for bound in [b"", *(bound for bound in bounds if bound)]]

    def _fold_tasks(self, work: _Work) -> list[FoldTask]:
        planned, topic = work.planned, work.table.topic
        void = Void(planned.since, planned.until, None) if planned.void else None
        everything = range(len(work.leaves)) if void is not None or work.retyped else ()
        touched = sorted({piece.leaf for piece in work.pieces} | set(everything))
        one = _is_one(work.table)
        chosen = [(_joined(work.leaves), list(range(len(work.leaves))))] if one else groups(work.leaves, touched)
        return [
            FoldTask(
                self._tables.location,
                work.table.description.shape,
                leaf,
                current_directory(topic),
                history_directory(topic),
                _staging(topic),
                tuple(piece for piece in work.pieces if piece.leaf in set(members)),
                void,
                planned.step,
                work.history or work.table.description.shape.history,
                rewrite=work.retyped,
            )
            for leaf, members in chosen
        ]

    def _loosened(self, work: _Work, results: list[FoldResult]) -> list[FoldResult]:
        """Results of a step; all leaves are folded again if columns of the table can no longer be NOT NULL."""
        work.loose = frozenset(name for result in results for name in result.nulls) & work.strict
        if not work.loose or work.planned.whole or work.retyped or not work.leaves[0].paths:
            return results
        work.retyped = True
        return self._runner.run(fold_leaf, self._fold_tasks(work))

    def _commit(self, work: _Work, results: Sequence[FoldResult]) -> None:
        planned, topic, shape = work.planned, work.table.topic, work.table.description.shape
        about = {"step": str(planned.step), "from_lsn": planned.after, "to_lsn": planned.until}
        versions = [file for result in results for file in result.versions]
        known = self._tables.schema(history_directory(topic))
        retyped = known is not None and work.history is not None and not is_widened(known, work.history)
        converted = self._converted(work) if retyped and not planned.whole else []
        self._tables.commit(
            history_directory(topic),
            work.history or shape.history,
            planned.step,
            [*converted, *versions],
            [],
            about,
            bounded=[TO_LSN],
            whole=planned.whole or retyped,
        )
        reach("mirror-history-committed")
        self._tables.commit(
            current_directory(topic),
            work.current,
            planned.step,
            [file for result in results for file in result.leaves],
            [path for result in results for path in result.removed],
            about,
            bounded=shape.bounded,
            whole=planned.whole or work.retyped,
        )
        reach("mirror-committed")

    def _converted(self, work: _Work) -> list[NewFile]:
        """Files of `history` written again, because columns have other types now; none if that is committed already."""
        directory = history_directory(work.table.topic)
        if work.history is None or self._tables.reached(directory) >= work.planned.step:
            return []
        tasks = [
            ConvertTask(self._tables.location, directory, path, work.history)
            for path, _, _ in self._tables.files(directory)
        ]
        return self._runner.run(convert, tasks)

    def _finished(self, work: _Work, results: Sequence[FoldResult]) -> tuple[MirrorState, StepReport]:
        planned = work.planned
        state = replace(self._state(planned.topic).behind(planned), gaps=work.table.target.open_gaps)
        files = [file for result in results for file in (*result.leaves, *result.versions)]
        rows = sum(count for _, _, count in self._tables.files(current_directory(planned.topic)))
        report = StepReport(
            planned.topic,
            planned.step,
            planned.until,
            sum(result.events for result in results),
            sum(len(result.leaves) for result in results),
            sum(result.ended for result in results),
            sum(file.size for file in files),
            rows,
            sum(bool(result.leaves or result.removed) for result in results),
            max((result.newest for result in results if result.newest), default=None),
        )
        return state, report


def _is_one(table: MirroredTable) -> bool:
    """Whether a mirror is folded as one leaf: rows take omitted values of rows that may lie in any other."""
    shape = table.description.shape
    return not shape.keyed and bool(shape.large)


def _joined(leaves: Sequence[Leaf]) -> Leaf:
    paths = tuple(path for leaf in leaves for path in leaf.paths)
    return Leaf(paths, b"", sum(leaf.size for leaf in leaves), sum(leaf.rows for leaf in leaves))


def _staging(topic: str) -> str:
    return f"{topic}.__mirroring"


def _shares(files: Sequence[EventFile], rows: int) -> list[tuple[EventFile, ...]]:
    """Consecutive files, or parts of large ones, with about so many rows each."""
    shares: list[list[EventFile]] = [[]]
    for one in chain.from_iterable(_parts(file, -(-file.rows // rows)) for file in files):
        if shares[-1] and sum(file.rows for file in shares[-1]) + one.rows > rows:
            shares.append([])
        shares[-1].append(one)
    return [tuple(share) for share in shares if share]


def _parts(file: EventFile, count: int) -> list[EventFile]:
    if count < 2:
        return [file]
    return [replace(file, rows=file.rows // count, share=(number, count)) for number in range(count)]


def _sizes(topics: TopicTables, description: Description) -> Mapping[tuple[int, str], int]:
    """Bytes of a topic's files by generation and path."""
    sizes = {}
    for number, generation in enumerate(description.generations):
        handle = topics.open(generation.directory)
        if handle is not None:
            found = pa.table(handle.get_add_actions())
            for path, size in zip(found["path"].to_pylist(), found["size_bytes"].to_pylist(), strict=True):
                sizes[number, path] = size
    return sizes
