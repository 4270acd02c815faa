"""A fold of a mirror as a step: `history` takes the versions that ended, then `current` takes the rows (`lake.step`).

A step reads the rows that the step before has left and events that its plan has fixed, so it can be read twice. `history` is
first, because what ended can only be told from the rows before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cdc_assets.lake.replacing import Fence
from cdc_assets.mirror.columns import is_widened
from cdc_assets.mirror.delta import MirrorTables, current_directory, history_directory
from cdc_assets.mirror.jobs import Jobs
from cdc_assets.mirror.leaves import NewFile
from cdc_assets.mirror.shape import TO_LSN
from cdc_assets.mirror.tasks import FoldResult
from cdc_assets.mirror.work import Work


@dataclass(frozen=True)
class MirrorChange:
    """The commit of a step in one of the two tables of a mirror.

    Args:
        schema: columns of the table from now on.
        remove: paths of files that go.
        about: metadata of the commit.
        bounded: columns whose bounds all files tell.
        fence: raises FencedError if another writer has taken over.
        whole: whether the new files replace all others.
    """

    tables: MirrorTables
    directory: str
    schema: pa.Schema
    files: Sequence[NewFile]
    remove: Sequence[str]
    about: dict[str, str]
    bounded: Sequence[str]
    fence: Fence
    whole: bool
    reached: str

    def commit(self, number: int) -> None:
        """Commit the step, unless the table has it."""
        self.tables.commit(
            self.directory,
            self.schema,
            number,
            self.files,
            self.remove,
            self.about,
            bounded=self.bounded,
            fence=self.fence,
            whole=self.whole,
        )


@dataclass(frozen=True)
class FoldStep:
    """A step of one mirror whose events are folded.

    Args:
        jobs: runs the conversion of a history whose columns have other types from now on.
        results: of the fold's tasks.
        fence: raises FencedError if another writer has taken over.
        finish: notes what is done, for the row of the ledger that all mirrors share.
    """

    tables: MirrorTables
    jobs: Jobs
    work: Work
    results: Sequence[FoldResult]
    fence: Fence
    finish: Callable[[Work, Sequence[FoldResult]], None]

    @property
    def number(self) -> int:
        """Number of its commits."""
        return self.work.planned.step

    def found(self) -> None:
        """Files of an earlier attempt are not recorded: the same events are folded again."""

    def write(self) -> Sequence[NewFile]:
        """The history's rows in their new types, if it has other ones from now on."""
        return self.jobs.converted(self.work) if self._is_retyped and not self.work.planned.whole else []

    @property
    def _is_retyped(self) -> bool:
        known = self.tables.schema(history_directory(self.work.table.topic))
        return known is not None and self.work.history is not None and not is_widened(known, self.work.history)

    def changes(self, written: Sequence[NewFile]) -> list[list[MirrorChange]]:
        """Versions that ended, then rows."""
        work, results, topic = self.work, self.results, self.work.table.topic
        planned, shape = work.planned, work.table.description.shape
        about = {"step": str(planned.step), "from_lsn": planned.after, "to_lsn": planned.until}
        history = MirrorChange(
            self.tables,
            history_directory(topic),
            work.history or shape.history,
            [*written, *(file for result in results for file in result.versions)],
            [],
            about,
            [TO_LSN],
            self.fence,
            planned.whole or self._is_retyped,
            "mirror-history-committed",
        )
        current = MirrorChange(
            self.tables,
            current_directory(topic),
            work.current,
            [file for result in results for file in result.leaves],
            [path for result in results for path in result.removed],
            about,
            shape.bounded,
            self.fence,
            planned.whole or work.retyped,
            "mirror-committed",
        )
        return [[history], [current]]

    def record(self, written: Sequence[NewFile]) -> None:
        """Nothing: the same events can be folded again."""

    def complete(self, written: Sequence[NewFile]) -> None:
        """Note what is done."""
        del written
        self.finish(self.work, self.results)
