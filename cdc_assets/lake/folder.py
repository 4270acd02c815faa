"""A folder of small files in the lake, next to the tables."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from pyarrow import fs

from cdc_assets.lake.location import STORE_ERRORS, Location, list_files, trouble

T = TypeVar("T")

MOVED_TO = "__reset"
"""Folder of the lake to which tables are moved that nothing uses any more."""


class Folder:
    """Files of one folder; every method may raise LakeError, or LakeFullError.

    Args:
        directory: the folder's name; it is created when something is written.
    """

    def __init__(self, location: Location, directory: str) -> None:
        self._location, self._directory = location, directory

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically: it is complete as soon as its name exists."""
        self._try("written", lambda: self._location.write(self._directory, name, content))

    def names(self, suffix: str) -> Sequence[str]:
        """Sorted names of files with this suffix."""
        found = self._try("listed", lambda: list_files(self._files()))
        return sorted(info.base_name for info in found if info.base_name.endswith(suffix))

    def read(self, name: str) -> bytes:
        """A file's content."""

        def content() -> bytes:
            with self._files().open_input_stream(name) as stream:
                return bytes(stream.read())

        return self._try("read", content)

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._try("emptied", lambda: self._files().delete_file(name))

    def drop(self) -> None:
        """Remove the folder and its files."""
        for name in self.names(""):
            self.remove(name)
        folder = Path(self._location.path(self._directory))
        if self._location.on_disk and folder.exists():
            self._try("removed", folder.rmdir)

    def _files(self) -> fs.FileSystem:
        return self._location.existing(self._directory)

    def _try(self, what: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except (*STORE_ERRORS, ValueError) as error:
            folder = self._location.uri(self._directory)
            raise trouble(f"The folder {folder} cannot be {what}", error, "check lake.path") from error
