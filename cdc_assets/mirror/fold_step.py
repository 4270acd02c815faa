"""A fold of a mirror as a step: `history` takes the versions that ended, then `current` takes the rows (`lake.step`).

A step reads the rows that the step before has left and events that its plan has fixed. Neither changes, so every attempt makes the same
rows and the same versions. `history` is first, because only the rows before say what has ended. So the commit of `current` says whether
`history` has one of the step: if that is lost before the step is recorded, nothing else would show it (`audit`).

If the topic loses events in between, the next attempt would make rows that do not fit the versions. So a commit says how many events its step
took; the mirror is rebuilt if the next attempt finds another number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake import Schema

from cdc_assets.lake.replacing import Fence, NewFile, Replacement, replace_files
from cdc_assets.mirror.columns import is_widened
from cdc_assets.mirror.delta import REBUILT, MirrorTables, current_directory, history_directory
from cdc_assets.mirror.jobs import Jobs
from cdc_assets.mirror.shape import TO_LSN
from cdc_assets.mirror.tasks import FoldResult
from cdc_assets.mirror.work import Work

ENDED = "ended"
"""In what the commit of rows says of a step: that versions were committed before."""
EVENTS = "events"
"""In what a commit says of a step: how many events it took."""


@dataclass(frozen=True)
class MirrorChange:
    """The commit of a step in one of the two tables of a mirror.

    Args:
        schema: columns of the table from now on.
        wanted: which files come and go; the table gets its columns with it if all go.
        bounded: columns of whose values each file has the bounds in its statistics.
        fence: raises FencedError if another writer has taken over.
    """

    tables: MirrorTables
    directory: str
    schema: pa.Schema
    wanted: Replacement
    bounded: Sequence[str]
    fence: Fence
    reached: str

    @property
    def files(self) -> Sequence[NewFile]:
        """What comes."""
        return self.wanted.add

    def commit(self, number: int) -> None:
        """Commit the step, unless the table has it.

        Raises:
            LakeConflictError: another writer has replaced a file that was to go, or was first several times.
            FencedError: another writer has taken over.
            LakeError: the store refuses, or a file is missing.
        """
        tables, directory, wanted = self.tables, self.directory, self.wanted
        if tables.reached(directory) >= number:
            return
        whole = wanted.remove is None
        tables.prepare(directory, self.schema, self.bounded, whole=whole)
        if whole or wanted.remove or wanted.add:  # else it had the columns only
            replace_files(tables.tables, directory, wanted, self.fence)


def events_of(results: Sequence[FoldResult]) -> str:
    """How many events a step took, as its commits say it."""
    return str(sum(result.events for result in results))


def fold_commits(
    tables: MirrorTables, jobs: Jobs, work: Work, results: Sequence[FoldResult], fence: Fence
) -> list[list[MirrorChange]]:
    """The commits of one mirror's step whose events are folded: versions that ended, then rows.

    Args:
        jobs: converts a history whose columns have other types from now on.
        results: of the fold's tasks.
        fence: raises FencedError if another writer has taken over.

    Raises:
        CdcError: the history cannot be converted.
    """
    planned, shape, topic = work.planned, work.table.description.shape, work.table.topic
    known = tables.schema(history_directory(topic))
    is_retyped = known is not None and work.history is not None and not is_widened(known, work.history)
    converted = jobs.converted(work) if is_retyped and not planned.whole else []
    about = {"step": str(planned.step), "from_lsn": planned.after, "to_lsn": planned.until, EVENTS: events_of(results)}
    about |= {REBUILT: "true"} if planned.whole else {}

    def wanted(
        schema: pa.Schema, add: Sequence[NewFile], remove: Sequence[str], about: Mapping[str, str], *, whole: bool
    ) -> Replacement:
        gone, columns = (None, Schema.from_arrow(schema)) if whole else (remove, None)
        return Replacement(gone, add, None, is_new=True, number=planned.step, schema=columns, metadata=about)

    versions = [*converted, *(file for result in results for file in result.versions)]
    ended = work.history or shape.history
    history = MirrorChange(
        tables, history_directory(topic), ended, wanted(ended, versions, [], about, whole=planned.whole or is_retyped),
        [TO_LSN], fence, "mirror-history-committed",
    )  # fmt: skip
    if versions or planned.whole or is_retyped:
        about = {**about, ENDED: "true"}
    leaves = [file for result in results for file in result.leaves]
    removed = [path for result in results for path in result.removed]
    current = MirrorChange(
        tables, current_directory(topic), work.current,
        wanted(work.current, leaves, removed, about, whole=planned.whole or work.retyped), shape.bounded, fence, "mirror-committed",
    )  # fmt: skip
    return [[history], [current]]
