"""Topic tables: their generations, and each window committed exactly once.

*Why a commit is exactly once.* Each commit carries the application transaction `(capture, window_id)`. Before a commit
the code checks whether the table has reached that window already; delta-rs refuses a commit whose application
transaction was changed by another writer since the handle was loaded. So of two writers of one window, one commits and
the other finds the window committed. Both would have written the same rows, because a window's bounds are fixed in the
manifest. Whoever finds a window committed instead of committing it makes the same mark: the other writer may be dead, or
be the same one, whose commit's answer was lost.

*Who commits.* Each append is handed to a sink, an IO manager in Dagster, which calls back for the commit; what it may do, and why
that breaks nothing, is in the head of `sink`.

*Leaving a table out.* A window that is repeated may go without a table: it was altered, or its database is away. A writer
that was believed dead may still hold the files of its own attempt. So the number is taken before the table is left behind:
by a commit without files, with a second application transaction that tells it from data. If the number is taken already, the
table was committed. Nothing is committed under a number that was left out: later repeats leave the table behind, too.

*What is expected of a table* survives its handle. A handle is dropped after upkeep and after errors, and something may be lost just then. So the next
mark continues from the former one, which a run takes from its record when it begins.

*Files of a lost or repeated attempt* are never deleted here: after an error it is unknown whether the commit succeeded,
and deleting committed files would lose data. Files without a commit are not part of any version; `upkeep.vacuum`
removes them.

*Generations.* `topic` is the first table of a topic, `topic@2` the next. A window may write to two of them (if a
hand-over to an incompatible structure lies inside it); each has its own application transaction, so each is repeated
independently.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Self

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from cdc_assets.config.settings import CaptureConfig, LakeSettings
from cdc_assets.errors import FencedError, LakeConflictError, LakeError
from cdc_assets.lake.commits import is_newest
from cdc_assets.lake.evolution import is_compatible
from cdc_assets.lake.expected import expected_rows, settled
from cdc_assets.lake.files import STATISTICS, DataFile
from cdc_assets.lake.location import STORE_ERRORS, Location
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.owners import OWNER, require_own
from cdc_assets.lake.presence import WrittenFile, require_files
from cdc_assets.lake.sink import DIRECT, Append, Commit, Sink, hand_over
from cdc_assets.lake.tables import COMMIT_ATTEMPTS, STATISTICS_PROPERTY, DeltaTables, arrow_schema, unreadable

_UNKNOWN = -1
"""Version of a mark behind which anything may have been committed."""


class TopicTables(DeltaTables):
    """The topic tables of a capture.

    Args:
        capture: application id of all commits.
        settings: retention of the log; the defaults of `LakeSettings` if None.
        sink: what each append is handed to.
        others: sinks of single directories.
    """

    def __init__(
        self,
        location: Location,
        capture: str,
        settings: LakeSettings | None = None,
        sink: Sink = DIRECT,
        others: Mapping[str, Sink] = MappingProxyType({}),
    ) -> None:
        super().__init__(location, capture, settings)
        self._sink, self._others = sink, others
        self._held: dict[str, Mark] = {}
        """Marks of tables with commits."""
        self._marks: dict[str, Mark] = {}
        self._own: set[str] = set()
        """Tables of which it is known that no other capture writes them."""
        self._checked: dict[str, int] = {}
        self._seen: frozenset[tuple[str, str]] = frozenset()
        """Files that were checked last; others are checked when they are committed."""
        self.guard: Callable[[], None] = _nothing
        """Called before each commit; raises FencedError if the manifest that was claimed has moved."""

    @classmethod
    def of(cls, config: CaptureConfig, sink: Sink = DIRECT, others: Mapping[str, Sink] = MappingProxyType({})) -> Self:
        """The topic tables of a capture.

        Their application id is the topic prefix, as in their names, so it stays when the capture is renamed.
        """
        return cls(Location.of(config.lake), config.events.topic_prefix, config.lake, sink, others)

    def properties(self, schema: pa.Schema) -> dict[str, str]:
        """Delta's properties that a table of these columns has: files have only the bounds of positions."""
        narrow = {STATISTICS_PROPERTY: STATISTICS} if STATISTICS in schema.names else {}
        return super().properties(schema) | narrow

    def forget(self, directory: str) -> None:
        """Drop a handle. What is expected of the table stays, and is counted from its log the next time."""
        super().forget(directory)
        with self._lock:
            if directory in self._held:
                self._held[directory] = replace(self._held[directory], version=_UNKNOWN)

    def generations(self, topic: str) -> list[str]:
        """Directories of a topic, oldest first; empty if it has no table."""
        return [directory for directory, _ in self._generations(topic)]

    def _generations(self, topic: str) -> list[tuple[str, DeltaTable]]:
        found: list[tuple[str, DeltaTable]] = []
        while (handle := self.open(directory := generation(topic, len(found) + 1))) is not None:
            found.append((directory, handle))
        return found

    def directory_for(self, topic: str, schema: pa.Schema) -> str:
        """Directory for events of this structure: the newest generation that they fit, otherwise a new one.

        When a window is repeated, a structure keeps its generation, even if the window has opened a newer one.
        """
        return self._place(topic, schema)[0]

    def prepare(self, topic: str, schema: pa.Schema) -> str:
        """As `directory_for`; the table is created, or extended by the fields that it lacks.

        Raises:
            LakeError: the store refuses, or another capture writes the table.
        """
        directory, handle = self._place(topic, schema)
        if handle is not None:
            self._require_own(directory, handle)
        self._require_own(directory, self._adapted(directory, handle, schema, {OWNER: self.capture}))
        return directory

    def _require_own(self, directory: str, handle: DeltaTable) -> None:
        if directory not in self._own:
            require_own(self, directory, handle)
            self._own.add(directory)

    def _place(self, topic: str, schema: pa.Schema) -> tuple[str, DeltaTable | None]:
        """The generation that events of this structure fit, or the next one, which is not there."""
        existing = self._generations(topic)
        for directory, handle in reversed(existing):
            if is_compatible(arrow_schema(handle), schema):
                return directory, handle
        return generation(topic, len(existing) + 1), None

    def row_count(self, topic: str) -> int:
        """Number of rows of a topic in all its generations, from the Delta log only."""
        return sum(_row_count(handle) for _, handle in self._generations(topic))

    def require_files(self, files: Mapping[str, Sequence[WrittenFile]]) -> None:
        """Check that the files written by tasks exist, before they are recorded or committed.

        Args:
            files: by directory of the topic table's generation.

        Raises:
            FencedError: the manifest that was claimed has moved (`guard`).
            LakeError: a file is missing or truncated, so none of them may be committed.
        """
        self.guard()
        require_files(self.location, files)
        self._seen = frozenset((directory, file.path) for directory, written in files.items() for file in written)

    def commit(
        self,
        directory: str,
        schema: pa.Schema | None,
        files: Sequence[DataFile],
        window_id: int,
        metadata: Mapping[str, str],
        *,
        timed: bool = False,
    ) -> bool:
        """Have the sink commit files, once for each window.

        Args:
            directory: directory of the topic table's generation.
            schema: schema of the events, to which the table is adapted first; None if `ensure` was called.
            files: files written below `directory`.
            window_id: version of the application transaction.
            metadata: commit metadata, such as from_lsn and to_lsn.
            timed: whether `window_id` is a time in place of a window's number.

        Returns:
            False if this window was committed already.

        Raises:
            SinkError: the sink raised (`sink.hand_over`).
            LakeConflictError: other writers committed first `COMMIT_ATTEMPTS` times.
            FencedError: another writer has left this window out here.
            LakeError: the store refuses, or a file is missing (`presence`).
        """

        def opened() -> DeltaTable:
            handle = self.open(directory) if schema is None else self.ensure(directory, schema)
            if handle is None:
                raise LakeError(
                    f"The Delta table {directory} no longer exists. Next: restore it; positions cannot be reconstructed otherwise."
                )
            return handle

        def make(more: Mapping[str, str]) -> bool:
            if self._once(directory, window_id, opened, files, {**more, **metadata}, timed=timed):
                return True
            if self.left_out(directory, window_id):
                raise FencedError(
                    f"{directory}: another run has taken over and left the table out of window {window_id}. "
                    "Next: nothing, if a newer run is active; it reads the table's changes in a later window."
                )
            return False

        if not files:
            return False

        def columns() -> pa.Schema:
            return arrow_schema(opened()) if schema is None else schema

        append = Append(self.capture, directory, window_id, tuple(files), dict(metadata), columns, Commit(make))
        return hand_over(self._others.get(directory, self._sink), append)

    def leave_out(self, directory: str, window_id: int) -> bool:
        """Take a window's number in a table without data, so that no writer that was believed dead can commit it any more.

        Returns:
            False if the window is committed there: then it is not left out.

        Raises:
            LakeConflictError, LakeError: as for `commit`.
        """

        def opened() -> DeltaTable | None:
            return self.open(directory)

        left_out = {"window_id": str(window_id), "left_out": "true"}
        return self._once(directory, window_id, opened, (), left_out) or not self.committed(directory, window_id)

    def committed(self, directory: str, window_id: int) -> bool:
        """Whether a table has a window. If another writer committed it, or its commit's answer was lost, the table's mark is
        made now, as after a commit.

        Raises:
            LakeError: the table cannot be read.
        """
        handle = self.open(directory)
        if handle is None or not self._is_taken(handle, directory, window_id):
            return False
        return not self.left_out(directory, window_id)

    def left_out(self, directory: str, window_id: int) -> bool:
        """Whether a window was left out of a table (`leave_out`)."""
        handle = self.open(directory)
        return handle is not None and self.transaction(handle, directory, self._left_out) == window_id

    @property
    def _left_out(self) -> str:
        """Application id under which the newest number that was left out is kept."""
        return f"{self.capture} left out"

    def _once(
        self,
        directory: str,
        window_id: int,
        opened: Callable[[], DeltaTable | None],
        files: Sequence[DataFile],
        metadata: Mapping[str, str],
        *,
        timed: bool = False,
    ) -> bool:
        """Write a commit under a number, unless it is taken, or there is no table; whether it was written."""
        for attempt in range(COMMIT_ATTEMPTS):
            handle = opened()
            if handle is None or self._is_taken(handle, directory, window_id):
                return False
            if new := [file for file in files if (directory, file.path) not in self._seen]:
                require_files(self.location, {directory: new})
            try:
                mark = replace(self._behind(handle, directory, files, window_id), timed=timed)
                self.guard()
                also = () if files else (self._left_out,)
                self.append_files(handle, files, window_id, metadata, also)
            except CommitFailedError as error:
                self.forget(directory)
                if attempt == COMMIT_ATTEMPTS - 1 and is_newest(self.location, directory, handle.version()):
                    raise unreadable(self.location.uri(directory), error) from error  # nobody was first
                time.sleep(0.05 * attempt)
                continue
            except STORE_ERRORS as error:
                self.forget(directory)
                raise unreadable(self.location.uri(directory), error) from error
            self._hold(directory, mark)
            self.trim(directory, mark.version)
            return True
        if (handle := opened()) is None or self._is_taken(handle, directory, window_id):
            return False
        raise LakeConflictError(
            f"{directory}: another writer committed first {COMMIT_ATTEMPTS} times in a row. "
            "Next: the window is repeated; stop other writers of this table if it happens again."
        )

    def _is_taken(self, handle: DeltaTable, directory: str, window_id: int) -> bool:
        """Whether a table has reached a number; then its mark is made, unless it was made by this process."""
        reached = self.transaction(handle, directory)
        if reached is None or reached < window_id:
            return False
        held = self._held.get(directory)
        if held is None or held.window < reached:
            self._hold(directory, self._present(reached, handle, directory, held))
        return True

    def _hold(self, directory: str, mark: Mark) -> None:
        with self._lock:
            self._held[directory] = self._marks[directory] = mark

    def expect(self, directory: str, mark: Mark | None) -> None:
        """Have the next mark of a table continue from one that is recorded, so that rows which are lost meanwhile are missed; or from
        nothing, where it is recorded that there is none."""
        with self._lock:
            if mark is None:
                self._held.pop(directory, None)
                self._checked.pop(directory, None)
            else:
                self._held[directory] = mark

    def expect_recorded(self, marks: Mapping[str, Mark]) -> None:
        """Have the next marks of all tables continue from those that are recorded, and from none that an earlier run has left."""
        for directory in sorted({*self._held, *marks}):
            self.expect(directory, marks.get(directory))

    def _behind(self, handle: DeltaTable, directory: str, files: Sequence[DataFile], window_id: int) -> Mark:
        """The mark of a table after a commit; if another writer commits in between, its version is later.

        That a version is the one of the commit before does not say that its file is: a log may have lost it, and have another
        program's in its place. So commits are counted only once the log was read, and the newest of these once a later one was.
        """
        held, version = self._held.get(directory), handle.version()
        if version == 0:  # the table was created just now
            self._checked.setdefault(directory, 0)
        checked = self.checked(directory)
        if held is not None and held.version == version:
            rows, counted = held.rows, max(held.counted, min(checked, version) - 1)
        else:
            rows, counted = self._counted(handle, directory, held), version
        return Mark(window_id, version + 1, rows + sum(file.rows for file in files), checked=checked, counted=counted)

    def _present(self, window_id: int, handle: DeltaTable, directory: str, held: Mark | None) -> Mark:
        """The mark of a table that another writer has committed to."""
        version = handle.version()
        return Mark(window_id, version, self._counted(handle, directory, held), counted=version)

    def _counted(self, handle: DeltaTable, directory: str, held: Mark | None) -> int:
        """Number of rows of a table to which others may have committed; what was lost meanwhile is counted, too."""
        rows = _row_count(handle)
        return rows if held is None else max(rows, expected_rows(self, directory, held, handle.version()).rows)

    def count_rows(self, directory: str, read_to: int) -> None:
        """Count what a table must have now, unless its log was counted up to there; the next mark continues from it, and it is
        recorded with the next marks. So no later mark needs what the log may have lost by then.

        Args:
            read_to: version up to which its log is known.

        Raises:
            LakeError: the table cannot be read.
        """
        held = self._held.get(directory)
        if held is None or (held.version == read_to and held.counted >= read_to - 1):
            return
        if (now := settled(self, directory, held)) is not held:
            self._hold(directory, now)

    def recounted(self, directory: str, mark: Mark) -> Mark:
        """The mark with the rows that the table has now, as its log says and no handle remembers."""
        self.forget(directory)
        handle = self.open(directory)
        if handle is None:
            return replace(mark, rows=0)
        return replace(mark, rows=_row_count(handle), counted=handle.version())

    def note_checked(self, directory: str, version: int) -> None:
        """Have the next mark of a table say up to which version its log was read for commits of other programs."""
        self._checked[directory] = version

    def checked(self, directory: str) -> int:
        """Version up to which a table's log was read by this run (`note_checked`); -1 if it was not."""
        return self._checked.get(directory, -1)

    def fresh_marks(self) -> dict[str, Mark]:
        """Marks of tables with commits that are not recorded in the manifest yet."""
        with self._lock:
            return dict(self._marks)

    def forget_marks(self, recorded: Mapping[str, Mark]) -> None:
        """Drop these marks, which are recorded now."""
        with self._lock:
            self._marks = {name: mark for name, mark in self._marks.items() if recorded.get(name) != mark}


def _nothing() -> None:
    pass


def generation(topic: str, number: int) -> str:
    """Directory of a topic's n-th generation, from 1."""
    return topic if number == 1 else f"{topic}@{number}"


def _row_count(handle: DeltaTable) -> int:
    return sum(count or 0 for count in pa.table(handle.get_add_actions())["num_records"].to_pylist())
