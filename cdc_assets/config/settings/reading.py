"""Settings of snapshot, streaming and lake."""

from dataclasses import dataclass, field
from typing import Literal

from cdc_assets.core.identifiers import TableId

SnapshotMode = Literal[
    "always",
    "initial",
    "initial_only",
    "no_data",
    "recovery",
    "when_needed",
    "when_needed_no_data",
    "configuration_based",
]
IsolationMode = Literal["read_uncommitted", "read_committed", "repeatable_read", "exclusive", "snapshot"]
GapPolicy = Literal["fail", "resnapshot", "ignore"]
CleanupPolicy = Literal["delete", "compact"]


def _names(name: str, table: TableId) -> bool:
    return name.lower() in (table.within_database.lower(), str(table).lower())


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """Settings of snapshots (spec debezium-sqlserver §2).

    Args:
        mode: `snapshot.mode`.
        isolation: `snapshot.isolation.mode`.
        locking: `snapshot.locking.mode`; `none` takes no table locks.
        lock_timeout_ms: `snapshot.lock.timeout.ms`; 0 fails at once, -1 waits for ever.
        fetch_size: rows per Arrow batch (`snapshot.fetch.size`).
        partitions: key-range partitions of a table's snapshot asset (`snapshot.partitions`); fixed once the asset
            exists.
        slices_per_thread: `snapshot.max.threads.multiplier`: slices of a table per parallel reader.
        multipliers: (`schema.table` or `db.schema.table`, the same for that table) pairs.
        threads: `snapshot.max.threads`; 0 takes the task runner's parallelism.
        delay_s: `snapshot.delay.ms` in seconds.
        include: `snapshot.include.collection.list`; empty means all captured tables.
        overrides: (`schema.table` or `db.schema.table`, SELECT statement) pairs.
        order_by_row_count: `snapshot.tables.order.by.row.count`.
        data: rows are read at each start; this and the next four: `snapshot.mode.configuration.based.*`.
        schema: structures are recorded at each start.
        start_stream: changes are streamed afterwards.
        on_schema_error: structures are recorded when the schema history lacks them.
        on_data_error: rows are read when the position can no longer be read.
    """

    mode: SnapshotMode = "initial"
    isolation: IsolationMode = "read_committed"
    locking: Literal["exclusive", "none"] = "exclusive"
    lock_timeout_ms: int = 10_000
    fetch_size: int = 32_768
    partitions: int = 8
    slices_per_thread: int = 1
    multipliers: tuple[tuple[str, int], ...] = ()
    threads: int = 0
    delay_s: float = 0.0
    include: tuple[str, ...] = ()
    overrides: tuple[tuple[str, str], ...] = ()
    order_by_row_count: Literal["disabled", "ascending", "descending"] = "disabled"
    data: bool = False
    schema: bool = False
    start_stream: bool = False
    on_schema_error: bool = False
    on_data_error: bool = False

    def override_of(self, table: TableId) -> str:
        """The table's SELECT of `overrides`; empty if it has none. Letter case of the name is ignored."""
        return next((statement for name, statement in self.overrides if _names(name, table)), "")

    def slices_of(self, table: TableId) -> int:
        """Slices of a table per parallel reader."""
        return next((count for name, count in self.multipliers if _names(name, table)), self.slices_per_thread)


@dataclass(frozen=True, slots=True)
class StreamingSettings:
    """Settings of streaming (spec debezium-sqlserver §3).

    Args:
        poll_interval_s: `poll.interval.ms` in seconds: wait when there is nothing new.
        max_iteration_transactions: transactions per window at most; 0 sets no limit.
        window_rows: change rows at which a window ends (`rows.per.window`); 0 derives it from the number of parallel
            tasks.
        query_mode: `data.query.mode`.
        fetch_size: rows per Arrow batch (`query.fetch.size`).
        slices: parts a window is cut into (`slices.per.window`); 0 takes the task runner's parallelism.
        idle_timeout_s: seconds without a change after which a run ends; 0 never.
        max_duration_s: seconds after which a run ends at the next window border; 0 never.
        sensor_wait_s: `sensor.wait.ms` in seconds: how long a tick of Dagster's sensor waits for a change.
        delay_s: `streaming.delay.ms` in seconds: wait between snapshot and stream.
        gap_policy: reaction for a table whose changes were cleaned up before they were read.
        retry_wait_s: `retriable.restart.connector.wait.ms` in seconds.
        max_retries: `errors.max.retries`; -1 retries for ever.
        instance_include: regexes of capture instance names to use; empty means all.
        instance_exclude: regexes of capture instance names to leave out.
        agent_status_query: T-SQL giving one value, 1 if the Agent runs; `#db` stands for the database.
    """

    poll_interval_s: float = 0.5
    max_iteration_transactions: int = 100_000
    window_rows: int = 0
    query_mode: Literal["direct", "function"] = "direct"
    fetch_size: int = 32_768
    slices: int = 0
    idle_timeout_s: float = 10.0
    max_duration_s: float = 600.0
    sensor_wait_s: float = 4.0
    delay_s: float = 0.0
    gap_policy: GapPolicy = "fail"
    retry_wait_s: float = 10.0
    max_retries: int = -1
    instance_include: tuple[str, ...] = ()
    instance_exclude: tuple[str, ...] = ()
    agent_status_query: str = ""


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """Location of the Delta tables and their maintenance.

    Args:
        path: directory or object-store URL that holds one Delta table per topic.
        storage_options: options of the object store's client; may hold secrets, never printed.
        compact_after_files: number of small files at which a table is compacted; 0 never.
        target_file_bytes: target file size of compaction.
        retention_hours: age at which unreferenced files may be removed.
        log_commits: number of newest commits that stay in a table's Delta log.
        sample_rows: rows that asset pages show of a table; 0 for none.
        topic_hours: age of events that may be dropped from topics; 0 keeps all.
        topic_policy: which of them are: all (`delete`), or those that later ones of the same key replace (`compact`).
        topic_unmirrored: whether also topics without a mirror lose them.
    """

    path: str
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    compact_after_files: int = 200
    target_file_bytes: int = 128 * 1024 * 1024
    retention_hours: int = 2
    log_commits: int = 200
    sample_rows: int = 5
    topic_hours: int = 0
    topic_policy: CleanupPolicy = "delete"
    topic_unmirrored: bool = False


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Where metrics are exported (extra `metrics`).

    Args:
        port: port of `capture`; 0 serves none.
        address: address that the port is bound on.
        textfile: file that runs write them to; empty for none.
        otlp: whether runs push them by OpenTelemetry (extra `otel`).
    """

    port: int = 0
    address: str = "127.0.0.1"
    textfile: str = ""
    otlp: bool = False


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """Which tables have a mirror: their rows and the history of them in natural types.

    Args:
        enabled: whether runs keep mirrors.
        include: regexes of tables with a mirror; all if empty.
        interval_s: seconds from one step to the next while a loop runs.
        reconcile_ranges: key ranges of a table that a job compares with the server; 0 for all.
        settle_s: seconds after which a change that nobody has captured is believed not to be in flight.
    """

    enabled: bool = False
    include: tuple[str, ...] = ()
    interval_s: float = 30.0
    reconcile_ranges: int = 0
    settle_s: float = 15.0
