"""Finds what other programs have committed to a table, such as rewrites that put rows in twice (`undoing`).

*Why that can be.* delta-rs accepts a rewrite (`OPTIMIZE`) that was planned before ours and is committed after it: the files
that it removes are gone already, and what it adds has their rows once more. Such a commit cannot be refused; so the log
is read after the version up to which it was read before. A commit that says that it changes no row must leave as many as
there were. One that leaves more has put rows in again, and one that leaves fewer has lost some.

*A vacuum* that was set to keep nothing also takes files that are written and not committed yet, or were just counted as being
there. The log shows that there was one; then the files of the table are listed.

*No false alarms.* An append, a deletion or a change of rows names itself in its commit: it is reported, and not undone. Delta refuses a DELETE,
UPDATE or MERGE that was planned before ours, and would put rows in again. Our own commits name themselves
(`replacing`), or carry an application transaction of the capture or of Dagster. Appends of a crash are such. Only what is read
is judged: if the store does not answer, the look fails and is repeated.

*A crash between any two steps*: a version counts as read when that is recorded. Who records nothing of it, such as mirrors and captures of other connectors, reads the newest
commits when it starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import pyarrow.parquet as pq
from deltalake import DeltaTable

from cdc_assets.errors import LakeAwayError
from cdc_assets.lake.commits import Commit, has_commit, read_commit, rows_by_path
from cdc_assets.lake.delta_log import newest_version
from cdc_assets.lake.location import STORE_ERRORS, Location, trouble
from cdc_assets.lake.replacing import OURS, UNDONE, WHOLE
from cdc_assets.lake.tables import DeltaTables

Kind = Literal["doubled", "lost", "unclear", "appended", "removed", "changed"]

OR_EARLIER = "or one before it, a commit"
"""Operation of a commit that is only known by what it did."""
_OF_DAGSTER = "dagster:"
"""Beginning of application ids of the IO managers."""
_VACUUM = "VACUUM"
"""Beginning of the operations of a vacuum's two commits."""
_FIRST_SCAN = 50
"""Commits that are read of a table whose log was never read."""


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """A commit of another program, and what it did.

    Args:
        kind: `doubled` or `lost` rows, by a commit that says it changes none, or `unclear` if nobody can count them any more; or
            rows that it `appended` or `removed`; or some of these rows `changed`, where there are as many as before.
        rows: how many.
        operation: what its writer calls it.
        remedy: the next step if it cannot be undone; empty if a run undoes it.
    """

    directory: str
    version: int
    kind: Kind
    rows: int
    operation: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        by = f"version {self.version} of {self.directory}, {self.operation or 'a commit'} of another program"
        match self.kind:
            case "doubled":
                return f"{by}, has put {self.rows} rows in a second time"
            case "lost":
                return f"{by}, has lost {self.rows} rows that it was to rewrite"
            case "unclear":
                return f"{by}, has rewritten rows that cannot be counted any more"
            case "appended":
                return f"{by}, has appended {self.rows} rows that are not of this capture"
            case "removed":
                return f"{by}, has removed {self.rows} rows"
            case "changed":
                return f"{by}, has changed some of {self.rows} rows"

    @property
    def trouble(self) -> str:
        """What is to be done about rows that are there twice."""
        undo = "let a run of the capture, or of what else writes this table, undo it, which takes it a minute"
        return f"{self}. Next: {self.remedy or undo}; and see that other programs do not rewrite files while one runs"


@dataclass(frozen=True, slots=True)
class ForeignScan:
    """What was found in the log of a table.

    Args:
        newest: version up to which it was read.
        commits: of other programs that changed which rows there are, and were not undone; oldest first.
        is_whole: whether all commits were there, and none is unclear.
        is_vacuumed: whether another program has removed files that no version named then, and a commit after it may name.
        last: the newest commit that was read; None if there was none.
    """

    newest: int
    commits: tuple[ForeignCommit, ...] = ()
    is_whole: bool = True
    is_vacuumed: bool = False
    last: Commit | None = None


def scan_foreign(tables: DeltaTables, directory: str, since: int) -> ForeignScan:
    """Read the commits of a table from a version on.

    Args:
        since: the first version that is read; -1 if none ever was, which takes the newest commits.

    Raises:
        LakeError: the table cannot be read.
    """
    found, commits, undone, is_vacuumed = -1, list[ForeignCommit](), set[int](), False
    last: Commit | None = None
    start, end, is_whole = _bounds(tables, directory, since)
    version = start
    while True:
        commit = read_commit(tables.location, directory, version)
        if commit is None and version >= end:
            break
        if commit is not None:
            last = commit
            undone |= undone_by(commit)
            is_vacuumed |= commit.operation.startswith(_VACUUM) and not is_own(tables, commit)
            commits = [] if WHOLE in commit.about else commits
            one = judged(tables, directory, commit)
            if one is not None and one.kind == "unclear":
                is_whole = False
            elif one is not None:
                commits.append(one)
        found, version = version, version + 1
    newest = max(found, end - 1)
    return ForeignScan(newest, tuple(one for one in commits if one.version not in undone), is_whole, is_vacuumed, last)


def scan_from_checkpoint(tables: DeltaTables, directory: str) -> ForeignScan:
    """Read the newest commits of a table, back to one of this capture: what came since somebody has looked.

    Raises:
        LakeError: the table cannot be read.
    """
    version = newest_version(tables.location, directory)
    while (commit := read_commit(tables.location, directory, version)) is not None and not is_own(tables, commit):
        version -= 1
    return scan_foreign(tables, directory, version + 1)


def _bounds(tables: DeltaTables, directory: str, since: int) -> tuple[int, int, bool]:
    """The first version to read, the least that may be missing because it does not exist, and whether none before is gone."""
    if any(has_commit(tables.location, directory, version) for version in (since, since - 1) if version >= 0):
        return since, since, True  # there are some, or nothing is new
    tables.forget(directory)
    handle = tables.open(directory)
    if handle is None:
        return 0, 0, True
    newest = handle.version()
    if since > newest:
        return newest + 1, newest + 1, True
    return (since if since >= 0 else max(0, newest - _FIRST_SCAN)), newest + 1, since < 0


def undone_by(commit: Commit) -> set[int]:
    """Versions that a commit undoes."""
    return {int(version) for version in str(commit.about.get(UNDONE, "")).split(",") if version}


def is_own(tables: DeltaTables, commit: Commit) -> bool:
    """Whether a commit is of this capture, or of an asset of Dagster."""
    applications = commit.transactions.keys()
    named = tables.capture in applications or any(name.startswith(_OF_DAGSTER) for name in applications)
    return named or OURS in commit.about


def judged(tables: DeltaTables, directory: str, commit: Commit) -> ForeignCommit | None:
    """What a commit of another program did to the rows; None if it is not one, or changed none."""
    if is_own(tables, commit) or not (commit.added or commit.removed):
        return None
    more = rows_more(tables.location, directory, commit)
    if more is None and not commit.changes:
        return ForeignCommit(directory, commit.version, "unclear", 0, commit.operation)
    more = -commit.deleted if more is None else more
    kind: Kind = "appended" if more > 0 else "removed"
    if not commit.changes:
        kind = "doubled" if more > 0 else "lost"
    elif not more:
        kind, more = "changed", total_rows(tables.location, directory, commit.added) or 0
    if not more:
        return None
    return ForeignCommit(directory, commit.version, kind, abs(more), commit.operation)


def rows_more(location: Location, directory: str, commit: Commit) -> int | None:
    """How many rows more there are after a commit; None if the version before, or a file without a count, is gone.

    Raises:
        LakeAwayError: the store does not answer.
    """
    came = total_rows(location, directory, commit.added)
    if not commit.removed and commit.changes:
        return came
    try:
        before = rows_by_path(at_version(location, directory, commit.version - 1))
    except STORE_ERRORS as error:
        require_answer(location, directory, error)
        return None
    again = [path for path in commit.added if path in before]
    paths = {path for path in (*commit.removed, *again) if path in before}
    went = total_rows(location, directory, {path: before[path] for path in paths})
    return None if came is None or went is None else came - went


def at_version(location: Location, directory: str, version: int) -> DeltaTable:
    """A former version of a table."""
    return DeltaTable(location.uri(directory), version=version, storage_options=location.storage_options)


def total_rows(location: Location, directory: str, files: Mapping[str, int | None]) -> int | None:
    """Rows of files, of their footers where the log does not say; None if one of these is gone.

    Args:
        files: rows by path; None where the log does not say.

    Raises:
        LakeAwayError: the store does not answer.
    """
    try:
        return sum(_counted(location, directory, path) if rows is None else rows for path, rows in files.items())
    except STORE_ERRORS as error:
        require_answer(location, directory, error)
        return None


@lru_cache(maxsize=1024)
def _counted(location: Location, directory: str, path: str) -> int:
    with location.existing(directory).open_input_file(path) as stream:
        return int(pq.read_metadata(stream).num_rows)


def require_answer(location: Location, directory: str, error: Exception) -> None:
    """Check that an error is an answer of the store.

    Raises:
        LakeAwayError: it does not answer.
    """
    if isinstance(away := trouble(f"{location.uri(directory)} cannot be read", error, ""), LakeAwayError):
        raise away from error
