"""Counts what a run committed, for its summary, and reports each commit to the caller, with where its jobs ran."""

from collections import Counter, defaultdict
from dataclasses import replace

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.jobs import JobKind
from cdc_assets.core.ran_on import NOWHERE, JobAccount, RanOn
from cdc_assets.shared.progress import OnProgress, OnRead, Progress, RangesRead, TroubledTable

_KINDS: dict[str, JobKind] = {"stream": "window", "snapshot": "snapshot", "incremental": "incremental"}


class Account:
    """Counts the windows and rounds of a run and reports each of them.

    Args:
        on_progress: called after each committed window and round.
        on_read: called after each snapshot of a table, or of some of its ranges.
        jobs: jobs of the run.
    """

    def __init__(self, on_progress: OnProgress, on_read: OnRead, jobs: JobAccount) -> None:
        self._on_progress, self._on_read, self._jobs = on_progress, on_read, jobs
        self._before = dict.fromkeys(_KINDS.values(), NOWHERE)
        self._newest = ("", 0), NOWHERE
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
        progress = replace(progress, ran_on=self._jobs_of(progress))
        if progress.kind == "stream":
            self.windows += 1
            self.streamed += sum(sum(part.rows.values()) for part in progress.tables.values())
        for table, numbers in progress.tables.items():
            self.rows[table].update(numbers.rows)
        self.commits += 1
        self.written.update(progress.tables)
        self._on_progress(progress)

    def _jobs_of(self, progress: Progress) -> RanOn:
        """Where its jobs ran since the one before, those of failed attempts among them; windows with one number share them."""
        kind, which = _KINDS[progress.kind], (progress.kind, progress.window_id)
        if self._newest[0] != which:
            now = self._jobs.of(kind)
            self._newest = which, now.since(self._before[kind])
            self._before[kind] = now
        return self._newest[1]

    def note_read(self, read: RangesRead) -> None:
        """Report a snapshot that is complete."""
        self._on_read(read)

    def note_unread(self, trouble: TroubledTable) -> None:
        """Record that the snapshot of a table, requested by a signal, was given up."""
        self.unread.append(trouble)
