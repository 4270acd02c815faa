"""A rewriting of files as a step: files of tables give way to others with the rows that stay, or to none (`lake.step`).

It takes no number. A table takes it at exactly the version in which it found the files that go, or stays as it is (`replacing`);
so the second one, another writer or a repetition, finds that they went, and nothing is done twice.

Readers who must not miss what goes are informed by `announce`, before the first file goes. If a table has to stay as it is, because
another writer has replaced one of its files, the step continues with the others, and `complete` learns which stayed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from cdc_assets.errors import LakeConflictError
from cdc_assets.lake.presence import require_files
from cdc_assets.lake.replacing import Fence, NewFile, Replacement, replace_files
from cdc_assets.lake.step import Step, carry_out, nothing
from cdc_assets.lake.tables import DeltaTables

_NO_NUMBER = -1


@dataclass
class Rewrite:
    """What a step does to the files of one table.

    Args:
        fence: raises FencedError if another writer has taken over.
        name: the named step after it.
        is_done: whether the table has it.
        conflict: why the table stays as it was, if another writer was first.
    """

    tables: DeltaTables
    directory: str
    wanted: Replacement
    fence: Fence
    name: str = ""
    is_done: bool = False
    conflict: LakeConflictError | None = None

    @property
    def files(self) -> Sequence[NewFile]:
        """What comes in place of what goes."""
        return self.wanted.add

    @property
    def reached(self) -> str:
        """The named step after the commit, if there was one."""
        return self.name if self.is_done else ""

    def commit(self, number: int) -> None:
        """Replace the files, or note why not."""
        del number
        try:
            self.is_done = replace_files(self.tables, self.directory, self.wanted, self.fence)
        except LakeConflictError as error:
            self.conflict = error


def rewriting(
    rewrites: Sequence[Rewrite], announce: Callable[[], None] = nothing, complete: Callable[[], None] = nothing
) -> Step:
    """A step that rewrites files of tables, one after another.

    Args:
        rewrites: of different tables; afterwards they say what became of each.
        announce: informs readers of what the tables will hold, and raises LakeConflictError if that may not come true.
        complete: records what became of them.
    """
    return Step(_NO_NUMBER, [[one] for one in rewrites], announce, complete)


def rewrite_files(tables: DeltaTables, directory: str, wanted: Replacement, fence: Fence) -> bool:
    """Rewrite files of one table, which concerns no reader, since no row goes that one may want.

    Returns:
        False if there was nothing to do.

    Raises:
        LakeConflictError: another writer has replaced a file that was to go, or was first again and again; nothing was done.
        FencedError: another writer has taken over.
        LakeError: the store refuses, there is no table, or a file is missing.
    """
    change = Rewrite(tables, directory, wanted, fence)
    carry_out(rewriting([change]), partial(require_files, tables.location))
    if change.conflict is not None:
        raise change.conflict
    return change.is_done
