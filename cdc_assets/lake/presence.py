"""Checks that data files exist where the Delta log says, or will say, with their full size.

*Before a commit.* A task may run on a machine that mounts another disk at the lake's path: it writes and reports files
that no other machine sees. So a commit names only files that the committing process has found itself, through its own
client of the store, with the size that the task reported; otherwise nothing is committed. All files of a window, or of
a round, are checked before the first of its tables is committed, and before the manifest records them. A network file
system may show a new file a moment late, so missing files are checked twice.

A file on a disk costs microseconds, one in an object store a request, of which many run in parallel. A listing would
return all files of the topic: thousands, compared with the few of a window.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from pyarrow import fs

from cdc_assets.errors import LakeError
from cdc_assets.lake.location import STORE_ERRORS, Location, list_files, trouble

_THREADS = 16
"""Number of parallel requests to a store."""
_FEW = 4
"""Maximum number of files that an audit checks one by one."""
_LATE_S = 1.0


class WrittenFile(Protocol):
    """What is known of a file that was written."""

    @property
    def path(self) -> str:
        """Below the table's directory."""

    @property
    def size(self) -> int:
        """Bytes."""


def require_files(location: Location, files: Mapping[str, Collection[WrittenFile]]) -> None:
    """Check that the files reported by tasks exist.

    Raises:
        LakeError: a file is missing or truncated, or the store cannot be queried.
    """
    missing = missing_files(location, files)
    for directory, found in missing.items():
        path, what = next(iter(found.items()))
        count = sum(map(len, missing.values()))
        others = f" (and {count - 1} more files)" if count > 1 else ""
        raise LakeError(
            f"A task wrote {path}{others}, which this process cannot see: it is {what} in {location.uri(directory)}. The lake at "
            f"{location.root} is not shared between driver and executors, or its files are being removed. Nothing was committed "
            "and all positions are unchanged. Next: set lake.path to a location that all of them share, such as an object store "
            "or a file system that each machine has mounted, or run the tasks only on this machine."
        )


def missing_files(location: Location, files: Mapping[str, Collection[WrittenFile]]) -> dict[str, dict[str, str]]:
    """Files that are missing or truncated, by topic directory, with the reason.

    Raises:
        LakeError: the store cannot be queried.
    """
    found = _missing_files(location, files)
    if found:
        time.sleep(_LATE_S)
        found = _missing_files(location, files)
    return found


def _missing_files(location: Location, files: Mapping[str, Collection[WrittenFile]]) -> dict[str, dict[str, str]]:
    found = {}
    for directory, written in files.items():
        sizes = {file.path: file.size for file in written}
        try:
            store = location.existing(directory)
            infos = store.get_file_info(list(sizes)) if location.on_disk else _asked(store, sizes)
        except STORE_ERRORS as error:
            raise trouble(
                f"{location.uri(directory)} cannot be read", error, "check the path and its rights"
            ) from error
        if lacking := _compared(sizes, infos):
            found[directory] = lacking
    return found


def _asked(store: fs.FileSystem, paths: Collection[str]) -> list[fs.FileInfo]:
    if len(paths) == 1:
        return list(store.get_file_info(list(paths)))
    with ThreadPoolExecutor(min(_THREADS, len(paths) or 1)) as pool:
        return list(pool.map(store.get_file_info, paths))


def damaged(files: fs.FileSystem, sizes: Mapping[str, int]) -> dict[str, str]:
    """Files of a table that are missing or smaller than its log says; files outside its directory are not checked."""
    relative = {path: size for path, size in sizes.items() if "://" not in path}
    return _compared(
        relative, files.get_file_info(list(relative)) if len(relative) < _FEW else _listed(files, relative)
    )


def _listed(files: fs.FileSystem, sizes: Mapping[str, int]) -> list[fs.FileInfo | None]:
    """Sizes of files by a listing, which returns a thousand names per request."""
    found = {info.base_name: info for info in list_files(files)}
    return [files.get_file_info(path) if "/" in path else found.get(path) for path in sizes]


def _compared(sizes: Mapping[str, int], infos: Iterable[fs.FileInfo | None]) -> dict[str, str]:
    return {
        path: "missing" if info is None or info.type != fs.FileType.File else f"{info.size} of {size} bytes long"
        for (path, size), info in zip(sizes.items(), infos, strict=True)
        if info is None or info.type != fs.FileType.File or info.size != size
    }
