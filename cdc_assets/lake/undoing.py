"""Undoes commits of other programs that put rows in twice (`foreign`).

*Undoing it* needs neither the server nor the rows: the files that it added go, and those that it removed and that were there
come back. A file that was there and that it only describes again, as a commit of statistics does, stays. Undoing may not be possible any
more: its files were rewritten in turn, vacuum has taken the former ones, or its rows cannot be counted. Then files of a
topic with overlapping positions are read, and each event stays once (`positions`).

*A crash between any two steps*: a commit that undoes another one names its version, so it is undone once.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from cdc_assets.errors import LAKE_ERRORS, InvariantError
from cdc_assets.lake.commits import read_commit, rows_by_path
from cdc_assets.lake.foreign import ForeignCommit, at_version, require_answer, total_rows
from cdc_assets.lake.location import STORE_ERRORS
from cdc_assets.lake.presence import missing_files
from cdc_assets.lake.replacing import UNDONE, Fence, KnownFile, Replacement
from cdc_assets.lake.rewriting import rewrite_files
from cdc_assets.lake.tables import DeltaTables


def undo(tables: DeltaTables, commit: ForeignCommit, fence: Fence) -> bool:
    """Undo a commit that put rows in a second time; False if its files, or those before it, are not there any more.

    Raises:
        FencedError: another writer has taken over.
    """
    try:
        wanted = _undoing(tables, commit)
        return wanted is not None and rewrite_files(tables, commit.directory, wanted, fence)
    except (*LAKE_ERRORS, InvariantError):
        return False


def can_be_undone(tables: DeltaTables, commit: ForeignCommit) -> bool:
    """Whether the files of a commit that put rows in a second time, and those before it, are all there.

    Raises:
        LakeError: the table cannot be read.
    """
    tables.forget(commit.directory)
    handle, wanted = tables.open(commit.directory), _undoing(tables, commit)
    if handle is None or wanted is None:
        return False
    live = rows_by_path(handle)
    if not set(wanted.paths(live)) <= live.keys():
        return False
    return not missing_files(tables.location, {commit.directory: wanted.add})


def _undoing(tables: DeltaTables, commit: ForeignCommit) -> Replacement | None:
    """What undoes a commit, and removes as many rows as it has put in; None if the log does not tell any more.

    Raises:
        LakeAwayError: the store does not answer.
        LakeError: the commit cannot be read.
    """
    directory, location = commit.directory, tables.location
    made = read_commit(location, directory, commit.version)
    if made is None:
        return None
    try:
        before = pa.table(at_version(location, directory, commit.version - 1).get_add_actions()).to_pylist()
    except STORE_ERRORS as error:
        require_answer(location, directory, error)
        return None
    back = [_former(row) for row in before if row["path"] in made.removed]
    described = {row["path"] for row in before}.difference(made.removed)
    new = {path: rows for path, rows in made.added.items() if path not in described}
    came, went = total_rows(location, directory, new), sum(file.rows for file in back)
    if came is None or came - went != commit.rows:
        return None
    return Replacement(list(new), back, commit.rows, metadata={UNDONE: str(commit.version)})


def _former(row: Mapping[str, Any]) -> KnownFile:
    """A file of a former version, with what the log said of it."""
    stats: dict[str, object] = {"numRecords": row["num_records"]}
    for name, known in (("minValues", "min"), ("maxValues", "max"), ("nullCount", "null_count")):
        if found := dict(_plain(row.get(known) or {})):
            stats[name] = found
    written = row["modification_time"]
    return KnownFile(row["path"], row["size_bytes"], row["num_records"] or 0, written, json.dumps(stats))


def _plain(found: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    return ((name, value) for name, value in found.items() if isinstance(value, str | int))
