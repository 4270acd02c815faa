"""Rows of one Delta table with one writer at a time, numbered without gaps.

*Fencing.* Each commit carries the application transaction (capture, sequence) with a sequence that grows by one, and
the handle is never refreshed after `claim`. A writer that was believed dead and resumes finds its next sequence taken:
delta-rs refuses the commit, and `FencedError` is raised. A crash leaves either a complete commit or an unreferenced
file. After an error, such as a full disk, the log is searched for the commit: either it exists, or the same row may be
retried with the same handle.

*Folding.* Rows that their fold replaces go in one commit that finds all of their files, or is not made (`lake.replacing`).
If another program has rewritten one of them, which changes no row, they are read again.

*Rows that are there twice.* A rewrite by another program that was planned before a fold, and committed after it, brings
back rows that the fold has replaced (delta-rs accepts it). A row is what its number says, for no two writers commit one:
so rows of one number are one row, and before the newest fold, which holds all of them, some may be missing. The next
fold removes them for good.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, pairwise
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyarrow import fs

from cdc_assets.core.steps import step
from cdc_assets.errors import FencedError, InvariantError, LakeConflictError, LakeError, LakeFullError
from cdc_assets.lake.commits import read_commit
from cdc_assets.lake.earlier import modernize
from cdc_assets.lake.files import DataFile
from cdc_assets.lake.location import STORE_ERRORS, trouble
from cdc_assets.lake.replacing import Replacement, replace_files
from cdc_assets.lake.tables import COMMIT_ATTEMPTS, DeltaTables, unreadable

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
        self._sequence: int | None = None

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
        with suppress(
            LakeError, LakeFullError, LakeConflictError
        ):  # of a table made by an earlier release, unless another process does it at this moment
            modernize(self._tables, self.directory, lambda: None)
        rows = self.in_order(self._files(self._tables.ensure(self.directory, self._schema), known or {}))
        self._sequence = rows[-1]["sequence"] if rows else 0
        return rows

    def append(self, row: Row) -> None:
        """Write the row `next_sequence`.

        Raises:
            FencedError: another writer has taken over.
            LakeError: it cannot be written.
        """
        self._write(row)

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
        sequence, path = self.next_sequence, ""
        try:
            for attempt in range(COMMIT_ATTEMPTS):
                tables = self._tables.separate()
                files = self._files(tables.ensure(self.directory, self._schema), {})
                path = _new_name(sequence)
                file = self._written(path, [*self.in_order(files)[-keep:], row], sequence)
                step("checkpoint-prepared")
                wanted = Replacement(list(files), [file], None, is_new=True, number=sequence)
                try:
                    landed = replace_files(tables, self.directory, wanted, self.require_writer)
                    break
                except LakeConflictError:
                    self._remove(path)
                    if attempt == COMMIT_ATTEMPTS - 1:
                        raise
        except (LakeFullError, FencedError):
            self._remove(path)
            raise
        except STORE_ERRORS as error:
            self._remove(path)
            raise trouble(f"The manifest {self.directory} cannot be written", error, "check its rights") from error
        self._tables.forget(self.directory)
        handle = self._tables.open(self.directory)
        if not landed or handle is None or handle.transaction_version(self._tables.capture) != sequence:
            raise self._fenced(sequence)
        self._sequence = sequence

    def require_writer(self) -> None:
        """Check that no other writer has taken over.

        Raises:
            FencedError: one has.
            LakeError: the table cannot be read.
        """
        sequence = self.next_sequence - 1
        version = self._tables.kept(self.directory).version()
        if read_commit(self._tables.location, self.directory, version + 1) is None:
            return  # nobody has written anything since
        newest = self._tables.separate().open(self.directory)
        if newest is None or (newest.transaction_version(self._tables.capture) or 0) != sequence:
            raise self._fenced(sequence + 1)

    def _fenced(self, sequence: int) -> FencedError:
        self._sequence = None
        return FencedError(
            f"Another run has taken over capture {self._tables.capture}: manifest entry {sequence} is from another writer. "
            "Next: nothing, if a newer run is active; it continues from the same position."
        )

    def _write(self, row: Row) -> None:
        sequence = self.next_sequence
        path = _new_name(sequence)
        try:
            landed = self._commit(self._written(path, [row], sequence), sequence)
        except LakeFullError:
            self._remove(path)
            raise
        except STORE_ERRORS as error:
            self._remove(path)
            raise trouble(f"The manifest {self.directory} cannot be written", error, "check its rights") from error
        if not landed:
            raise self._fenced(sequence)
        self._sequence = sequence

    def _commit(self, file: DataFile, sequence: int) -> bool:
        """Commit with the handle of `claim`, without refreshing it before.

        Returns:
            False if another writer has committed `sequence` in the meantime; the handle is then dropped.
        """
        handle = self._tables.kept(self.directory)
        try:
            self._tables.append(handle, [file], sequence, {})
            handle.update_incremental()
        except CommitFailedError:
            self._tables.forget(self.directory)
            return False
        except STORE_ERRORS as error:
            if self._has_landed(file):
                return True
            raise unreadable(self._tables.location.uri(self.directory), error) from error
        self._tables.trim(self.directory, handle.version())
        return handle.transaction_version(self._tables.capture) == sequence

    def _has_landed(self, file: DataFile) -> bool:
        """Whether a commit exists, after an error that does not say so. If not, the handle stays unchanged."""
        newest = self._tables.separate().open(self.directory)
        landed = newest is not None and file.path in pa.table(newest.get_add_actions())["path"].to_pylist()
        if landed:
            self._tables.forget(self.directory)
            self._tables.open(self.directory)
        return landed

    def _remove(self, path: str) -> None:
        """Remove an uncommitted file, so that repetitions on a full disk use no additional space."""
        with suppress(*STORE_ERRORS):
            self._tables.location.existing(self.directory).delete_file(path)

    def _written(self, path: str, rows: list[Row], sequence: int) -> DataFile:
        """Write one small Parquet file."""
        table = pa.Table.from_pylist(rows, self._schema)
        with self._tables.location.filesystem(self.directory).open_output_stream(path) as stream:
            pq.write_table(table, stream, compression="zstd", store_schema=False)
            size = stream.tell()
        return DataFile(path, size, table.num_rows, "", "", sequence)

    def _files(self, handle: DeltaTable, known: Mapping[str, Sequence[Row]]) -> dict[str, Sequence[Row]]:
        files = self._tables.location.filesystem(self.directory)
        paths = pa.table(handle.get_add_actions())["path"].to_pylist()
        try:
            return {path: known[path] if path in known else self._read(files, path) for path in paths}
        except (OSError, pa.ArrowException) as error:
            raise LakeError(
                f"The manifest {self.directory} cannot be read: {error}. Next: restore the missing file, "
                "or the whole directory, from a copy; positions cannot be reconstructed otherwise."
            ) from error

    def _read(self, files: fs.FileSystem, path: str) -> Sequence[Row]:
        """Rows of a file; those of an earlier release may lack columns. Opened as a data set, it would cost twice as much."""
        with files.open_input_file(path) as stream:
            rows = pq.ParquetFile(stream).read(use_threads=False).to_pylist()
        return [dict.fromkeys(self._schema.names) | row for row in rows]

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
