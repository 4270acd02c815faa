"""Counts what a run committed, for its summary, and reports each commit to the caller."""

from collections import Counter, defaultdict

from cdc_assets.capture.progress import OnProgress, Progress, TroubledTable
from cdc_assets.core.identifiers import TableId


class Account:
    """Counts the windows and rounds of a run and reports each of them.

    Args:
        on_progress: called after each committed window and round.
    """

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self.begin()

    def begin(self) -> None:
        """Start a loop: reset the counters of the summary."""
        self.windows = 0
        self.streamed = 0
        """Events committed by windows."""
        self.rows: dict[TableId, Counter[str]] = defaultdict(Counter)
        """Events by table and operation, including those of snapshot rounds."""
        self.unread: list[TroubledTable] = []
        """Tables whose snapshot was requested by a signal and given up."""
        self.reset_written()

    def reset_written(self) -> None:
        """Reset what was written since the last housekeeping."""
        self.commits = 0
        """Windows and rounds since the last housekeeping."""
        self.written: set[TableId] = set()

    def note_commit(self, progress: Progress) -> None:
        """Count a committed window or round and report it."""
        if progress.kind == "stream":
            self.windows += 1
            self.streamed += sum(sum(part.rows.values()) for part in progress.tables.values())
        for table, numbers in progress.tables.items():
            self.rows[table].update(numbers.rows)
        self.commits += 1
        self.written.update(progress.tables)
        self._on_progress(progress)

    def note_unread(self, trouble: TroubledTable) -> None:
        """Record that the snapshot of a table, requested by a signal, was given up."""
        self.unread.append(trouble)
