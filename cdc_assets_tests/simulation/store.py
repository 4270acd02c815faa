"""The lake's store as actors meet it: others take their turns before and behind each commit, and answers are lost.

Every commit of the product, of whatever kind, is one call of Delta's `create_write_transaction`; so is every fault here.

*A law of commits:* a writer that was overtaken before it asked its fence removes no files any more. It is overtaken if another one has
committed to the same ledger since it committed itself, or took over: who takes over anew carries out what another one has recorded,
without a row of its own.
"""

import errno
import io
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError
from pyarrow import fs

import cdc_assets
from cdc_assets.errors import InvariantError, LakeConflictError
from cdc_assets.lake import tables
from cdc_assets.lake.location import Location
from cdc_assets.ledger.fenced_log import FencedLog, Row
from cdc_assets_tests.simulation.scheduler import Actor, Scheduler

_LEDGERS: Final = {
    "capture": "shop.__windows",
    "snapshot": "shop.__windows",
    "forget": "shop.__windows",
    "mirror": "shop.__mirrors",
    "rebuild": "shop.__mirrors",
    "reconcile": "shop.__mirrors",
}
"""Where the only writer of its kind is known by its rows."""


def kind_of(about: Mapping[str, str]) -> str:
    """What a commit is for, by its metadata; empty for one of a ledger."""
    if "cdc.replaced" in about:
        return "replacement in "
    if "left_out" in about:
        return "number left out in "
    if about.get("snapshot") == "incremental":
        return "READs in "
    if "snapshot_id" in about:
        return "round in "
    return "window in " if "window_id" in about else ""


def _full(name: str) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)


class _FullFile(io.RawIOBase):
    """A file that takes no byte."""

    def writable(self) -> bool:
        return True

    def write(self, _: object) -> int:  # type: ignore[override]
        raise _full("")


class _FullFiles(fs.SubTreeFileSystem):
    """Files of a store without room: those that are begun stay empty."""

    def open_output_stream(self, path: str, *arguments: Any, **named: Any) -> pa.NativeFile:
        super().open_output_stream(path).close()
        return pa.PythonFile(_FullFile(), mode="w")


class Store:
    """The weather of commits.

    Args:
        next_fault: what happens to the next one: `lost` (it is made, and not answered), `repeated` (the store's client repeats a request
            whose answer was lost, and finds its own commit), `refused` (it is not made), or nothing.
        meant: text that the kind and table of this next one hold.
    """

    def __init__(self, scheduler: Scheduler, say: Callable[[str], None]) -> None:
        self._scheduler, self._say = scheduler, say
        self.next_fault, self.meant = "", ""
        self.full_until = 0
        """Turn until which there is no room for a file or a commit, whoever writes it."""
        self.on_replacement: Callable[[str], None] = lambda _: None
        """Called before files of a table are replaced."""
        self._rows = Counter[str]()
        """Commits to each ledger."""
        self._seen: dict[tuple[Actor, str], int] = {}
        """How many of them there were when a writer last took over or committed."""
        self._overtaken: list[Actor] = []
        """Those who were overtaken when they last asked."""

    @property
    def is_full(self) -> bool:
        """Whether nothing more can be written."""
        return self._scheduler.turn < self.full_until

    def _hear(self, record: logging.LogRecord) -> bool:
        """Whoever says that another writer was first must have had one, and nobody reports a fault of the product."""
        actor = self._scheduler.current
        told = [one for one in record.args or () if isinstance(one, LakeConflictError) and "another writer" in str(one)]
        if told and actor is not None and not actor.has_rivals:
            self._scheduler.accused.append(f"{actor.name} had no rival, and said: {record.getMessage()}")
        if actor is not None and any(isinstance(one, InvariantError) for one in record.args or ()):
            self._scheduler.accused.append(f"{actor.name} said: {record.getMessage()}")
        return True

    def reach(self, step: str) -> None:
        """A named step of an actor: a pause."""
        self._scheduler.pause(step)
        actor = self._scheduler.current
        if step == "replacement-checked" and actor is not None:
            self._overtaken = [other for other in self._overtaken if other is not actor]
            ledger = _LEDGERS.get(actor.kind, "")
            if self._seen.get((actor, ledger), self._rows[ledger]) != self._rows[ledger]:
                self._overtaken.append(actor)

    def _note(self, kind: str, name: str) -> None:
        """A commit is made."""
        actor = self._scheduler.current
        if actor is None:
            return
        if kind.startswith("replacement") and actor in self._overtaken:
            self._scheduler.accused.append(f"{actor.name} was overtaken, and then replaced files of {name}")
        if name in _LEDGERS.values():
            self._rows[name] += 1
            self._stands_at_end(name)

    def _stands_at_end(self, ledger: str) -> None:
        """An actor knows all rows of a ledger."""
        if (actor := self._scheduler.current) is not None:
            self._seen[actor, ledger] = self._rows[ledger]

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        """Within it each commit passes here."""
        kind = tables.DeltaTable  # quick ones, or delta-rs's
        made = kind.create_write_transaction

        def commit(table: Any, *arguments: Any, **named: Any) -> None:
            name, what = Path(table.table_uri).name, kind_of(named["commit_properties"].custom_metadata)
            place = f"{what}{name}"
            self._scheduler.pause(f"commit of {place}")
            if self.is_full:
                raise _full(place)
            fault = ""
            if self.next_fault and self.meant in place:
                fault, self.next_fault, self.meant = self.next_fault, "", ""
            if fault == "refused":
                self._say(f"a commit of {place} is refused")
                raise OSError("status code: 503, the store is busy")
            if what.startswith("replacement"):
                self.on_replacement(name)
            made(table, *arguments, **named)
            self._note(what, name)
            if fault == "lost":
                self._say(f"the answer of a commit of {place} is lost")
                raise OSError("status code: 503, the answer is lost")
            if fault == "repeated":
                self._say(f"a commit of {place} is requested twice")
                raise CommitFailedError(f"Transaction failed: Version {table.version() + 1} already exists")
            self._scheduler.pause(f"behind a commit of {place}")

        opened, written = Location.filesystem, Location.write

        def filesystem(location: Location, directory: str) -> fs.FileSystem:
            found = opened(location, directory)
            return _FullFiles(found.base_path, found.base_fs) if self.is_full else found

        def write(location: Location, directory: str, name: str, content: bytes) -> None:
            if self.is_full:
                raise _full(name)
            written(location, directory, name, content)

        claimed = FencedLog.claim

        def claim(log: FencedLog, known: Mapping[str, Sequence[Row]] | None = None) -> Sequence[Row]:
            rows = claimed(log, known)
            self._stands_at_end(log.directory)
            return rows

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kind, "create_write_transaction", commit)
            patch.setattr(FencedLog, "claim", claim)
            patch.setattr(Location, "filesystem", filesystem)
            patch.setattr(Location, "write", write)
            listener = logging.Handler()
            listener.addFilter(self._hear)
            listener.emit = lambda _: None  # type: ignore[method-assign]
            logging.getLogger(cdc_assets.__name__).addHandler(listener)
            try:
                yield
            finally:
                logging.getLogger(cdc_assets.__name__).removeHandler(listener)
