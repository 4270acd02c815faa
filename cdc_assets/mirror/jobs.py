"""The two jobs of a step: which tasks there are, given what the topic and the mirror hold.

The first stages the events that steps take by leaves; the second folds them into the leaves that they are about (`tasks`). All tables that
have something new share both. Nothing is committed here, and what tasks of a job that fails have written is removed: each repetition would leave
more, and a full disk stay full, for which the capture waits, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from cdc_assets.core.jobs import Job, named
from cdc_assets.core.ports import TaskRunner
from cdc_assets.lake.events import EventFile, TopicReader
from cdc_assets.lake.files import remove_named
from cdc_assets.lake.keys import bound_bytes
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror.delta import MirrorTables, current_directory, history_directory
from cdc_assets.mirror.describe import Description
from cdc_assets.mirror.fold import Void
from cdc_assets.mirror.leaves import LEAF_BYTES, Leaf, NewFile, groups, new_attempt
from cdc_assets.mirror.staged import PartTask, part, stage
from cdc_assets.mirror.steps import files_of, range_of
from cdc_assets.mirror.tasks import ConvertTask, FoldResult, FoldTask, SampleTask, convert, fold_leaf, sample
from cdc_assets.mirror.work import MirroredTable, Work

_SAMPLED_FILES = 32
_PART_ROWS = 500_000
"""Rows of topic files that a task of the first job reads, and events of a new leaf: its task holds them all."""
_MIN_PART_ROWS = 100_000
"""Rows that are worth a task of their own."""


class Jobs:
    """Runs the tasks of steps.

    Args:
        topics: events of the capture's tables.
        tables: the mirrors' tables.
    """

    def __init__(self, topics: TopicTables, tables: MirrorTables, runner: TaskRunner) -> None:
        self._topics, self._tables, self._runner = topics, tables, runner

    def fold(self, works: Sequence[Work]) -> list[tuple[Work, list[FoldResult]]]:
        """Read and fold what steps take.

        Raises:
            LakeError: the lake cannot be read or written.
        """
        self._runner.get_ready()
        self._part(works)
        attempt = new_attempt()
        tasks = [(work, self._fold_tasks(work, attempt)) for work in works]
        flat = [task for _, found in tasks for task in found]
        try:
            results = iter(self._runner.run(fold_leaf, flat, _job("folded", works, _rows_of(flat))))
            made = [(work, [next(results) for _ in found]) for work, found in tasks]
            return [(work, self._loosened(work, found, attempt)) for work, found in made]
        except Exception:
            topics = [work.table.topic for work in works]
            directories = [*map(current_directory, topics), *map(history_directory, topics)]
            remove_named(self._tables.location, directories, attempt)
            raise

    def _part(self, works: Sequence[Work]) -> None:
        """Stage the events of steps by leaves, in one job for all tables."""
        for work in works:
            if not work.leaves:
                work.leaves = self._first_leaves(work)
        tasks = [(work, self._part_tasks(work)) for work in works]
        flat = [task for _, found in tasks for task in found]
        rows = sum(file.rows for task in flat for file in task.files)
        results = iter(self._runner.run(part, flat, _job("staged", works, rows)))
        for work, found in tasks:
            work.pieces = tuple(piece for _ in found for piece in next(results))
            if work.absences:
                events = [absence.events(work.folded) for absence in work.absences]
                work.pieces += tuple(stage(self._part_task(work, ()), events))

    def _reader(self, work: Work) -> TopicReader:
        generations, compares = work.table.description.generations, bool(work.planned.doubt) and not work.folded.own_key
        return TopicReader(self._tables.location, work.folded, generations, removed=compares)

    def _part_tasks(self, work: Work) -> list[PartTask]:
        files = files_of(work.planned, work.table.files)
        even = -(-sum(file.rows for file in files) // self._runner.parallelism)
        shares = _shares(files, max(_MIN_PART_ROWS, min(even, _PART_ROWS)))
        return [self._part_task(work, share) for share in shares]

    def _part_task(self, work: Work, share: tuple[EventFile, ...]) -> PartTask:
        bounds = tuple(leaf.bound for leaf in work.leaves)
        return PartTask(self._reader(work), share, range_of(work.planned), bounds, staging_of(work.table.topic))

    def _first_leaves(self, work: Work) -> list[Leaf]:
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
            {
                bound_bytes(key)
                for found in self._runner.run(sample, tasks, _job("sampled", [work]))
                for key in found
                if key is not None
            }
        )
        bounds = sorted({keys[len(keys) * at // count] for at in range(1, count)} if keys else set())
        return [Leaf((), bound) for bound in [b"", *(bound for bound in bounds if bound)]]

    def _fold_tasks(self, work: Work, attempt: str) -> list[FoldTask]:
        planned, topic = work.planned, work.table.topic
        void = Void(planned.since, planned.until, proof=planned.proof, reads=planned.reads) if planned.void else None
        lacks = planned.void or not work.begin or work.table.target.lacks_rows(planned.since)
        # what is left of a topic with keys makes its rows from another LSN on, but no reading gives their values up to there
        right = (work.table.target.right_from or "") if work.table.description.shape.keyed else planned.begin
        everything = range(len(work.leaves)) if void is not None or work.retyped else ()
        touched = sorted({piece.number for piece in work.pieces} | set(everything))
        one = _is_one(work.table)
        chosen = [(_joined(work.leaves), list(range(len(work.leaves))))] if one else groups(work.leaves, touched)
        return [
            FoldTask(
                self._tables.location,
                work.table.description.shape,
                leaf,
                current_directory(topic),
                history_directory(topic),
                staging_of(topic),
                tuple(piece for piece in work.pieces if piece.number in set(members)),
                void,
                planned.step,
                attempt,
                work.history or work.table.description.shape.history,
                rewrite=work.retyped,
                spans=planned.spans,
                retyped=work.retyped_from,
                complete_from=None if lacks else min(planned.begin, right),
                doubt=planned.doubt,
            )
            for leaf, members in chosen
        ]

    def _loosened(self, work: Work, results: list[FoldResult], attempt: str) -> list[FoldResult]:
        """Results of a step; all leaves are folded again if columns of the table can no longer be NOT NULL."""
        work.loose = frozenset(name for result in results for name in result.nulls) & work.strict
        if not work.loose or work.planned.whole or work.retyped or not work.leaves[0].paths:
            return results
        work.retyped = True
        return self._runner.run(fold_leaf, self._fold_tasks(work, attempt), _job("folded", [work]))

    def converted(self, work: Work) -> list[NewFile]:
        """Files of `history` written again, because columns have other types now; none if that is committed already."""
        directory = history_directory(work.table.topic)
        if work.history is None or self._tables.reached(directory) >= work.planned.step:
            return []
        tasks = [
            ConvertTask(self._tables.location, directory, path, work.history)
            for path, _, _ in self._tables.files(directory)
        ]
        return self._runner.run(convert, tasks, _job("converted", [work]))


def _is_one(table: MirroredTable) -> bool:
    """Whether a mirror is folded as one leaf: rows take omitted values of rows that may lie in any other."""
    shape = table.description.shape
    return not shape.keyed and bool(shape.large)


def _joined(leaves: Sequence[Leaf]) -> Leaf:
    paths = tuple(path for leaf in leaves for path in leaf.paths)
    return Leaf(paths, b"", sum(leaf.size for leaf in leaves), sum(leaf.rows for leaf in leaves))


def staging_of(topic: str) -> str:
    """Folder of a step's staged events."""
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


def _rows_of(tasks: Sequence[FoldTask]) -> int:
    """Rows that are read: events, and the leaves that they are about."""
    return sum(task.leaf.rows + sum(piece.rows for piece in task.pieces) for task in tasks)


def _job(what: str, works: Sequence[Work], rows: int | None = None) -> Job:
    """What a job of steps says of itself."""
    return Job("mirror", f"{what}: {named(work.table.topic for work in works)}", rows)
