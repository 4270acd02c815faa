"""Commits the files of the windows in flight under the number that they share.

The topic tables of captured tables come first, each with the files of its own window; then the
transactions of all databases in one commit. So a transaction is published after all of its tables
have it, and a repeat that finds it published has nothing left to commit.

A repeat may have no transactions to publish, or have given up one of the databases. It takes the number in their topic
(`TopicTables.leave_out`), because a writer that was believed dead may hold those of all. Then the next window of each database
publishes them (`Unpublished`). Their topic is the one that the plan names: another one has not reached the number, and would get
them again.
"""

from collections.abc import Sequence

from cdc_assets.lake.files import DataFile, remove_attempt
from cdc_assets.lake.step import Events, window_facts
from cdc_assets.lake.topics import TopicTables
from cdc_assets.shared.lake import Lake
from cdc_assets.streaming.window_parts import Part, transaction_files


def events_of(tables: TopicTables, part: Part) -> list[Events]:
    """The commits of a window's tables."""
    window = part.window
    return [
        Events(
            tables,
            directory,
            files,
            window_facts(
                window.window_id,
                files,
                from_lsn=str(min(read.after for read in window.reads if read.table == table)),
                to_lsn=str(window.until),
            ),
            part.attempt,
        )
        for (table, directory), files in part.files.items()
    ]


class TransactionsChange:
    """The transactions of all databases in one commit: their topic is shared, and reaches the number once.

    Args:
        parts: windows whose tables are committed before.
        repeated: whether an earlier attempt may still commit transactions, if this one has none.
    """

    def __init__(self, lake: Lake, parts: Sequence[Part], *, repeated: bool) -> None:
        windows = [part.window for part in parts]
        self._tables, self._repeated = lake.tables, repeated
        self.directory = windows[0].transactions
        self.files: Sequence[DataFile] = transaction_files(parts)
        self.published = True
        """Whether no transactions are left to the next windows."""
        self.reached = ""
        self._about = {"window_id": str(windows[0].window_id)}
        if len(windows) == 1:
            self._about |= {"from_lsn": str(windows[0].after), "to_lsn": str(windows[0].until)}

    def commit(self, number: int) -> None:
        """Commit the transactions, or leave them to the next windows."""
        if self._repeated and (not self.files or self._tables.left_out(self.directory, number)):
            self.published = not self._tables.leave_out(self.directory, number)
        elif self.files:
            Events(self._tables, self.directory, self.files, self._about).commit(number)
            self.reached = "transactions-committed"


def remove_uncommitted(lake: Lake, number: int, parts: Sequence[Part], attempt: str) -> None:
    """Remove what an attempt wrote where nothing of the windows is committed; it is written again."""
    if not parts:
        return
    tables = lake.tables
    directories = {entry.directory for part in parts for entry in part.planned if not entry.read.counted}
    if parts[0].window.transactions:
        directories.add(parts[0].window.transactions)
    for directory in directories:
        tables.forget(directory)
    lacking = [directory for directory in directories if tables.reached(directory) < number]
    remove_attempt(tables.location, lacking, number, attempt)
