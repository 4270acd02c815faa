"""Progress bars of snapshots on a terminal: percent, rows, rows a second and the time left, one for each database.

Percent and time left count slices of about the same number of rows. Elsewhere than on a terminal each round is a line.
"""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TaskProgressColumn, TimeRemainingColumn
from rich.text import Text

from cdc_assets.shared import progress as capture


class SnapshotBars:
    """Shows rounds of snapshots as bars while some are in progress.

    Args:
        console: where log lines are printed too, so that they appear above the bars.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._bars: dict[str, TaskID] = {}
        self._rows: dict[str, int] = {}

    def __enter__(self) -> Self:
        """Nothing is shown before the first round."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the bars as they are."""
        self._stop()

    def note(self, round_: capture.Progress) -> bool:
        """Show a committed round; False if it is none that a bar shows: print it as a line."""
        if round_.kind != "snapshot" or not round_.slices or not self._console.is_terminal:
            self._stop()
            return False
        progress = self._progress or self._start()
        name = round_.database
        if name not in self._bars:
            self._bars[name] = progress.add_task(name, total=round_.slices, rows="")
            self._rows[name] = 0
        self._rows[name] += sum(sum(table.rows.values()) for table in round_.tables.values())
        task = progress.tasks[progress.task_ids.index(self._bars[name])]
        elapsed = task.elapsed or 0.0
        rate = f", {self._rows[name] / elapsed:,.0f} rows/s" if elapsed > 0 else ""
        progress.update(
            self._bars[name],
            completed=round_.slices_done,
            total=round_.slices,
            rows=f"{self._rows[name]:,} rows{rate}",
        )
        if round_.slices_done >= round_.slices:
            progress.stop_task(self._bars[name])
        if progress.finished:
            self._stop()
        return True

    def _start(self) -> Progress:
        self._progress = Progress(
            _Name(),
            BarColumn(),
            TaskProgressColumn(),
            _Rows(),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._progress.start()
        return self._progress

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress, self._bars, self._rows = None, {}, {}


class _Name(ProgressColumn):
    """A database's name, in which brackets are no markup."""

    def render(self, task: Task) -> Text:
        """The text of one line."""
        return Text(f"{task.description} snapshot")


class _Rows(ProgressColumn):
    """Rows, and rows a second."""

    def render(self, task: Task) -> Text:
        """The text of one line."""
        return Text(str(task.fields["rows"]))
