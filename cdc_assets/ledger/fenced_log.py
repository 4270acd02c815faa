"""Rows of one Delta table with one writer at a time, numbered without gaps.

*Fencing.* Each commit carries the application transaction (capture, sequence) with a sequence that grows by one, and
the handle is never refreshed after `claim`. A writer that was believed dead and resumes finds its next sequence taken:
delta-rs refuses the commit, and `FencedError` is raised. A crash leaves either a complete commit or an unreferenced
file.

*An answer that is lost.* After a refusal, or an error that does not say whether the commit exists, the log after the
handle's version is read: if a commit names the file of this writer's row, it was made, and was refused only because the
store's client had repeated the request. If the store does not answer, that is not known, and the number is *in doubt*: the
row may even be written later, by a request that is still under way. So the files of all attempts for a number are
remembered; whichever commit takes the number, the row in it is distinguished from another writer's. A doubt ends when the number is
taken.

*Folding.* Rows that their fold replaces go in one commit that finds all of their files, or is not made (`lake.replacing`).
If another program has rewritten one of them, which changes no row, they are read again.

*Rows that are there twice.* A rewrite by another program may be planned before a fold and committed after it. It brings back rows
that the fold has replaced (delta-rs accepts it). A row is what its number says, for no two writers commit one:
so rows of one number are one row, and before the newest fold, which holds all of them, some may be missing. The next
fold removes them for good.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, pairwise
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyarrow import fs

from cdc_assets.core.steps import step
from cdc_assets.errors import (
    FencedError,
    InvariantError,
    LakeConflictError,
    LakeError,
    LakeFullError,
)
from cdc_assets.lake.commits import is_newest, place_of, read_commit
from cdc_assets.lake.files import DataFile
from cdc_assets.lake.location import STORE_ERRORS, trouble
from cdc_assets.lake.replacing import Replacement, replace_files
from cdc_assets.lake.tables import COMMIT_ATTEMPTS, DeltaTables, unreadable

_SMALL = 8192
"""Bytes of rows up to which a file is not compressed: that saves a block of a disk at most, and costs a reader, who opens dozens of them,
40 % of the processor time."""

Row = Mapping[str, Any]
"""A row by column names; `sequence` is its number."""


class FencedLog:
    """Reads and writes the rows.

    Args:
        tables: the lake's Delta tables; only the location and the capture's name are used.
        schema: schema of the rows, with a column `sequence`.
    """

    def __init__(self, tables: DeltaTables, directory: str, schema: pa.Schema) -> None:
        self.directory = directory
        self._schema = schema
        self._tables = tables.separate()
        self.identity = ""
        """Of the table that was read or claimed last, which another one in its place does not have; empty if there was none."""
        self._claimed = ""
        """Identity of the table that was claimed."""
        self._sequence: int | None = None
        self._attempts: dict[str, Row] = {}
        """Rows that may have been written under the next number, by file."""

    @property
    def next_sequence(self) -> int:
        """Number of the next row.

        Raises:
            InvariantError: the log is not claimed.
        """
        if self._sequence is None:
            raise InvariantError("The manifest must be claimed before it is written. Next: report this.")
        return self._sequence + 1

    def read(self, known: Mapping[str, Sequence[Row]] | None = None) -> dict[str, Sequence[Row]]:
        """All current rows by file.

        Args:
            known: what was read before: rows of files, which never change, or those of them that are still wanted.

        Raises:
            LakeError: the table exists but cannot be read.
        """
        handle = self._tables.separate().open(self.directory)
        self.identity = "" if handle is None else str(handle.metadata().id)
        return {} if handle is None else self._files(handle, known or {})

    def claim(self, known: Mapping[str, Sequence[Row]] | None = None) -> Sequence[Row]:
        """Prepare to append to the existing rows; the first to append becomes the single writer.

        Args:
            known: as for `read`; the newest row is always wanted.

        Returns:
            The existing rows in order, of files that are known those that are wanted.

        Raises:
            LakeError: the table cannot be created or read.
        """
        self._tables.forget(self.directory)
        self._attempts.clear()
        handle = self._tables.ensure(self.directory, self._schema)
        self.identity = self._claimed = str(handle.metadata().id)
        rows = self.in_order(self._files(handle, known or {}))
        self._sequence = rows[-1]["sequence"] if rows else 0
        return rows

    @property
    def in_doubt(self) -> bool:
        """Whether a row may have been written under `next_sequence`, because the store did not say."""
        return bool(self._attempts)

    def resolve(self) -> Row | None:
        """The row that was written under `next_sequence` by an attempt whose answer was lost; None if there is none yet.

        Raises:
            FencedError: it was written, and another writer has taken over since.
            LakeAwayError: the store does not answer.
        """
        if not self._attempts or (row := self._found()) is None:
            return None
        self._has_written(self.next_sequence)
        return row

    def append(self, row: Row) -> Row:
        """Write the row `next_sequence`.

        Returns:
            The row that has this number now: the same, or that of an earlier attempt whose answer was lost.

        Raises:
            FencedError: another writer has taken over.
            LakeAwayError: the store does not say whether it was written (`in_doubt`).
            LakeError: it cannot be written.
        """
        sequence, path = self.next_sequence, _new_name(self.next_sequence)
        self.require_place()
        with self._translated(path):
            file = self._written(path, [row], sequence)
            self._attempts[path] = row
            written = self._committed(file, row, sequence)
        if written is None:
            raise self._fenced(sequence)
        return written

    def replace(self, row: Row, keep: int) -> None:
        """Write the row `next_sequence`, and remove all but the newest of the others.

        Args:
            row: row that contains the state of the removed ones.
            keep: number of other rows to keep.

        Raises:
            FencedError: another writer has taken over.
            LakeConflictError: another program rewrites the files again and again.
            LakeError: it cannot be written.
        """
        sequence = self.next_sequence
        self.require_place()
        for attempt in range(COMMIT_ATTEMPTS):
            tables, path = self._tables.separate(), _new_name(sequence)
            with self._translated(path):
                files = self._files(tables.ensure(self.directory, self._schema), {})
                file = self._written(path, [*self.in_order(files)[-keep:], row], sequence)
                step("checkpoint-prepared")
                wanted = Replacement(list(files), [file], None, is_new=True, number=sequence)
                self._attempts[path] = row
                try:
                    landed = replace_files(tables, self.directory, wanted, self.require_writer)
                    break
                except (LakeConflictError, FencedError) as error:
                    self._remove(path)
                    if attempt == COMMIT_ATTEMPTS - 1 or isinstance(error, FencedError):
                        raise
        if not landed and self._found() is not row:
            raise self._fenced(sequence)
        self._has_written(sequence)

    def require_writer(self) -> None:
        """Check that no other writer has taken over.

        Raises:
            FencedError: one has.
            LakeError: the table cannot be read.
        """
        self.require_place()
        sequence = self.next_sequence - 1
        location, version = self._tables.location, self._tables.kept(self.directory).version()
        if is_newest(location, self.directory, version):
            return
        newest = self._tables.separate().open(self.directory)
        if newest is None or str(newest.metadata().id) != self._claimed:
            raise self._moved()
        if (newest.transaction_version(self._tables.capture) or 0) != sequence:
            raise self._fenced(sequence + 1)

    def require_place(self) -> None:
        """Check that the table that was claimed is still there, and no other in its place. Of an object
        store this is not queried: nothing is moved there.

        Raises:
            FencedError: another one is there, as after a reset of the capture.
            LakeError: none is, or that cannot be seen.
        """
        if self._tables.is_in_place(self.directory):
            return
        # not every file system numbers its folders for good, such as one that is mounted again
        place = place_of(self._tables.location, self.directory)
        now = self._tables.separate().open(self.directory)
        if now is None:
            raise LakeError(
                f"The manifest {self._tables.location.uri(self.directory)} is gone. Next: see whether the lake is mounted; if a reset of "
                "the capture is moving it, nothing."
            )
        if str(now.metadata().id) != self._claimed:
            raise self._moved()
        self._tables.take_place(self.directory, place)

    def _moved(self) -> FencedError:
        self._sequence = None
        self._attempts.clear()
        return FencedError(
            f"The manifest {self._tables.location.uri(self.directory)} is no longer the one that this run of capture "
            f"{self._tables.capture} has claimed: it was moved or replaced, as by `cdc-assets reset --capture`. Next: nothing, if that was "
            "intended; the next run continues with the one that is there."
        )

    def _fenced(self, sequence: int) -> FencedError:
        self._sequence = None
        self._attempts.clear()
        return FencedError(
            f"Another run has taken over capture {self._tables.capture}: manifest entry {sequence} is from another writer. "
            "Next: nothing, if a newer run is active; it continues from the same position."
        )

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        """Within it errors of the store are this project's; the file is removed if no commit can name it."""
        try:
            yield
        except LakeFullError:
            self._remove(path)
            raise
        except STORE_ERRORS as error:
            self._remove(path)
            raise trouble(f"The manifest {self.directory} cannot be written", error, "check its rights") from error

    def _committed(self, file: DataFile, row: Row, sequence: int) -> Row | None:
        """Commit with the handle of `claim`, without refreshing it before; the row that has the number then, if it is ours.

        A refusal is another writer's commit, or our own: the store's client repeats a request whose answer was lost.
        """
        written: Row | None = row
        try:
            self._tables.append_files(self._tables.kept(self.directory), [file], sequence, {})
        except CommitFailedError:
            written = self._found()
        except STORE_ERRORS as error:
            if (written := self._found()) is None:
                raise unreadable(self._tables.location.uri(self.directory), error) from error
        if written is not None:
            self._has_written(sequence)
        return written

    def _found(self) -> Row | None:
        """The row among those that may have been written that a commit after the handle's version names.

        Raises:
            LakeAwayError: the store does not answer.
        """
        version = self._tables.kept(self.directory).version() + 1
        while (commit := read_commit(self._tables.location, self.directory, version)) is not None:
            if path := next((path for path in commit.added if path in self._attempts), None):
                return self._attempts[path]
            version += 1
        return None

    def _has_written(self, sequence: int) -> None:
        """Continue after a row that was written.

        Raises:
            FencedError: another writer has taken over since.
        """
        handle = self._tables.kept(self.directory)
        before = handle.version()
        try:
            handle.update_incremental()
        except STORE_ERRORS as error:
            raise unreadable(self._tables.location.uri(self.directory), error) from error
        if str(handle.metadata().id) != self._claimed:
            raise self._moved()
        is_only_one = handle.version() == before + 1
        if not is_only_one and handle.transaction_version(self._tables.capture) != sequence:
            raise self._fenced(sequence + 1)
        self._attempts.clear()
        self._sequence = sequence
        self._tables.trim(self.directory, handle.version())

    def _remove(self, path: str) -> None:
        """Remove an uncommitted file, so that repetitions on a full disk use no additional space."""
        self._attempts.pop(path, None)
        with suppress(*STORE_ERRORS):
            self._tables.location.existing(self.directory).delete_file(path)

    def _written(self, path: str, rows: list[Row], sequence: int) -> DataFile:
        """Write one small Parquet file."""
        table = pa.Table.from_pylist(rows, self._schema)
        with self._tables.location.filesystem(self.directory).open_output_stream(path) as stream:
            compression = "zstd" if table.nbytes > _SMALL else "none"
            pq.write_table(table, stream, compression=compression, store_schema=False)
            size = stream.tell()
        return DataFile(path, size, table.num_rows, "", "", sequence)

    def _files(self, handle: DeltaTable, known: Mapping[str, Sequence[Row]]) -> dict[str, Sequence[Row]]:
        files = self._tables.location.existing(self.directory)
        paths = pa.table(handle.get_add_actions())["path"].to_pylist()
        try:
            return {path: known[path] if path in known else self._read(files, path) for path in paths}
        except STORE_ERRORS as error:
            hint = "restore the missing file, or the whole directory, from a copy; positions cannot be reconstructed otherwise"
            raise trouble(f"The manifest {self.directory} cannot be read", error, hint) from error

    def _read(self, files: fs.FileSystem, path: str) -> Sequence[Row]:
        """Rows of a file. Opened as a data set, it would cost twice as much."""
        with files.open_input_file(path) as stream:
            rows: list[Row] = pq.ParquetFile(stream).read(use_threads=False).to_pylist()
        return rows

    def in_order(self, files: Mapping[str, Sequence[Row]]) -> list[Row]:
        """Rows of files in their order, each once.

        Raises:
            LakeError: some are missing between two others that no fold holds.
        """
        rows = {int(row["sequence"]): row for row in chain.from_iterable(files.values())}
        found = [rows[number] for number in sorted(rows)]
        self._check_sequence(found[max(newest_fold(found), 0) :])
        return found

    def _check_sequence(self, rows: Sequence[Row]) -> None:
        for row, following in pairwise(rows):
            if following["sequence"] != row["sequence"] + 1:
                raise LakeError(
                    f"The manifest {self.directory} lacks the rows between entries {row['sequence']} and "
                    f"{following['sequence']}: a commit of its log is lost or empty. Next: restore the whole directory "
                    "from a copy; positions cannot be reconstructed otherwise."
                )


def newest_fold(rows: Sequence[Row]) -> int:
    """Index of the newest row that holds the fold of those before it, or -1."""
    return max((index for index, row in enumerate(rows) if row["event"] == "state"), default=-1)


def _new_name(sequence: int) -> str:
    return f"m{sequence:010d}-{uuid4().hex}.parquet"
