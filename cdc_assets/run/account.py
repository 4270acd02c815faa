"""What a run has brought: numbers for its summary, and one report to whoever opened it."""

from collections import Counter, defaultdict

from cdc_assets.capture.progress import OnProgress, Progress, TroubledTable
from cdc_assets.core.identifiers import TableId


class Account:
    """Hears of each window and round of a run from whoever committed it, counts it, and tells it.

    Args:
        on_progress: told of each.
    """

    def __init__(self, on_progress: OnProgress) -> None:
        self._tell = on_progress
        self.begin()

    def begin(self) -> None:
        """A loop begins: only what it brings is counted."""
        self.windows = 0
        self.streamed = 0
        """Events of windows."""
        self.rows: dict[TableId, Counter[str]] = defaultdict(Counter)
        """Events by operation, those of rounds too."""
        self.unread: list[TroubledTable] = []
        """Tables whose snapshot, asked for by a signal, was given up."""
        self.begin_tidied()

    def begin_tidied(self) -> None:
        """The lake was put in order: only what is written from now on is to be looked after."""
        self.commits = 0
        """Windows and rounds."""
        self.written: set[TableId] = set()

    def note_commit(self, progress: Progress) -> None:
        """A window or round is committed."""
        if progress.kind == "stream":
            self.windows += 1
            self.streamed += sum(sum(part.rows.values()) for part in progress.tables.values())
        for table, numbers in progress.tables.items():
            self.rows[table].update(numbers.rows)
        self.commits += 1
        self.written.update(progress.tables)
        self._tell(progress)

    def note_unread(self, trouble: TroubledTable) -> None:
        """A table was left that a signal asked for."""
        self.unread.append(trouble)
