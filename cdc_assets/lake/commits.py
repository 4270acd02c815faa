"""What single commits of a Delta log say, read as the files that they are.

`DeltaTable.history` gives neither files nor application transactions, and reads the whole log.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import fs

from cdc_assets.errors import LakeAwayError, LakeError, LakeFullError
from cdc_assets.lake.location import STORE_ERRORS, Location, trouble

_DELETED = ("num_deleted_rows", "numDeletedRows")
"""Names under which delta-rs and Spark record how many rows a DELETE removed."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit.

    Args:
        added: rows of each file that it adds; None if it does not say.
        removed: paths of the files that it removes.
        changes: whether it says that it changes rows.
        transactions: versions by application id.
        about: `commitInfo`, with the metadata of whoever committed.
    """

    version: int
    added: Mapping[str, int | None]
    sizes: Mapping[str, int]
    removed: tuple[str, ...]
    changes: bool
    transactions: Mapping[str, int]
    about: Mapping[str, Any]
    is_plain: bool = True
    """Whether it has files and application transactions only: no other structure or properties."""

    @property
    def operation(self) -> str:
        """What its writer calls it, such as `OPTIMIZE`; empty if it does not say."""
        return str(self.about.get("operation", ""))

    @property
    def deleted(self) -> int:
        """Rows that it says to have deleted."""
        metrics = self.about.get("operationMetrics") or {}
        return max((int(metrics[name]) for name in _DELETED if name in metrics), default=0)


_LOG = "_delta_log"


def commit_path(version: int) -> str:
    """A commit's file, below the table's directory."""
    return f"{_LOG}/{_file_name(version)}"


def _file_name(version: int) -> str:
    return f"{version:020d}.json"


def read_commit(location: Location, directory: str, version: int) -> Commit | None:
    """A commit; None if the log has none of this version, or no longer.

    Raises:
        LakeError: it cannot be read.
    """
    path, files = commit_path(version), location.existing(directory)
    try:
        if files.get_file_info(path).type == fs.FileType.NotFound:
            return None
        with files.open_input_stream(path) as stream:
            return parse_commit(version, [json.loads(line) for line in stream.read().splitlines()])
    except (*STORE_ERRORS, ValueError, KeyError, TypeError) as error:
        place = f"{location.uri(directory)}/{path}"
        raise trouble(f"The commit {place} cannot be read", error, "check the path and its rights") from error


def has_commit(location: Location, directory: str, version: int) -> bool:
    """Whether the log has a commit of this version.

    Raises:
        LakeError: it cannot be read.
    """
    try:
        info = location.existing(directory).get_file_info(commit_path(version))
    except STORE_ERRORS as error:
        raise _unreadable(location, directory, error) from error
    return bool(info.type != fs.FileType.NotFound)


def _unreadable(location: Location, directory: str, error: Exception) -> LakeError | LakeFullError | LakeAwayError:
    return trouble(f"The log of {location.uri(directory)} cannot be read", error, "check the path and its rights")


Place = tuple[int, int]
"""Device and number of a log's folder on a disk, which another folder of that name does not have."""


def is_newest(location: Location, directory: str, version: int, place: Place | None = None) -> bool:
    """Whether the log has this version and none after it: nobody has written since, nor shortened the log after it, nor put an older
    copy in its place.

    Args:
        place: of the log on a disk that is meant; None for any.

    Raises:
        LakeError: it cannot be read.
    """
    if not location.on_disk:
        return not has_commit(location, directory, version + 1) and has_commit(location, directory, version)
    with _folder(location, directory, FileNotFoundError) as folder:
        if folder is None or place not in (None, _place(folder)):
            return False
        return _is_in(folder, version) and not _is_in(folder, version + 1)


def place_of(location: Location, directory: str) -> Place | None:
    """Where a log is now; None if there is none, or if it is not on a disk.

    Raises:
        LakeError: it cannot be read.
    """
    if not location.on_disk:
        return None
    with _folder(location, directory, FileNotFoundError, NotADirectoryError) as folder:
        return None if folder is None else _place(folder)


@contextmanager
def _folder(location: Location, directory: str, *gone: type[OSError]) -> Iterator[int | None]:
    try:
        folder = os.open(location.path(f"{directory}/{_LOG}"), os.O_RDONLY | os.O_DIRECTORY)  # asks a file server anew
    except gone:
        yield None
        return
    except OSError as error:
        raise _unreadable(location, directory, error) from error
    try:
        yield folder
    except OSError as error:
        raise _unreadable(location, directory, error) from error
    finally:
        os.close(folder)


def _place(folder: int) -> Place:
    about = os.fstat(folder)
    return about.st_dev, about.st_ino


def _is_in(folder: int, version: int) -> bool:
    try:
        os.stat(_file_name(version), dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def is_there(location: Location, directory: str) -> bool:
    """Whether a folder of commits is seen now, without reading any; an object store may not say so of one that is there.

    Raises:
        LakeError: it cannot be read.
    """
    try:
        info = location.existing(directory).get_file_info(_LOG)
    except STORE_ERRORS as error:
        raise _unreadable(location, directory, error) from error
    return bool(info.type != fs.FileType.NotFound)


def parse_commit(version: int, actions: Iterable[Mapping[str, Any]]) -> Commit:
    """A commit of its actions.

    Raises:
        ValueError, KeyError, TypeError: they have another form.
    """
    added: dict[str, int | None] = {}
    sizes: dict[str, int] = {}
    removed: list[str] = []
    transactions: dict[str, int] = {}
    about: Mapping[str, Any] = {}
    changes, is_plain = False, True
    for action in actions:
        if (add := action.get("add")) is not None:
            added[add["path"]] = json.loads(add.get("stats") or "{}").get("numRecords")
            sizes[add["path"]] = add["size"]
            changes |= add.get("dataChange", True)
        if (remove := action.get("remove")) is not None:
            removed.append(remove["path"])
            changes |= remove.get("dataChange", True)
        if (transaction := action.get("txn")) is not None:
            transactions[transaction["appId"]] = transaction["version"]
        is_plain &= "metaData" not in action and "protocol" not in action
        about = action.get("commitInfo") or about
    return Commit(version, added, sizes, tuple(removed), changes, transactions, about, is_plain)


def rows_by_path(handle: DeltaTable) -> dict[str, int | None]:
    """Rows of each file of a table's version; None if the log does not say."""
    found = pa.table(handle.get_add_actions())
    return dict(zip(found["path"].to_pylist(), found["num_records"].to_pylist(), strict=True))
