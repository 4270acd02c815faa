"""Commits the files of the windows in flight under the number that they share.

The topic tables of captured tables come first, each with the files of its own window; then the
transactions of all databases in one commit. So a transaction is published after all of its tables
have it, and a repeat that finds it published has nothing left to commit.

A repeat that has no transactions to publish, or has given up one of the databases, takes the number in their topic
(`TopicTables.leave_out`), for a writer that was believed dead may hold those of all. Then the next window of each database
publishes them (`Unpublished`). Their topic is the one that the plan names: another one has not reached the number, and would get
them again.

A sink that raises does so again and again, every few seconds, and each repeat writes its table's files anew. So those of which
no commit has begun are removed at once (`lake.sink`).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from cdc_assets.capture.lake import Lake
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.steps import step
from cdc_assets.errors import SinkError
from cdc_assets.lake.files import DataFile, remove_attempt
from cdc_assets.streaming.window_parts import Part, transaction_files

_COMMIT_THREADS = 8
"""Commits of different tables overlap; a commit is mostly waiting (spec spark §3)."""


class WindowCommits:
    """Commits files of windows."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def commit(self, parts: Sequence[Part], *, repeated: bool) -> bool:
        """Commit the files of the windows, after checking that all of them are in the lake.

        Args:
            repeated: whether an earlier attempt may still commit transactions, if this one has none.

        Returns:
            Whether no transactions are left to the next windows.

        Raises:
            FencedError: another writer has left a table out.
            LakeError: a file is missing, or the lake cannot be written.
        """
        self._require_files(parts)
        self._commit_tables(parts)
        return self._commit_transactions(parts, repeated=repeated)

    def _require_files(self, parts: Sequence[Part]) -> None:
        written = {directory: list(names) for part in parts for (_, directory), names in part.files.items()}
        if transactions := transaction_files(parts):
            written[self._lake.transactions_of(parts[0].window)] = transactions
        self._lake.tables.require_files(written)

    def _commit_tables(self, parts: Sequence[Part]) -> None:
        def commit(item: tuple[Part, TableId, str, list[DataFile]]) -> None:
            part, table, directory, written = item
            window = part.window
            metadata = {
                "from_lsn": str(min(read.after for read in window.reads if read.table == table)),
                "to_lsn": str(window.until),
                "rows": str(sum(file.rows for file in written)),
                "window_id": str(window.window_id),
            }
            try:
                self._lake.tables.commit(directory, None, written, window.window_id, metadata)
            except SinkError as error:
                if not error.is_tried:  # it is repeated every few seconds, and each time all of it is written again
                    remove_attempt(self._lake.tables.location, [directory], window.window_id, part.attempt)
                raise

        items = [(part, *key, written) for part in parts for key, written in part.files.items()]
        if len(items) < 2:
            for item in items:
                commit(item)
                step("table-committed")
            return
        with ThreadPoolExecutor(min(_COMMIT_THREADS, len(items))) as pool:
            for _ in pool.map(commit, items):
                step("table-committed")

    def _commit_transactions(self, parts: Sequence[Part], *, repeated: bool) -> bool:
        """Commit the transactions of all databases at once: their topic is shared, and reaches the number once."""
        if not self._lake.events.transaction_metadata:
            return True
        files, windows = transaction_files(parts), [part.window for part in parts]
        directory, number = self._lake.transactions_of(windows[0]), windows[0].window_id
        if repeated and (not files or self._lake.tables.left_out(directory, number)):
            return not self._lake.tables.leave_out(directory, number)
        if files:
            metadata = {"window_id": str(number)}
            if len(windows) == 1:
                metadata |= {"from_lsn": str(windows[0].after), "to_lsn": str(windows[0].until)}
            self._lake.tables.commit(directory, None, files, number, metadata)
            step("transactions-committed")
        return True

    def remove_uncommitted(self, number: int, parts: Sequence[Part], attempt: str) -> None:
        """Remove what this attempt wrote where nothing of the windows is committed; it is written again."""
        tables, directories = self._lake.tables, {entry.directory for part in parts for entry in part.planned}
        if self._lake.events.transaction_metadata:
            directories.add(self._lake.transactions_of(parts[0].window))
        for directory in directories:
            tables.forget(directory)
        lacking = [directory for directory in directories if tables.reached(directory) < number]
        remove_attempt(tables.location, lacking, number, attempt)
