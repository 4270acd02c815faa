"""Delta tables below one location: open them, adapt their structure, append files to them.

A handle is cached and reads only new log entries; opening a table again costs three times as much (spec spark §5). On a disk it is
asked first whether there are any, which takes microseconds where delta-rs takes a millisecond or more, and whether it is the folder that
was opened: a table that has another one's name may have its versions, too.
"""

import time
from collections.abc import Mapping, Sequence
from threading import Lock
from types import MappingProxyType

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, TableFeatures, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError

from cdc_assets.config.settings import LakeSettings
from cdc_assets.errors import LakeAwayError, LakeError, LakeFullError
from cdc_assets.lake.commits import Place, is_newest, is_there, place_of
from cdc_assets.lake.delta_log import CHECKPOINT_EVERY, MIN_COMMITS, log_properties, repair, trim
from cdc_assets.lake.evolution import fields_to_add, lake_schema
from cdc_assets.lake.files import DataFile
from cdc_assets.lake.location import STORE_ERRORS, Location, trouble

STATISTICS_PROPERTY = "delta.dataSkippingStatsColumns"
"""Delta's property that names the columns of which files tell bounds."""
COMMIT_ATTEMPTS = 5
"""Attempts of a commit that conflicts with another writer of the same table, such as a compaction."""
_FEATURES = {"timestampNtz": TableFeatures.TimestampWithoutTimezone, "invariants": TableFeatures.Invariants}
"""Features of tables with timestamps without zone. Once a table names features, NOT NULL is one of them: Spark does not read it else."""
_PLAIN = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Features of Delta tables whose files hold their rows as they are."""
_REPLACED_MINUTES = 1
"""Retention of the log's entries of replaced files of a table that is often folded. Its checkpoints list them all, so ten
minutes of a busy stream doubled the cost of its commits; the files themselves stay for an hour (`run.housekeeping`)."""

HOOKS = PostCommitHookProperties(cleanup_expired_logs=False)
"""Delta-rs's own clean-up is off: it would list the whole log after each commit; `delta_log` does this work."""


class DeltaTables:
    """All Delta tables below one location, with cached handles.

    Args:
        capture: application id of all commits.
        settings: retention of the log; the defaults of `LakeSettings` if None.
    """

    def __init__(self, location: Location, capture: str, settings: LakeSettings | None = None) -> None:
        self.location, self.capture = location, capture
        settings = settings or LakeSettings(location.root)
        self._log_commits, self._replaced_minutes = settings.log_commits, 60 * settings.retention_hours
        self._handles: dict[str, DeltaTable] = {}
        self._places: dict[str, Place | None] = {}
        """Where the handles' logs are, on a disk."""
        self.vacuumed: dict[str, float] = {}
        """When tables were vacuumed last, by `time.monotonic`."""
        self._lock = Lock()

    def separate(self) -> "DeltaTables":
        """An instance with separate handles, refreshed only by their owner, for a small table whose files are replaced
        often."""
        found = DeltaTables(self.location, self.capture)
        found._log_commits, found._replaced_minutes = MIN_COMMITS, _REPLACED_MINUTES
        return found

    def open(self, directory: str) -> DeltaTable | None:
        """The table at its newest version, or None if there is none.

        Raises:
            LakeError: it exists but cannot be read.
        """
        try:
            handle = self._handles.get(directory)
            if handle is None:
                handle = self._kept(directory)
            elif not (self.location.on_disk and self._is_newest(directory, handle)):
                if self.is_in_place(directory, gone=True):
                    handle.update_incremental()
                else:
                    self.forget(directory)
                    handle = self._kept(directory)
        except TableNotFoundError:
            return None
        except STORE_ERRORS as error:
            raise unreadable(self.location.uri(directory), error) from error
        return handle

    def _is_newest(self, directory: str, handle: DeltaTable) -> bool:
        return is_newest(self.location, directory, handle.version(), self._places.get(directory))

    def is_in_place(self, directory: str, *, gone: bool = False) -> bool:
        """Whether the log of a handle that is kept is where it was, as far as a disk says so.

        Args:
            gone: what holds where no log is.

        Raises:
            LakeError: that cannot be seen.
        """
        now = place_of(self.location, directory) if self.location.on_disk else None
        if now is None:
            return gone or not self.location.on_disk
        return now == self._places.get(directory)

    def take_place(self, directory: str, place: Place | None) -> None:
        """Note that the log of a handle that is kept is at another place now, and still the same one."""
        with self._lock:
            self._places[directory] = place

    def _kept(self, directory: str) -> DeltaTable:
        """The table, opened again; where it is is asked before, so that a later question finds what has come in between."""
        place = place_of(self.location, directory)
        handle = self._loaded(directory)
        with self._lock:
            self._handles[directory], self._places[directory] = handle, place
        return handle

    def _loaded(self, directory: str) -> DeltaTable:
        uri, options = self.location.uri(directory), self.location.storage_options
        while True:
            try:
                return DeltaTable(uri, storage_options=options)
            except TableNotFoundError:
                raise
            except DeltaError:
                if not repair(self.location, directory):  # which removes one file of the log at least
                    raise

    def forget(self, directory: str) -> None:
        """Drop a handle, so that the next use reads the table from the store."""
        with self._lock:
            self._handles.pop(directory, None)

    def forget_all(self) -> None:
        """Drop all handles."""
        for directory in list(self._handles):
            self.forget(directory)

    def kept(self, directory: str) -> DeltaTable:
        """The cached handle, not refreshed."""
        return self._handles[directory]

    def ensure(self, directory: str, schema: pa.Schema) -> DeltaTable:
        """Create the table, or add the fields it lacks for events of this structure.

        Args:
            directory: directory of the topic table's generation.

        Raises:
            LakeError: the store refuses.
        """
        return self._adapted(directory, self.open(directory), schema)

    def _adapted(
        self,
        directory: str,
        handle: DeltaTable | None,
        schema: pa.Schema,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> DeltaTable:
        """The table that was opened, or a new one, which gets more properties, with the fields of events of this structure."""
        wanted, is_new = lake_schema(schema), handle is None
        try:
            handle = handle or self._create(directory, wanted, more)
            missing = fields_to_add(arrow_schema(handle), wanted)
            if missing:
                handle.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)
                handle.update_incremental()
            if missing or is_new:
                allow_plain_timestamps(handle, wanted)
        except STORE_ERRORS as error:
            raise unreadable(self.location.uri(directory), error) from error
        return handle

    def _create(self, directory: str, schema: pa.Schema, more: Mapping[str, str]) -> DeltaTable:
        if self.location.is_local:
            self.location.filesystem(directory)
        handle = DeltaTable.create(
            self.location.uri(directory),
            schema=Schema.from_arrow(schema),
            mode="ignore",
            configuration={**self.properties(schema), **more},
            storage_options=self.location.storage_options,
            raise_if_key_not_exists=False,
        )
        if self.location.on_disk:
            return self._kept(directory)
        handle.update_incremental()
        with self._lock:
            self._handles[directory] = handle
        return handle

    def properties(self, schema: pa.Schema) -> dict[str, str]:
        """Delta's properties that a table of these columns has."""
        del schema
        return log_properties(self._replaced_minutes)

    def reached(self, directory: str) -> int:
        """Number of the last commit to this table, such as a window's, or -1."""
        handle = self.open(directory)
        version = None if handle is None else self.transaction(handle, directory)
        return -1 if version is None else version

    def transaction(self, handle: DeltaTable, directory: str, application: str = "") -> int | None:
        """Version of an application transaction, by default the capture's; also if the table's folder was removed after it
        was opened."""
        try:
            return handle.transaction_version(application or self.capture)
        except STORE_ERRORS as error:
            self.forget(directory)
            raise unreadable(self.location.uri(directory), error) from error

    def holds(self, directory: str) -> bool | None:
        """Whether a directory is a table with commits of this capture; None if that is not known, since it cannot be read."""
        try:
            return self.reached(directory) >= 0
        except LakeError:
            return None if directory.startswith(self.capture) or self._has_log(directory) else False
        finally:
            self.forget(directory)

    def _has_log(self, directory: str) -> bool:
        try:
            return is_there(self.location, directory)
        except LakeError:  # such as a disk's lost+found
            return False

    def append_files(
        self,
        handle: DeltaTable,
        files: Sequence[DataFile],
        number: int,
        metadata: Mapping[str, str],
        also: Sequence[str] = (),
    ) -> None:
        """Commit files under a number, with the version of the handle as it is.

        Args:
            number: version of the application transaction.
            also: other application ids that get the number.

        Raises:
            CommitFailedError: another writer has committed that number, or changed the table.
        """
        properties = CommitProperties(
            custom_metadata=dict(metadata),
            max_commit_retries=COMMIT_ATTEMPTS,
            app_transactions=[Transaction(name, number, int(time.time() * 1000)) for name in (self.capture, *also)],
        )
        handle.create_write_transaction(
            [file.action() for file in files],
            "append",
            handle.schema(),
            commit_properties=properties,
            post_commithook_properties=HOOKS,
        )

    def trim(self, directory: str, version: int) -> None:
        """Shorten the log after a checkpoint was written."""
        if (version + 1) % CHECKPOINT_EVERY == 0:
            trim(self.location, directory, self._log_commits)


def allow_plain_timestamps(handle: DeltaTable, schema: pa.Schema) -> None:
    """Have a table allow timestamps without zone if there are some; Delta knows them only in tables that say so."""
    if missing := missing_features(handle, schema):
        handle.alter.add_feature(missing, allow_protocol_versions_increase=True)
        handle.update_incremental()


def missing_features(handle: DeltaTable, schema: pa.Schema) -> list[TableFeatures]:
    """Features that a table with these columns must name and does not."""
    if not any(_has_plain_timestamps(field.type) for field in schema):
        return []
    known = handle.protocol().writer_features or ()
    return [feature for name, feature in _FEATURES.items() if name not in known]


def _has_plain_timestamps(kind: pa.DataType) -> bool:
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return kind.tz is None if pa.types.is_timestamp(kind) else any(_has_plain_timestamps(part) for part in inner)


def require_plain(directory: str, handle: DeltaTable) -> None:
    """Check that the rows of a table are those of its files.

    Raises:
        LakeError: they are not, because another program has changed the table.
    """
    other = set(handle.protocol().reader_features or ()) - _PLAIN
    if handle.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        other.add("columnMapping")
    if handle.metadata().partition_columns:
        other.add("partition columns")
    if other:
        raise LakeError(
            f"The table {directory} uses {', '.join(sorted(other))}, so its rows cannot be read from its files only. "
            "Next: read it with a reader that knows this, and find the program that has changed it."
        )


def arrow_schema(handle: DeltaTable) -> pa.Schema:
    """Columns of a table."""
    return pa.schema(handle.schema().to_arrow())


def unreadable(uri: str, error: Exception) -> LakeError | LakeFullError | LakeAwayError:
    """What to raise when a table cannot be read or written."""
    return trouble(f"The Delta table {uri} cannot be read or written", error, "check the path and its rights")
