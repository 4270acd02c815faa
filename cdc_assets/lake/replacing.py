"""The one place where a commit removes files of a table: with others in their place, or with none.

*What Delta does not do for us.* A commit that removes files is only right if it finds them. delta-rs accepts one whose
files another writer has replaced meanwhile, and then every row of them is there twice; it repeats such a commit by
itself upon a newer version; and even without repetitions it accepts the removal of a file that the version before does
not have. So here, and only here (a test counts the places):

1. all files that go are found among those of version v, and hold its rows as they are: a file whose log says which of its rows
   are deleted would stay, and what was read of it come once more;
2. as many rows come as go, less those that the caller says it drops;
3. the caller's fence is checked: another writer may have taken over;
4. the commit becomes version v + 1, or none (`max_commit_retries=0`).

If it is refused, another writer has committed v + 1. Then all of it is done again upon the newest version: appends of
others do not matter, and if a file went, nothing is done. *Why no row is lost or there twice*: between v and v + 1 there
is nothing, so what is removed is what was found, and a writer that slept before the commit finds that its files went. The
fence is not needed for that; it keeps a writer that was overtaken from working on.

*How many rows are expected afterwards.* The commit itself says how many it drops (`expected`). So whoever compares a table with its
mark is right at any moment, whether the commit was made or not, and nobody has to record a number before it.

*An answer that is lost.* A commit names itself by a number of its own in its metadata. After a refusal, or an error that
does not say whether the commit is there, the log after v is read: if it has the number, the commit was made.

*A crash* leaves the commit or nothing of it; files that no version names are removed by vacuum.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import uuid4

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from cdc_assets.core.steps import step
from cdc_assets.errors import InvariantError, LakeConflictError, LakeError
from cdc_assets.lake.commits import read_commit, rows_by_path
from cdc_assets.lake.location import STORE_ERRORS, trouble
from cdc_assets.lake.presence import WrittenFile, require_files
from cdc_assets.lake.tables import HOOKS, DeltaTables, require_plain

OURS = "cdc.replaced"
"""Key of a commit's metadata under which it names itself; a commit without it is of another program."""
DROPPED = "cdc.dropped"
"""Key under which a commit says how many rows fewer the table has after it."""
UNDONE = "cdc.undone"
"""Key under which a commit that undoes one of another program names its version."""
WHOLE = "cdc.whole"
"""Key of commits that replace all files: what was wrong before them is gone."""
_ATTEMPTS = 10

Fence = Callable[[], None]
"""Raises FencedError if another writer has taken over."""


class NewFile(WrittenFile, Protocol):
    """A written file, with what a commit needs."""

    @property
    def rows(self) -> int:
        """Number of its rows."""

    def action(self, *, is_new: bool = True) -> AddAction:
        """The `add` action of Delta's log; `is_new` if it holds rows that the table did not have before."""


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file of a former commit, which comes back.

    Args:
        path: below the table's directory.
        size: bytes.
        rows: number of its rows.
        written_ms: when it was written, in milliseconds since 1970.
        statistics: as in the log, JSON.
    """

    path: str
    size: int
    rows: int
    written_ms: int
    statistics: str

    def action(self, *, is_new: bool = True) -> AddAction:
        """The `add` action of Delta's log."""
        return AddAction(self.path, self.size, {}, self.written_ms, is_new, self.statistics)


@dataclass(frozen=True)
class Replacement:
    """What a commit does to the files of a table.

    Args:
        remove: paths of the files that go; or which of the version's go, by their path; None takes all of them.
        add: files that come; one of one with the path of a removed file only describes it again.
        dropped: how many rows fewer come than go; None if what comes is not what goes, as in a fold.
        is_new: whether readers of the log see new rows in what comes.
        number: version of the application transaction; None for none.
        schema: structure of the table from now on, only if all files go; None leaves it.
        metadata: of the commit.
    """

    remove: Sequence[str] | Callable[[str], bool] | None
    add: Sequence[NewFile] = ()
    dropped: int | None = 0
    is_new: bool = False
    number: int | None = None
    schema: Schema | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    def paths(self, live: Iterable[str]) -> list[str]:
        """Paths of the files that go, of a version that has these."""
        if self.remove is None:
            return list(live)
        return [path for path in live if self.remove(path)] if callable(self.remove) else list(self.remove)


def replace_files(tables: DeltaTables, directory: str, wanted: Replacement, fence: Fence) -> bool:
    """Remove files of a table and add others in one commit; see the module's head.

    Args:
        fence: asked before the commit.

    Returns:
        False if the table has reached `number`, or has no files to remove and none come, nor another structure; nothing was done then.

    Raises:
        LakeConflictError: another writer has replaced a file that was to go, or was first again and again; nothing was done.
        FencedError: another writer has taken over.
        LakeError: the store refuses, there is no table, or a file is missing.
    """
    require_files(tables.location, {directory: wanted.add})
    own = uuid4().hex
    try:
        for _ in range(_ATTEMPTS):
            handle = tables.open(directory)
            if handle is None:
                raise LakeError(f"The Delta table {directory} no longer exists. Next: restore it from a copy.")
            if wanted.number is not None and _reached(tables, handle, directory) >= wanted.number:
                return False
            actions, dropped = _actions(directory, handle, wanted)
            if not actions and wanted.schema is None:
                return False
            step("replacement-checked")
            fence()
            about = {OURS: own} | ({DROPPED: str(dropped)} if dropped else {})
            if _commit(tables, directory, handle, wanted, actions, about):
                step("files-replaced")
                return True
    finally:
        tables.forget(directory)
    raise LakeConflictError(
        f"{directory}: another writer committed first {_ATTEMPTS} times in a row. Next: nothing, it is tried again; stop other "
        "writers of this table if it happens again."
    )


def _reached(tables: DeltaTables, handle: DeltaTable, directory: str) -> int:
    version = tables.transaction(handle, directory)
    return -1 if version is None else version


def _actions(
    directory: str, handle: DeltaTable, wanted: Replacement
) -> tuple[list[AddAction | RemoveAction], int | None]:
    """The file actions, all of whose files are there, and which lose no row; and how many rows fewer there are then, if that is known.

    Raises:
        LakeConflictError: a file went.
        LakeError: the rows of the table are not those of its files.
        InvariantError: rows would be lost or come twice.
    """
    if wanted.schema is None:
        require_plain(directory, handle)
    live = rows_by_path(handle)
    paths = wanted.paths(live)
    if gone := [path for path in paths if path not in live]:
        raise LakeConflictError(
            f"{directory}: another writer has replaced {gone[0]} meanwhile. Next: nothing, it is tried again with what is there now."
        )
    before = [live[path] for path in paths]
    come, go = sum(file.rows for file in wanted.add), sum(count or 0 for count in before)
    dropped = wanted.dropped if None in before else go - come
    if None not in (wanted.dropped, dropped) and wanted.dropped != dropped:
        raise InvariantError(
            f"{directory}: {len(paths)} files of {go} rows were to be replaced by {come} rows, less {wanted.dropped} that are "
            "dropped. Nothing was done. Next: report this."
        )
    same, now = {file.path for file in wanted.add}, int(time.time() * 1000)
    changes = wanted.is_new or wanted.dropped != 0
    removals: list[AddAction | RemoveAction] = [
        RemoveAction(path, changes, now) for path in paths if path not in same and wanted.schema is None
    ]
    return [*removals, *(file.action(is_new=wanted.is_new) for file in wanted.add)], dropped


def _commit(
    tables: DeltaTables,
    directory: str,
    handle: DeltaTable,
    wanted: Replacement,
    actions: list[AddAction | RemoveAction],
    about: Mapping[str, str],
) -> bool:
    """Commit after the version of the handle; False if another writer has."""
    version, now, own = handle.version(), int(time.time() * 1000), about[OURS]
    numbers = [] if wanted.number is None else [Transaction(tables.capture, wanted.number, now)]
    whole = {WHOLE: "true"} if wanted.remove is None else {}
    properties = CommitProperties(
        custom_metadata={**wanted.metadata, **whole, **about}, max_commit_retries=0, app_transactions=numbers
    )
    try:
        handle.create_write_transaction(
            actions,
            "append" if wanted.schema is None else "overwrite",
            handle.schema() if wanted.schema is None else wanted.schema,
            commit_properties=properties,
            post_commithook_properties=HOOKS,
        )
    except STORE_ERRORS as error:
        tables.forget(directory)
        if _was_made(tables, directory, version, own):
            return True
        if isinstance(error, CommitFailedError):
            return False
        place = tables.location.uri(directory)
        raise trouble(f"{place} cannot be written", error, "check the path and its rights") from error
    tables.trim(directory, version + 1)
    return True


def _was_made(tables: DeltaTables, directory: str, version: int, own: str) -> bool:
    """Whether a commit is in the log after a version, though its answer says otherwise or was lost."""
    while (found := read_commit(tables.location, directory, version := version + 1)) is not None:
        if found.about.get(OURS) == own:
            return True
    return False
