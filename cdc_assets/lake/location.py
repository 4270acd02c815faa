"""Location of the lake, as a value that can be sent to tasks.

A local directory is the default; every URL that delta-rs's object store accepts (`s3://`, `abfss://`, `gs://`,
`file://`, …) works the same way, with `storage_options` as its credentials. Data files are written through the same
store client as the Delta log, so there is only one set of options.
"""

import errno
import re
import resource
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from cdc_assets.config.settings import LakeSettings
from cdc_assets.errors import ConfigurationError, LakeAwayError, LakeError, LakeFullError, has_credentials, lacking

_FILE = "file://"
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")


_PROBE = "__probe"
_OLD_PROBE_S = 600.0
"""Age in seconds after which a probe counts as abandoned."""

_COLOUR = re.compile("\x1b\\[[0-9;]*m")


_STACK = re.compile(r" 0: .* 1: .*")


def plain(error: BaseException) -> str:
    """An error's text in one line, without colours, line breaks and stacks of the store's client."""
    return _STACK.sub("", " ".join(_COLOUR.sub("", str(error)).split())).rstrip(".")


_NO_ROOM = re.compile(r"no space left|disk quota exceeded|os error (28|122)\b|storage ?full", re.IGNORECASE)
"""Texts of file systems, delta-rs and object stores for a full store; only file systems give an error number."""

_AWAY = re.compile(
    r"status code\W+(408|429|5\d\d)\b|HTTP error|connection (closed|reset|refused)|timed out", re.IGNORECASE
)
"""Texts of an object store's client, once it has given up, for a store that is busy or cannot be reached."""
_WRONG = re.compile(r"scheme is not allowed|builder error|certificate", re.IGNORECASE)
"""The same for settings with which no request can be made."""

STORE_ERRORS = (OSError, pa.ArrowException, DeltaError)
"""Exceptions of the libraries that write to the lake."""


def trouble(what: str, error: Exception, hint: str) -> LakeError | LakeFullError | LakeAwayError:
    """Translate a library's error: retryable if the disk is full or the store does not answer, terminal otherwise.

    Args:
        what: description for people, such as `The folder x cannot be written`.
        error: one of `STORE_ERRORS`.
        hint: next step if neither the disk is full nor the process lacks memory or the like.
    """
    text = plain(error)
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or _NO_ROOM.search(text):
        return LakeFullError(
            f"{what}: {text}. Nothing is lost: the capture continues from the same position. Next: free space in the lake "
            "(lake.retention.hours and lake.compact.after.files say how long replaced files are kept)."
        )
    if _AWAY.search(text) and not _WRONG.search(text):
        return LakeAwayError(
            f"{what}: {text}. Nothing is lost: the capture continues from the same position. Next: see whether the store can be "
            "reached (lake.path, lake.storage.option.<option>)."
        )
    more = lacking(error)
    return LakeError(f"{what}: {text}. Next: {f'give the process more {more}' if more else hint}.")


_ADDRESS_SPACE = 1_750_000_000
"""Bytes of address space below which the store's client was seen to hang or to abort the process, by a machine of two cores.

It reserves space for each thread that it starts. When it cannot start one, it may wait for that thread for ever, and its allocator
writes a line to the standard error about each of its attempts, millions of them.
"""


def list_files(files: fs.FileSystem, folder: str = "") -> list[fs.FileInfo]:
    """What is in a folder, without names that are not valid text, which are foreign; nothing if there is no such folder.

    Arrow asks whether the folder is there only after it could not be listed. If somebody creates it in between, that is an error.
    """
    selector = fs.FileSelector(folder, allow_not_found=True)
    try:
        found = files.get_file_info(selector)
    except FileNotFoundError:
        found = files.get_file_info(selector)
    return [info for info in found if _has_text_name(info)]


def _has_text_name(info: fs.FileInfo) -> bool:
    try:
        return bool(info.base_name)
    except UnicodeDecodeError:
        return False


def _require_address_space() -> None:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _ADDRESS_SPACE:
        raise LakeError(
            f"This process may use {limit // 1024:,} kB of address space (ulimit -v), expected at least "
            f"{_ADDRESS_SPACE // 1024:,}: what reads and writes the lake reserves so much, of which it uses little, and hangs with "
            "less. Next: raise that limit; to limit memory itself, use a container."
        )


@dataclass(frozen=True, slots=True)
class Location:
    """The directory that holds one Delta table per topic.

    Args:
        root: absolute local path or URL, without slash at the end.
        options: `storage_options` of the object store; may hold secrets, so not part of `repr`.
    """

    root: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, settings: LakeSettings) -> "Location":
        """The location of the settings; a relative local path is resolved against the working directory.

        Raises:
            LakeError: this process must not use as much address space as is needed to read or write there.
            ConfigurationError: its address, which is shown everywhere, holds a password.
        """
        _require_address_space()
        if has_credentials(settings.path):
            step = "give it as lake.storage.option.<option>"
            raise ConfigurationError("lake.path", settings.path, "an address without a password", step)
        if _URL.match(settings.path):
            return cls(settings.path.rstrip("/"), settings.storage_options)
        return cls(str(Path(settings.path).expanduser().absolute()), settings.storage_options)

    @property
    def is_local(self) -> bool:
        """Whether plain file access works."""
        return not _URL.match(self.root)

    @property
    def on_disk(self) -> bool:
        """Whether the files are in a file system of this machine, which every library can read."""
        return self.is_local or self.root.startswith(_FILE)

    @property
    def storage_options(self) -> dict[str, str] | None:
        """The options in delta-rs's form."""
        return dict(self.options) or None

    def uri(self, directory: str) -> str:
        """Address of one table's directory."""
        return f"{self.root}/{directory}"

    def path(self, directory: str) -> str:
        """Path of one table's directory, if it is `on_disk`."""
        return self.uri(directory).removeprefix(_FILE)

    def filesystem(self, directory: str) -> fs.FileSystem:
        """File system rooted at one table's directory, which is created if it is missing."""
        if self.is_local:
            path = Path(self.uri(directory))
            path.mkdir(parents=True, exist_ok=True)
            return fs.SubTreeFileSystem(str(path), fs.LocalFileSystem())
        if self.root.startswith(_FILE):  # needed for local directories; object stores have none
            Path(self.path(directory)).mkdir(parents=True, exist_ok=True)
        return fs.PyFileSystem(DeltaStorageHandler(self.uri(directory), self.storage_options))

    def existing(self, directory: str) -> fs.FileSystem:
        """As `filesystem`, but does not create the directory."""
        if self.on_disk:
            return fs.SubTreeFileSystem(self.path(directory), fs.LocalFileSystem())
        return fs.PyFileSystem(DeltaStorageHandler(self.uri(directory), self.storage_options))

    def directories(self) -> list[str]:
        """Names of the directories below the root, in order.

        Raises:
            LakeError: they cannot be listed.
        """
        try:
            found = list_files(self.existing(""))
        except STORE_ERRORS as error:
            raise trouble(
                f"The lake at {self.root} cannot be listed", error, "check the path and its rights"
            ) from error
        return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)

    def write(self, directory: str, name: str, content: bytes) -> None:
        """Write a small file atomically: it is complete as soon as its name exists.

        Raises:
            OSError, ValueError, pa.ArrowException, DeltaError: it cannot be written.
        """
        if self.is_local:
            path = Path(self.uri(directory)) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f"{name}.part")
            try:
                part.write_bytes(content)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
            return
        # written in parts: pyarrow passes a whole buffer on as an object that the store's client refuses
        with self.filesystem(directory).open_output_stream(name, buffer_size=len(content) + 1) as stream:
            stream.write(content)

    def check_writable(self) -> None:
        """Write and remove a small file, and remove files left by earlier probes that were killed.

        Raises:
            LakeFullError, LakeAwayError: the storage is full, or does not answer.
            LakeError: the lake cannot be written; nothing else was changed.
        """
        name = f"probe-{uuid4().hex}"
        try:
            self.write(_PROBE, name, b"probe")
            self.filesystem(_PROBE).delete_file(name)
        except (*STORE_ERRORS, ValueError) as error:
            hint = "check the path, its owner and the storage options (lake.path, lake.storage.option.<option>)"
            raise trouble(f"The lake at {self.root} cannot be written", error, hint) from error
        finally:
            self._tidy_probes()

    def _tidy_probes(self) -> None:
        """Remove abandoned probes. Other processes may be probing now; a file that cannot be removed does no harm."""
        with suppress(*STORE_ERRORS, ValueError):
            files = self.existing(_PROBE)
            for info in list_files(files):
                if info.mtime is None or time.time() - info.mtime.timestamp() > _OLD_PROBE_S:
                    files.delete_file(info.base_name)
            if self.on_disk:
                Path(self.path(_PROBE)).rmdir()
