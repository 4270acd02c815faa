"""The law of exactly once, written once: bounds → tasks → files → one commit a table → complete → report.

A window of the log, a round of a snapshot, a chunk, a batch of a connector, a fold of a mirror and a rewriting of files are steps.
What a step reads, and how it is evaluated, is its own; in which order things are recorded and committed is said only here:

1. its number is used once; if it can be read twice, number and bounds are in a record before anything is read (the planner's part);
2. tasks read and write files, which no commit names; the results are evaluated, so it is decided which of them count (its kind's part);
3. the process that commits has found all files itself, with their size, before it records or commits any;
4. if the step cannot be read twice, its files are recorded; if readers may miss what it removes, they are informed;
5. each table takes its files in one commit, which carries the number: group after group, those of a group side by side;
6. the step is recorded as complete, and then reported.

*Why each row is there once.* A table takes a number once (`topics`, `replacing`), whoever commits it. If a step can be read
twice, every attempt makes the same rows, since the bounds are the same and what lies within them does not change; so it does
not matter which attempt a table has taken. If it cannot, what is recorded is committed, and never made again under its number.
A rewriting has no number: a table takes it at exactly the version that has the files which go (`rewriting`).

| crash after | a step that can be read twice (window, fold) | one that cannot (round, chunk, batch) | a rewriting of files |
|---|---|---|---|
| bounds | the same are read again | the same: nothing was committed | it has none |
| files | no commit names them: vacuum | the same | the same; the next attempt decides again |
| the record of the files | – | they are committed; what is lost of them (`lost_files`) is for the step: a table fails, a chunk is read again under another number, a batch waits for a person | readers are refused what is still there |
| the commit of some tables | they have the number; the others follow | the same | the others stay until the next attempt |
| all commits | it is completed | the same | the next attempt completes it |

*Two writers.* Both may commit, each table takes one of them; only one can record the step as complete, since the record is
fenced. Whoever leaves a table behind takes its number first (`TopicTables.leave_out`), so that nobody else's files can follow.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from cdc_assets.core.steps import step as reach
from cdc_assets.errors import LakeError, SinkError
from cdc_assets.lake.files import DataFile, remove_attempt
from cdc_assets.lake.presence import WrittenFile, missing_files
from cdc_assets.lake.topics import TopicTables

_THREADS = 8
"""Commits of different tables overlap; a commit is mostly waiting (spec spark §3)."""

RequireFiles = Callable[[Mapping[str, Sequence[WrittenFile]]], None]
"""Raises LakeError if a file, by its table's directory, is not there."""


class Change(Protocol):
    """The commit of a step in one table."""

    @property
    def directory(self) -> str:
        """The table's directory in the lake."""

    @property
    def files(self) -> Sequence[WrittenFile]:
        """What enters it, written below the directory."""

    @property
    def reached(self) -> str:
        """The named step after the commit (`core.steps`); empty if there is none."""

    def commit(self, number: int) -> None:
        """Commit the files, unless the table has the number."""


@dataclass(frozen=True, slots=True)
class Events:
    """Events that enter a topic table.

    Args:
        metadata: of the commit.
        attempt: part of the names of files that each attempt writes again, so that those of which no commit has begun can be
            removed at once; empty if they are recorded.
    """

    tables: TopicTables
    directory: str
    files: Sequence[DataFile]
    metadata: Mapping[str, str]
    attempt: str = ""
    reached: str = "table-committed"

    def commit(self, number: int) -> None:
        """Have the table's sink commit the events, once."""
        try:
            self.tables.commit(self.directory, None, self.files, number, self.metadata)
        except SinkError as error:
            # a sink raises again and again, every few seconds, and each attempt writes all of them again
            if self.attempt and not error.is_tried:
                remove_attempt(self.tables.location, [self.directory], number, self.attempt)
            raise


def window_facts(number: int, files: Sequence[DataFile], **more: str) -> dict[str, str]:
    """Metadata of a commit that a number of the manifest has."""
    return {"window_id": str(number), "rows": str(sum(file.rows for file in files)), **more}


def nothing() -> None:
    """What a step does that has nothing to record, and no reader to inform."""


@dataclass(frozen=True)
class Step:
    """Work whose files are written, by tasks just now, or, if they are recorded, by an earlier run.

    Args:
        number: of its commits.
        commits: group after group; no table is in two of them.
        record: called before the first commit: records the files, if they cannot be made again; informs readers of what they will not
            find any more.
        complete: called after the last commit: records that all tables have their files, and reports it.
        is_recorded: whether an earlier run has called `record`.
    """

    number: int
    commits: Sequence[Sequence[Change]]
    record: Callable[[], None] = nothing
    complete: Callable[[], None] = nothing
    is_recorded: bool = False


def carry_out(step: Step, require_files: RequireFiles) -> None:
    """Record a step, commit its files and complete it, from where an earlier attempt has left it; see the module's head.

    Raises:
        FencedError: another writer has taken over.
        LakeError: a file is missing, or the lake cannot be written; the step is as far as it is.
    """
    if not step.is_recorded:
        require_files({change.directory: change.files for group in step.commits for change in group if change.files})
        step.record()
    for group in step.commits:
        _commit(step.number, group)
    step.complete()


def _commit(number: int, group: Sequence[Change]) -> None:
    if len(group) < 2:
        for change in group:
            change.commit(number)
            _reach(change)
        return
    with ThreadPoolExecutor(min(_THREADS, len(group))) as pool:
        for change, _ in zip(group, pool.map(lambda change: change.commit(number), group), strict=True):
            _reach(change)


def _reach(change: Change) -> None:
    if change.reached:
        reach(change.reached)


def leave_out_if_readable(tables: TopicTables, directory: str, number: int) -> bool:
    """Make sure that no writer commits to a table under a number any more; False if one has.

    A table that Delta cannot read needs no number, since no writer can commit to it.
    """
    try:
        return tables.leave_out(directory, number)
    except LakeError:
        return True


def lost_files(tables: TopicTables, number: int, files: Mapping[str, Sequence[DataFile]]) -> dict[str, str]:
    """Tables that cannot take recorded files any more: these are gone, or the table is, or their number was left out.

    Where files are gone the number is left out now, so that nobody else commits those that are not.

    Args:
        files: recorded ones, by directory.

    Returns:
        What is wrong, by directory.

    Raises:
        LakeError: the lake cannot be read.
    """
    waiting = {name: written for name, written in files.items() if not tables.committed(name, number)}
    gone = {name: "the log of its table is gone" for name in waiting if tables.open(name) is None}
    lacking = missing_files(tables.location, waiting)
    lost = {
        name: ", ".join(f"{path} is {what}" for path, what in found.items())
        for name, found in lacking.items()
        if tables.leave_out(name, number)  # otherwise somebody has committed them just now
    }
    others = [name for name in waiting if name not in lost and tables.left_out(name, number)]
    return gone | lost | dict.fromkeys(others, "another run has left them out")
