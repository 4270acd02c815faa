"""A fold of a mirror as a step: `history` takes the versions that ended, then `current` takes the rows (`lake.step`).

A step reads the rows that the step before has left and events that its plan has fixed, so it can be read twice. `history` is
first, because only the rows before say what has ended.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake import Schema

from cdc_assets.lake.replacing import Fence, Replacement, replace_files
from cdc_assets.lake.step import Step
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
        bounded: columns of whose values each file has the bounds in its statistics.
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
        """Commit the step, unless the table has it.

        Raises:
            LakeConflictError: another writer has replaced a file that was to go, or was first several times.
            FencedError: another writer has taken over.
            LakeError: the store refuses, or a file is missing.
        """
        tables, directory, whole = self.tables, self.directory, self.whole
        if tables.reached(directory) >= number:
            return
        tables.prepare(directory, self.schema, self.bounded, whole=whole)
        if not (self.files or self.remove or whole):
            return  # both tables of a mirror have the columns of its newest structure
        columns, paths = (Schema.from_arrow(self.schema), None) if whole else (None, self.remove)
        wanted = Replacement(paths, self.files, None, is_new=True, number=number, schema=columns, metadata=self.about)
        replace_files(tables.tables, directory, wanted, self.fence)


def fold_step(
    tables: MirrorTables,
    jobs: Jobs,
    work: Work,
    results: Sequence[FoldResult],
    fence: Fence,
    complete: Callable[[], None],
) -> Step:
    """A step of one mirror whose events are folded: versions that ended, then rows.

    Args:
        jobs: converts a history whose columns have other types from now on.
        results: of the fold's tasks.
        fence: raises FencedError if another writer has taken over.
        complete: notes what is done, for the row of the ledger that all mirrors share.

    Raises:
        CdcError: the history cannot be converted.
    """
    planned, shape, topic = work.planned, work.table.description.shape, work.table.topic
    known = tables.schema(history_directory(topic))
    is_retyped = known is not None and work.history is not None and not is_widened(known, work.history)
    converted = jobs.converted(work) if is_retyped and not planned.whole else []
    about = {"step": str(planned.step), "from_lsn": planned.after, "to_lsn": planned.until}
    history = MirrorChange(
        tables,
        history_directory(topic),
        work.history or shape.history,
        [*converted, *(file for result in results for file in result.versions)],
        [],
        about,
        [TO_LSN],
        fence,
        planned.whole or is_retyped,
        "mirror-history-committed",
    )
    current = MirrorChange(
        tables,
        current_directory(topic),
        work.current,
        [file for result in results for file in result.leaves],
        [path for result in results for path in result.removed],
        about,
        shape.bounded,
        fence,
        planned.whole or work.retyped,
        "mirror-committed",
    )
    return Step(planned.step, [[history], [current]], complete=complete)
