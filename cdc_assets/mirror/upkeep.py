"""Removes files of mirrors that steps have replaced, and joins the small files of `history`.

A step replaces whole leaves, and each one adds a file to `history`. As for topics, replaced files stay for
`lake.retention.hours`, for readers that opened the table before; a loop searches for them after each tenth of that time.
Leaves are never joined here: their names tell their keys, so that is a matter of steps.

It runs after the commits of steps, in the process that has made them. Two processes may follow one mirror, such as a run and a
reconciliation: the ledger's fence is checked, and what the other one has joined is left alone (`lake.replacing`). A step that
failed leaves files that no commit names; it writes them again when it is repeated. *Crash between any two steps*: joining is a
Delta commit that changes no row and keeps the application transactions, and vacuum removes what no version within the
retention names. What was not done is done after a later step.
"""

import logging
import time
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pyarrow as pa

from cdc_assets.config.settings import LakeSettings
from cdc_assets.core.ports import TaskRunner
from cdc_assets.errors import LAKE_ERRORS, LakeError
from cdc_assets.lake import upkeep
from cdc_assets.lake.foreign import ForeignCommit, scan_foreign, scan_from_checkpoint
from cdc_assets.lake.joining import Joined, JoinTask
from cdc_assets.lake.replacing import Fence
from cdc_assets.lake.undoing import can_be_undone
from cdc_assets.lake.watch import ForeignWatch
from cdc_assets.mirror.delta import MirrorTables, current_directory, history_directory
from cdc_assets.mirror.files import FileWriter, portions_of
from cdc_assets.mirror.shape import TO_LSN

log = logging.getLogger(__name__)

_THREADS = 8
"""Number of parallel requests to a store."""


def tidy(
    tables: MirrorTables,
    settings: LakeSettings,
    runner: TaskRunner,
    fence: Fence,
    watch: ForeignWatch,
    topics: Iterable[str],
) -> None:
    """Undo what other programs have put into `history` a second time, join its small files, and vacuum both tables of
    mirrors unless that was done a short time ago.

    Raises:
        FencedError: another writer has taken over.
    """
    topics = list(topics)
    watch.check(map(history_directory, topics))
    for commit in watch.left:
        log.warning("%s.", _with_remedy(tables, commit).trouble)
    upkeep.tidy(tables.tables, settings, runner, fence, map(history_directory, topics), join_versions)
    vacuum = upkeep.Upkeep(tables.tables, settings)
    for topic in topics:
        for directory in (history_directory(topic), current_directory(topic)):
            vacuum.try_vacuum(directory)


def join_versions(task: JoinTask) -> Joined:
    """Join files of `history`."""
    plain = pa.schema([field.with_nullable(True) for field in task.schema])
    try:
        writer = FileWriter(task.location, task.directory, f"joined-{uuid4().hex}.parquet", task.schema, [TO_LSN])
        for rows in portions_of(task.location, task.directory, task.paths, plain):
            writer.write(rows)
        return Joined((writer.end(),))
    except LAKE_ERRORS as error:
        return Joined(trouble=str(error))


def doubled_versions(tables: MirrorTables, topics: Collection[str], *, seconds: float | None) -> list[ForeignCommit]:
    """Commits of other programs that put versions into `history` a second time, and that nobody has undone; of a mirror whose log
    cannot be read, none.

    Args:
        topics: those that may have a mirror.
        seconds: time limit for reading what came after the newest step of each mirror; None reads all that the logs have.

    Raises:
        LakeAwayError: the store does not answer.
        LakeError: the lake cannot be listed.
    """
    began = time.monotonic()

    def of(directory: str) -> list[ForeignCommit]:
        if seconds is not None and time.monotonic() - began > seconds:
            return []
        try:
            seen = (
                scan_foreign(tables.tables, directory, -1)
                if seconds is None
                else scan_from_checkpoint(tables.tables, directory)
            )
            return [_with_remedy(tables, commit) for commit in seen.commits if commit.kind == "doubled"]
        except LakeError as error:
            log.warning("Whether %s holds rows twice is not known: %s", directory, error)
            return []

    names = sorted({history_directory(topic) for topic in topics} & set(tables.location.directories()))
    with ThreadPoolExecutor(_THREADS) as pool:
        return [commit for found in pool.map(of, names) for commit in found]


def _with_remedy(tables: MirrorTables, commit: ForeignCommit) -> ForeignCommit:
    """A commit with what is to be done if it cannot be undone, because its files were rewritten in turn or are gone."""
    if can_be_undone(tables.tables, commit):
        return commit
    topic = commit.directory.removesuffix(history_directory(""))
    return replace(
        commit,
        remedy=f"rebuild the mirror, because its files were rewritten meanwhile: cdc-assets mirror --rebuild {topic}",
    )
