"""Topic tables: open them, adapt their structure, commit each window exactly once.

*Why a commit is exactly once.* Each commit carries the application transaction `(capture, window_id)`. Before a commit
the code checks whether the table has reached that window already; delta-rs refuses a commit whose application
transaction was changed by another writer since the handle was loaded. So of two writers of one window, one commits and
the other finds the window committed. Both would have written the same rows, because a window's bounds are fixed in the
manifest.

*Files of a lost or repeated attempt* are never deleted here: after an error it is unknown whether the commit succeeded,
and deleting committed files would lose data. Files without a commit are not part of any version; `upkeep.vacuum`
removes them.

*Generations.* `topic` is the first table of a topic, `topic@2` the next. A window may write to two of them (if a
hand-over to an incompatible structure lies inside it); each has its own application transaction, so each is repeated
independently.
"""

import time
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Self

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from cdc_assets.config.settings import CaptureConfig, LakeSettings
from cdc_assets.errors import LakeConflictError, LakeError, LakeFullError
from cdc_assets.lake.delta_log import CHECKPOINT_EVERY, LEAST_COMMITS, log_properties, repair, trim
from cdc_assets.lake.earlier import STATISTICS_PROPERTY, modernize
from cdc_assets.lake.evolution import fields_to_add, is_compatible, lake_schema
from cdc_assets.lake.files import STATISTICS, DataFile
from cdc_assets.lake.location import STORE_ERRORS, Location, trouble
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.presence import require_files

_ATTEMPTS = 5
"""Attempts of a commit that conflicts with another writer of the same table, such as a compaction."""

_REPLACED_MINUTES = 1
"""Retention of the log's entries of replaced files of a table that is often folded. Its checkpoints list them all, so ten
minutes of a busy stream doubled the cost of its commits; the files themselves stay for an hour (`run.housekeeping`)."""

HOOKS = PostCommitHookProperties(cleanup_expired_logs=False)
"""Delta-rs's own clean-up is off: it would list the whole log after each commit; `delta_log` does this work."""


class TopicTables:
    """All Delta tables below one location, with cached handles.

    A cached handle reads only new log entries; opening a table again costs three times as much (spec spark §5).

    Args:
        capture: application id of all commits.
        settings: retention of the log; the defaults of `LakeSettings` if None.
    """

    def __init__(self, location: Location, capture: str, settings: LakeSettings | None = None) -> None:
        self.location, self.capture = location, capture
        settings = settings or LakeSettings(location.root)
        self._log_commits, self._replaced_minutes = settings.log_commits, 60 * settings.retention_hours
        self._handles: dict[str, DeltaTable] = {}
        self._held: dict[str, Mark] = {}
        """Marks of tables with commits."""
        self._marks: dict[str, Mark] = {}
        self._seen: set[tuple[str, str]] = set()
        """Files that were checked and are not committed yet."""
        self.vacuumed: dict[str, float] = {}
        """When tables were vacuumed last, by `time.monotonic`."""
        self._lock = Lock()

    @classmethod
    def of(cls, config: CaptureConfig) -> Self:
        """The topic tables of a capture.

        Their application id is the topic prefix, as in their names, so it stays when the capture is renamed.
        """
        return cls(Location.of(config.lake), config.events.topic_prefix, config.lake)

    def separate(self) -> "TopicTables":
        """An instance with separate handles, refreshed only by their owner, for a small table whose files are replaced
        often."""
        found = TopicTables(self.location, self.capture)
        found._log_commits, found._replaced_minutes = LEAST_COMMITS, _REPLACED_MINUTES
        return found

    def open(self, directory: str) -> DeltaTable | None:
        """The table at its newest version, or None if there is none.

        Raises:
            LakeError: it exists but cannot be read.
        """
        try:
            handle = self._handles.get(directory)
            if handle is None:
                handle = self._loaded(directory)
                with self._lock:
                    self._handles[directory] = handle
            else:
                handle.update_incremental()
        except TableNotFoundError:
            return None
        except STORE_ERRORS as error:
            raise _unreadable(self.location.uri(directory), error) from error
        return handle

    def _loaded(self, directory: str) -> DeltaTable:
        uri, options = self.location.uri(directory), self.location.storage_options
        try:
            return DeltaTable(uri, storage_options=options)
        except TableNotFoundError:
            raise
        except DeltaError:
            if not repair(self.location, directory):
                raise
        return DeltaTable(uri, storage_options=options)

    def forget(self, directory: str) -> None:
        """Drop a handle, so that the next use reads the table from the store."""
        with self._lock:
            self._handles.pop(directory, None)
            self._held.pop(directory, None)

    def generations(self, topic: str) -> list[str]:
        """Directories of a topic, oldest first; empty if it has no table."""
        found: list[str] = []
        while self.open(directory := generation(topic, len(found) + 1)) is not None:
            found.append(directory)
        return found

    def directory_for(self, topic: str, schema: pa.Schema) -> str:
        """Directory for events of this structure: the newest generation that they fit, otherwise a new one.

        When a window is repeated, a structure keeps its generation, even if the window has opened a newer one.
        """
        existing = self.generations(topic)
        for directory in reversed(existing):
            handle = self.open(directory)
            if handle is not None and is_compatible(_arrow(handle), schema):
                return directory
        return generation(topic, len(existing) + 1)

    def ensure(self, directory: str, schema: pa.Schema) -> DeltaTable:
        """Create the table, or add the fields it lacks for events of this structure.

        Args:
            directory: directory of the topic table's generation.

        Raises:
            LakeError: the store refuses.
        """
        wanted = lake_schema(schema)
        try:
            handle = self.open(directory)
            if handle is None:
                handle = self._create(directory, wanted)
            missing = fields_to_add(_arrow(handle), wanted)
            if missing:
                handle.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)
                handle.update_incremental()
        except STORE_ERRORS as error:
            raise _unreadable(self.location.uri(directory), error) from error
        return handle

    def _create(self, directory: str, schema: pa.Schema) -> DeltaTable:
        if self.location.is_local:
            self.location.filesystem(directory)
        handle = DeltaTable.create(
            self.location.uri(directory),
            schema=Schema.from_arrow(schema),
            mode="ignore",
            configuration=self._properties(schema),
            storage_options=self.location.storage_options,
        )
        handle.update_incremental()
        with self._lock:
            self._handles[directory] = handle
        return handle

    def _properties(self, schema: pa.Schema) -> dict[str, str]:
        narrow = {STATISTICS_PROPERTY: STATISTICS} if STATISTICS in schema.names else {}
        return log_properties(self._replaced_minutes) | narrow

    def reached(self, directory: str) -> int:
        """Number of the last window committed to this table, or -1."""
        handle = self.open(directory)
        version = None if handle is None else self._transaction(handle, directory)
        return -1 if version is None else version

    def _transaction(self, handle: DeltaTable, directory: str) -> int | None:
        """Version of the application transaction, also if the table's folder was removed after it was opened."""
        try:
            return handle.transaction_version(self.capture)
        except STORE_ERRORS as error:
            self.forget(directory)
            raise _unreadable(self.location.uri(directory), error) from error

    def row_count(self, topic: str) -> int:
        """Number of rows of a topic in all its generations, from the Delta log alone."""
        return sum(
            _row_count(handle) for directory in self.generations(topic) if (handle := self.open(directory)) is not None
        )

    def require_files(self, files: Mapping[str, Sequence[DataFile]]) -> None:
        """Check that the files written by tasks exist, before they are recorded or committed.

        Args:
            files: by directory of the topic table's generation.

        Raises:
            LakeError: a file is missing or truncated, so none of them may be committed.
        """
        require_files(self.location, files)
        self._seen.update((directory, file.path) for directory, written in files.items() for file in written)

    def commit(
        self,
        directory: str,
        schema: pa.Schema | None,
        files: Sequence[DataFile],
        window_id: int,
        metadata: Mapping[str, str],
    ) -> bool:
        """Commit files, once for each window.

        Args:
            directory: directory of the topic table's generation.
            schema: schema of the events, to which the table is adapted first; None if `ensure` was called.
            files: files written below `directory`.
            window_id: version of the application transaction.
            metadata: commit metadata, such as from_lsn and to_lsn.

        Returns:
            False if this window was committed already.

        Raises:
            LakeConflictError: other writers committed first `_ATTEMPTS` times.
            LakeError: the store refuses, or a file is missing (`presence`).
        """
        for attempt in range(_ATTEMPTS):
            handle = self.open(directory) if schema is None else self.ensure(directory, schema)
            if handle is None:
                raise LakeError(
                    f"The Delta table {directory} no longer exists. Next: restore it; positions cannot be reconstructed otherwise."
                )
            reached = self._transaction(handle, directory)
            if reached is not None and reached >= window_id:
                return False
            if not files:
                return False
            if new := [file for file in files if (directory, file.path) not in self._seen]:
                self.require_files({directory: new})
            try:
                mark = self._behind(handle, directory, files, window_id)
                self._append(handle, files, window_id, metadata, "append")
            except CommitFailedError:
                self.forget(directory)
                time.sleep(0.05 * attempt)
                continue
            except STORE_ERRORS as error:
                self.forget(directory)
                raise _unreadable(self.location.uri(directory), error) from error
            with self._lock:
                self._held[directory] = self._marks[directory] = mark
                self._seen.difference_update((directory, file.path) for file in files)
            self._trim(directory, mark.version)
            return True
        if self.reached(directory) >= window_id:
            return False
        raise LakeConflictError(
            f"{directory}: another writer committed first {_ATTEMPTS} times in a row. "
            "Next: the window is repeated; stop other writers of this table if it happens again."
        )

    def _behind(self, handle: DeltaTable, directory: str, files: Sequence[DataFile], window_id: int) -> Mark:
        """The mark of a table after a commit; if another writer commits in between, its version is later."""
        held = self._held.get(directory)
        rows = held.rows if held is not None and held.version == handle.version() else self._counted(handle, held)
        return Mark(window_id, handle.version() + 1, rows + sum(file.rows for file in files))

    @staticmethod
    def _counted(handle: DeltaTable, held: Mark | None) -> int:
        """Number of rows of a table to which others may have committed; lower than before only if rows were deleted."""
        rows = _row_count(handle)
        return rows if held is None or rows >= held.rows or deleted_from(handle) else held.rows

    def _trim(self, directory: str, version: int) -> None:
        """Shorten the log after a checkpoint was written."""
        if (version + 1) % CHECKPOINT_EVERY == 0:
            trim(self.location, directory, self._log_commits)

    def modernize(self, directory: str) -> None:
        """Upgrade the properties and statistics of a table made by an earlier release.

        Raises:
            LakeError: the store refuses.
        """
        handle = self.open(directory)
        if handle is None:
            return
        try:
            changed = modernize(handle, self._properties(_arrow(handle)))
        except STORE_ERRORS as error:
            self.forget(directory)
            raise _unreadable(self.location.uri(directory), error) from error
        if changed:
            self.forget(directory)

    def remove_files(self, directory: str, paths: Sequence[str]) -> None:
        """Remove damaged data files from a table's log.

        Raises:
            LakeError: the store refuses.
        """
        handle = self.open(directory)
        if handle is None or not paths:
            return
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [RemoveAction(path, True, now) for path in paths]
        try:
            handle.create_write_transaction(actions, "append", handle.schema())
        except STORE_ERRORS as error:
            raise _unreadable(self.location.uri(directory), error) from error
        finally:
            self.forget(directory)

    def holds(self, directory: str) -> bool:
        """Whether a directory is a table with commits of this capture."""
        try:
            return self.reached(directory) >= 0
        except LakeError:
            return False
        finally:
            self.forget(directory)

    def fresh_marks(self) -> dict[str, Mark]:
        """Marks of tables with commits that are not recorded in the manifest yet."""
        with self._lock:
            return dict(self._marks)

    def forget_marks(self, recorded: Mapping[str, Mark]) -> None:
        """Drop these marks, which are recorded now."""
        with self._lock:
            self._marks = {name: mark for name, mark in self._marks.items() if recorded.get(name) != mark}

    def kept(self, directory: str) -> DeltaTable:
        """The cached handle, not refreshed."""
        return self._handles[directory]

    def commit_fenced(self, directory: str, file: DataFile, sequence: int, mode: str) -> bool:
        """Commit with the cached handle without refreshing it; for the manifest.

        Returns:
            False if another writer has committed `sequence` in the meantime; the handle is then dropped.
        """
        handle = self.kept(directory)
        try:
            self._append(handle, [file], sequence, {}, mode)
            handle.update_incremental()
        except CommitFailedError:
            self.forget(directory)
            return False
        except STORE_ERRORS as error:
            if self._has_landed(directory, file):
                return True
            raise _unreadable(self.location.uri(directory), error) from error
        self._trim(directory, handle.version())
        return handle.transaction_version(self.capture) == sequence

    def _has_landed(self, directory: str, file: DataFile) -> bool:
        """Whether a commit exists, after an error that does not say so. If not, the cached handle stays unchanged."""
        kept = self.kept(directory)
        self.forget(directory)
        handle = self.open(directory)
        landed = handle is not None and file.path in pa.table(handle.get_add_actions())["path"].to_pylist()
        if not landed:
            with self._lock:
                self._handles[directory] = kept
        return landed

    def _append(
        self, handle: DeltaTable, files: Sequence[DataFile], window_id: int, metadata: Mapping[str, str], mode: str
    ) -> None:
        properties = CommitProperties(
            custom_metadata=dict(metadata),
            max_commit_retries=_ATTEMPTS,
            app_transactions=[Transaction(self.capture, window_id, int(time.time() * 1000))],
        )
        actions: list[AddAction | RemoveAction] = [file.action() for file in files]
        handle.create_write_transaction(
            actions, mode, handle.schema(), commit_properties=properties, post_commithook_properties=HOOKS
        )


def generation(topic: str, number: int) -> str:
    """Directory of a topic's n-th generation, from 1."""
    return topic if number == 1 else f"{topic}@{number}"


def deleted_from(handle: DeltaTable) -> bool:
    """Whether rows were deleted on purpose, as far back as the log goes."""
    return any(entry.get("operation") == "DELETE" for entry in handle.history())


def _row_count(handle: DeltaTable) -> int:
    return sum(count or 0 for count in pa.table(handle.get_add_actions())["num_records"].to_pylist())


def _arrow(handle: DeltaTable) -> pa.Schema:
    return pa.schema(handle.schema().to_arrow())


def _unreadable(uri: str, error: Exception) -> LakeError | LakeFullError:
    return trouble(f"The Delta table {uri} cannot be read or written", error, "check the path and its rights")
