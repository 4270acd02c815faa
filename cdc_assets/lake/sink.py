"""How rows enter a table: each append is handed to a sink, which commits it.

A sink may do what it likes before and after the commit, and add metadata to it. The sinks of a run in Dagster are its IO
managers; that of the command line commits and does nothing else (`DIRECT`).

*Why no sink can break exactly once.* Files, number and application transaction stay with the table; what a sink passes on
adds metadata, under names that nothing else has. Whether rows are there is known by what `commit` did, not by what
the sink says of it:

| a sink | then |
|---|---|
| raises before the commit | nothing is committed; the same number is tried again (`SinkError`), or the run ends (`TerminalError`) |
| raises after the commit | the same; the repeat finds the number taken |
| returns without a commit | the run ends; nothing is committed |
| catches an error of the commit | the error is raised anyway |
| commits twice | the second commit finds the number taken |
| commits in another thread, after its call has ended | the commit is refused; if it had begun before, the repeat finds the number taken |
| takes so long that another run takes over | it finds the number taken, or left out, as any late writer does |
| dies with its process | as at the same place without a sink |

*Not handed to a sink* is what the library records for itself: numbers that are taken without files (`TopicTables.leave_out`),
new columns, the manifest, marks, files in place of others (`replacing`), mirrors.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final, Protocol

import pyarrow as pa

from cdc_assets.errors import InvalidValueError, LakeError, SinkError, TerminalError, describe_error, shortened
from cdc_assets.lake.files import DataFile

log = logging.getLogger(__name__)

_OWN = "cdc."
"""Beginning of names of this library in a commit's metadata."""


class Commit:
    """The commit of an append, and what became of it.

    Args:
        make: commits with more metadata than the library's own; False if the number is taken.
    """

    def __init__(self, make: Callable[[Mapping[str, str]], bool]) -> None:
        self._make, self._lock = make, Lock()
        self._is_tried = self._is_closed = False
        self.landed: bool | None = None
        self.error: BaseException | None = None

    def __call__(self, metadata: Mapping[str, str]) -> bool:
        with self._lock:
            if self._is_closed:
                raise LakeError("`write` has ended without this commit. Next: commit within the call.")
            self._is_tried = True
        try:
            landed = self._make(metadata)
        except BaseException as error:
            self.error = error
            raise
        self.landed = landed or bool(self.landed)
        return landed

    def close(self) -> bool:
        """Have no commit begin any more, in no thread; whether one has begun, so that it may be there."""
        with self._lock:
            self._is_closed = True
            return self._is_tried


@dataclass(frozen=True, slots=True, eq=False)
class Append:
    """Rows that are about to enter a table: files that are written, and what their commit will say.

    Args:
        application: who appends: a capture by its topic prefix, an asset of Dagster by its run and step.
        directory: directory of the table in the lake.
        number: number of the window, round or batch; of heartbeats and notifications a time, of what an asset returns 1. A
            table takes each once from each application.
        files: data files, by their path below the directory.
        metadata: metadata of the commit.
    """

    application: str
    directory: str
    number: int
    files: Sequence[DataFile]
    metadata: Mapping[str, str]
    _columns: Callable[[], pa.Schema] = field(repr=False)
    _commit: Commit = field(repr=False)

    @property
    def topic(self) -> str:
        """The topic, whichever of its generations this is."""
        return self.directory.partition("@")[0]

    @property
    def rows(self) -> int:
        """Number of rows, tombstones included."""
        return sum(file.rows for file in self.files)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows."""
        return self._columns()

    def with_metadata(self, more: Mapping[str, str]) -> "Append":
        """The same append, with more metadata of its commit, as `DeltaTable.history` shows it.

        Args:
            more: texts by names with a dot, such as `acme.team`; those that begin with `cdc.` are the library's.

        Raises:
            InvalidValueError: a name or a value is another.
        """
        for name, text in more.items():
            if "." not in name or name.startswith(_OWN):
                raise InvalidValueError(
                    "name in a commit's metadata", name, f"one with a dot, not {_OWN}…", "name it like acme.team"
                )
            if not isinstance(text, str):
                raise InvalidValueError(f"metadata {name} of a commit", text, "a text", "give str(…) of it")
        return replace(self, metadata={**self.metadata, **more})


class Sink(Protocol):
    """What appends are handed to."""

    def write(self, append: Append) -> bool:
        """Commit an append; called from several threads, and again for a number if it was interrupted.

        Returns:
            Whether this call committed it; False if the table has its number already.
        """


class _Direct:
    def write(self, append: Append) -> bool:
        return commit(append)


DIRECT: Final[Sink] = _Direct()
"""Commits, and does nothing else."""


def commit(append: Append) -> bool:
    """Commit an append, once for its number.

    Returns:
        False if the table has the number already, so that these rows, or the same of another attempt, are there.

    Raises:
        LakeConflictError, LakeFullError, LakeAwayError: not this time.
        FencedError: another run has taken over.
        LakeError: the lake cannot be written, or a file is missing.
    """
    return append._commit(append.metadata)  # noqa: SLF001 - of this module, and nobody else's


def hand_over(sink: Sink, append: Append) -> bool:
    """Have a sink commit an append; see the module's head.

    Returns:
        Whether it was committed; False if the table had its number already.

    Raises:
        SinkError: the sink raised; the same append may be tried again.
        LakeError: it raised a `TerminalError`, or returned without a commit.
        CdcError: the commit failed.
    """
    made, name = append._commit, f"{type(sink).__name__}.write"  # noqa: SLF001 - the same
    what = f"of {append.directory} under number {append.number}"
    try:
        sink.write(append)
    except Exception as error:
        is_tried = made.close()
        if made.landed is None and made.error is not None:
            if error is made.error:
                raise
            raise made.error from error
        log.exception("%s raised, %s.", name, what)
        raised = (
            f"{name} raised {shortened(describe_error(error))} {'after' if is_tried else 'before'} the commit {what}."
        )
        if isinstance(error, TerminalError):
            raise LakeError(
                f"{raised} Nothing is lost. Next: do what it says; the next run repeats the append."
            ) from error
        again = f"{raised} Nothing is lost: it is repeated. Next: if it is raised again, correct it."
        raise SinkError(again, is_tried=is_tried) from error
    made.close()
    if made.landed is None:
        raise made.error or LakeError(
            f"{name} returned without the commit {what}. Nothing is lost. Next: have it call super().write(append), which alone "
            "commits; rows that it adds to the table by a commit of its own are there once more."
        )
    return made.landed
