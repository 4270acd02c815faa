"""How many rows a table must have: those of its mark, and what each commit since has brought and taken.

*Why no loss hides behind a commit of another program.* What is there now is never taken for what should be there. Each commit after
the one in which rows were counted says what it did: an append its files, a removal of ours how many rows it drops
(`replacing`), one of another program what it added and removed (`foreign`). What a rewrite was to keep and has lost is
expected still: nobody meant it.

*No false alarms.* Commits up to the mark's own number are counted in it. Where the log no longer has a commit, or what it did
cannot be counted any more, the number is a guess and says so; then the caller decides. All commits that the log still has are
counted in a guess, too.

*A crash between any two steps*: nothing is recorded here. A mark that was not recorded yet leaves more commits to read.
"""

from dataclasses import dataclass, replace

from cdc_assets.lake.commits import Commit, read_commit
from cdc_assets.lake.foreign import is_own, rows_more, total_rows
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.replacing import DROPPED, OURS, UNDONE
from cdc_assets.lake.tables import DeltaTables

_RESTORE = "RESTORE"
"""Operation of a commit that makes a table what it was in an older version; it keeps the numbers of application transactions."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a table must have in a version.

    Args:
        rows: at least so many.
        is_sure: whether each commit since the mark was there and could be counted.
        is_put_back: whether another program has put an older version in place since; that says of no row that it was meant to go.
    """

    rows: int
    is_sure: bool
    is_put_back: bool = False


def expected_rows(tables: DeltaTables, directory: str, mark: Mark, until: int) -> Expected:
    """How many rows a table must have.

    Args:
        until: version in which the caller has counted its rows, since a run may commit meanwhile.

    Raises:
        LakeError: the log cannot be read.
    """
    rows, is_sure, is_put_back = mark.rows, True, False
    for version in range(until, mark.counted, -1):  # a log loses its oldest commits, so all that it has are read
        commit = read_commit(tables.location, directory, version)
        if commit is None:
            return Expected(rows, False, is_put_back)
        is_put_back |= commit.operation == _RESTORE and not is_own(tables, commit)
        more = _more_by(tables, directory, commit, mark.window)
        rows += -commit.deleted if more is None else more
        is_sure &= more is not None or bool(commit.deleted)
    return Expected(rows, is_sure, is_put_back)


def settled(tables: DeltaTables, directory: str, mark: Mark) -> Mark:
    """The mark with the rows that are expected now, so that the log behind it is needed no more.

    Also a guess is better now than later, when the log has still less.

    Raises:
        LakeError: the table cannot be read.
    """
    handle = tables.open(directory)
    if handle is None:
        return mark
    newest = handle.version()
    expected = expected_rows(tables, directory, mark, newest)
    counted = counted_to(tables, directory, newest, mark.window)
    return replace(mark, version=newest, rows=expected.rows, counted=counted)


def counted_to(tables: DeltaTables, directory: str, newest: int, window: int) -> int:
    """Version that a mark may say to have counted, of a table whose rows were counted in its newest one.

    Not that one, if it is a window's: its number says that its rows are in the mark. So they are still missed if it is lost,
    and another program puts a commit of its own in its place.

    Raises:
        LakeError: the log cannot be read.
    """
    commit = read_commit(tables.location, directory, newest)
    is_numbered = commit is not None and commit.transactions.get(tables.capture, window + 1) <= window
    return newest - 1 if is_numbered else newest


def _more_by(tables: DeltaTables, directory: str, commit: Commit, window: int) -> int | None:
    """How many rows more there should be by a commit, unless its number is counted already; None if nobody can count them."""
    if commit.transactions.get(tables.capture, window + 1) <= window or not (commit.added or commit.removed):
        return 0
    if OURS in commit.about and (DROPPED in commit.about or UNDONE not in commit.about):
        return -int(commit.about.get(DROPPED, 0))
    if UNDONE in commit.about:  # of a version of the library that did not say yet how many
        return rows_more(tables.location, directory, commit)
    if is_own(tables, commit):
        return 0 if commit.removed else total_rows(tables.location, directory, commit.added)
    more = rows_more(tables.location, directory, commit)
    return 0 if more is not None and more < 0 and not commit.changes else more
