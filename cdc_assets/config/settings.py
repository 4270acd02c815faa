"""Typed settings, one frozen class per concern. `properties` builds them from Debezium's names."""

from dataclasses import dataclass, field
from typing import Literal

from cdc_assets.core.identifiers import TableId

TimeMode = Literal[
    "adaptive", "adaptive_time_microseconds", "connect", "microseconds", "nanoseconds", "isostring", "structured"
]
DecimalMode = Literal["precise", "double", "string"]
BinaryMode = Literal["bytes", "base64", "base64-url-safe", "hex"]
AdjustmentMode = Literal["none", "avro", "avro_unicode"]
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
FailureMode = Literal["fail", "warn", "skip"]
GapPolicy = Literal["fail", "resnapshot", "ignore"]
TextFormat = Literal["debezium", "flinkx"]


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How to reach the server. The password is not part of `repr`.

    Args:
        host: `database.hostname`.
        port: `database.port`.
        instance: `database.instance`, or empty.
        user: `database.user`.
        password: `database.password`; never printed.
        databases: `database.names`.
        encrypt: `driver.encrypt`: `no`, `yes` or `strict`; `yes` unless the stand-in is meant.
        trust_server_certificate: `driver.trustServerCertificate`.
        query_timeout_s: `database.query.timeout.ms` in seconds; 0 waits for ever.
        login_timeout_s: seconds until a login counts as failed.
        extra: further `driver.*` options passed to the ODBC driver.
    """

    host: str
    user: str
    password: str = field(repr=False)
    databases: tuple[str, ...]
    port: int = 1433
    instance: str = ""
    encrypt: Literal["no", "yes", "strict"] = "yes"
    trust_server_certificate: bool = False
    query_timeout_s: int = 600
    login_timeout_s: int = 15
    extra: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """Which schemas, tables and columns are captured (comma lists of anchored, case-insensitive regexes).

    Args:
        schema_include: `schema.include.list`; each list's exclude twin must be empty if it is not.
        table_include: `table.include.list`, matching `schema.table`.
        column_include: `column.include.list`, matching `schema.table.column`.
        ignore_builtin: leave out system tables.
        most_tables: `guardrail.collections.max`; 0 sets no limit.
        limit_action: `guardrail.collections.limit.action`: what happens above it.
        also: tables that are captured whatever the lists say, `db.schema.table` in lower case: signal tables.
    """

    schema_include: tuple[str, ...] = ()
    schema_exclude: tuple[str, ...] = ()
    table_include: tuple[str, ...] = ()
    table_exclude: tuple[str, ...] = ()
    column_include: tuple[str, ...] = ()
    column_exclude: tuple[str, ...] = ()
    ignore_builtin: bool = True
    most_tables: int = 0
    limit_action: Literal["warn", "fail"] = "warn"
    also: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """Hash, mask or cut one set of character columns (spec debezium-sqlserver §4.6); the first matching rule wins.

    Args:
        kind: `hash` (v1: digest of the Java-serialised text), `hash_v2` (digest of the UTF-8 text), `mask`, `truncate`.
        columns: anchored, case-insensitive regexes of `schema.table.column` or `db.schema.table.column`.
        length: asterisks of a mask or characters that remain after truncation; 0 for hashes.
        algorithm: Java name of a hash's digest, such as `SHA-256`; empty elsewhere.
        salt: of a hash; never printed.
    """

    kind: Literal["hash", "hash_v2", "mask", "truncate"]
    columns: tuple[str, ...]
    length: int = 0
    algorithm: str = ""
    salt: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class EventSettings:
    """How events look (spec debezium-sqlserver §4, §5).

    Args:
        message_key_columns: entries `table regex:column,column` of `message.key.columns`.
        column_filters: which columns values hold; its other fields are unused.
        column_rules: masks, hashes and truncations in the order of the file.
        propagate_columns: regexes of columns whose source type becomes schema parameters.
        propagate_types: regexes of `db.schema.table.TYPE` with the same effect.
        transaction_topic: last part of the transaction topic's name.
        conversion_failure: what to do with a value that does not fit its event type.
        sanitize_pattern: regex of what topic names may not hold; empty for Debezium's own rule.
    """

    topic_prefix: str
    topic_delimiter: str = "."
    time_mode: TimeMode = "adaptive"
    decimal_mode: DecimalMode = "precise"
    binary_mode: BinaryMode = "bytes"
    tombstones_on_delete: bool = True
    event_version: Literal["3", "2.3"] = "3"
    extended_headers: bool = True
    unavailable_value: str = "__debezium_unavailable_value"
    schema_name_adjustment: AdjustmentMode = "none"
    field_name_adjustment: AdjustmentMode = "none"
    message_key_columns: tuple[str, ...] = ()
    skipped_operations: frozenset[str] = frozenset({"t"})
    skip_unchanged: bool = False
    transaction_metadata: bool = False
    column_filters: FilterSettings = field(default_factory=FilterSettings)
    column_rules: tuple[ColumnRule, ...] = ()
    propagate_columns: tuple[str, ...] = ()
    propagate_types: tuple[str, ...] = ()
    transaction_topic: str = "transaction"
    conversion_failure: FailureMode = "warn"
    sanitize_pattern: str = ""


@dataclass(frozen=True, slots=True)
class TextSettings:
    """How events are printed; what the lake holds does not depend on it.

    Args:
        format: `value.format`: Debezium's JSON, or flat FlinkX records (spec debezium-sqlserver §12.2).
        paved: `flinkx.paving`: fields `before_x` and `after_x` in place of objects.
        split: `flinkx.split`: an update gives two records.
        key_schema: `key.converter.schemas.enable`.
        value_schema: `value.converter.schemas.enable`.
        key_defaults: `key.converter.replace.null.with.default`.
        value_defaults: `value.converter.replace.null.with.default`.
    """

    format: TextFormat = "debezium"
    paved: bool = True
    split: bool = False
    key_schema: bool = False
    value_schema: bool = False
    key_defaults: bool = True
    value_defaults: bool = True


def _names(name: str, table: TableId) -> bool:
    return name.lower() in (table.within_database.lower(), str(table).lower())


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """How tables are read as a whole (spec debezium-sqlserver §2).

    Args:
        mode: `snapshot.mode`.
        isolation: `snapshot.isolation.mode`.
        locking: `snapshot.locking.mode`; `none` takes no table locks.
        lock_timeout_ms: `snapshot.lock.timeout.ms`; 0 fails at once, -1 waits for ever.
        fetch_size: rows per Arrow batch (`snapshot.fetch.size`).
        partitions: key-range partitions of a table's snapshot asset (`snapshot.partitions`), fixed for its life.
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
        """The table's SELECT of `overrides`, letter case of its name ignored; empty if it has none."""
        return next((statement for name, statement in self.overrides if _names(name, table)), "")

    def slices_of(self, table: TableId) -> int:
        """Slices of a table per parallel reader."""
        return next((count for name, count in self.multipliers if _names(name, table)), self.slices_per_thread)


@dataclass(frozen=True, slots=True)
class StreamingSettings:
    """How the log is read (spec debezium-sqlserver §3).

    Args:
        poll_interval_s: `poll.interval.ms` in seconds: wait when there is nothing new.
        max_iteration_transactions: transactions per window at most; 0 sets no limit.
        query_mode: `data.query.mode`.
        fetch_size: rows per Arrow batch (`query.fetch.size`).
        slices: parts a window is cut into (`slices.per.window`); 0 takes the task runner's parallelism.
        idle_timeout_s: a run ends after so long without a change; 0 never.
        max_duration_s: a run ends after so long at the next window border; 0 never.
        delay_s: `streaming.delay.ms` in seconds: wait between snapshot and stream.
        gap_policy: what happens to a table whose changes were cleaned up unread.
        event_failure: `event.processing.failure.handling.mode`.
        retry_wait_s: `retriable.restart.connector.wait.ms` in seconds.
        max_retries: `errors.max.retries`; -1 retries for ever.
        instance_include: regexes of capture instance names to use; empty means all.
        instance_exclude: regexes of capture instance names to leave out.
        agent_status_query: T-SQL giving one value, 1 if the Agent runs; `#db` stands for the database.
        check_position: compare the stored position with the retention before streaming.
    """

    poll_interval_s: float = 0.5
    max_iteration_transactions: int = 100_000
    query_mode: Literal["direct", "function"] = "direct"
    fetch_size: int = 32_768
    slices: int = 0
    idle_timeout_s: float = 10.0
    max_duration_s: float = 600.0
    delay_s: float = 0.0
    gap_policy: GapPolicy = "fail"
    event_failure: FailureMode = "fail"
    retry_wait_s: float = 10.0
    max_retries: int = -1
    instance_include: tuple[str, ...] = ()
    instance_exclude: tuple[str, ...] = ()
    agent_status_query: str = ""
    check_position: bool = True


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """Where the tables lie and how they are kept.

    Args:
        path: directory or object-store URL that holds one Delta table per topic.
        storage_options: pairs for the object store's client, may hold secrets; never printed.
        compact_after_files: compact a table when it has so many small files; 0 never.
        target_file_bytes: size that compaction aims at.
        retention_hours: age at which files that no version uses may be removed.
    """

    path: str
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    compact_after_files: int = 200
    target_file_bytes: int = 128 * 1024 * 1024
    retention_hours: int = 168


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """Which schema changes are recorded and published (spec debezium-sqlserver §6)."""

    publish: bool = True
    """`include.schema.changes`."""
    only_captured_tables: bool = False
    """`schema.history.internal.store.only.captured.tables.ddl`."""
    only_captured_databases: bool = False
    """`schema.history.internal.store.only.captured.databases.ddl`."""


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """Signs of life on a topic of their own (spec debezium-sqlserver §10)."""

    interval_s: float = 0.0
    """`heartbeat.interval.ms` in seconds; 0 sends none."""
    topic_prefix: str = "__debezium-heartbeat"
    topic_name: str = ""
    """Complete topic name; empty builds it from the prefixes."""


@dataclass(frozen=True, slots=True)
class NotificationSettings:
    """Who is told about snapshots and instances (spec debezium-sqlserver §10.1)."""

    channels: tuple[str, ...] = ()
    """`notification.enabled.channels`: `sink`, `log`."""
    sink_topic: str = ""


@dataclass(frozen=True, slots=True)
class SignalSettings:
    """How a running capture is asked for snapshots (spec debezium-sqlserver §8, §9).

    Args:
        collections: `signal.data.collection`: `db.schema.table` of the signal table, one per database at most.
        channels: `signal.enabled.channels`: `source`, `file`, `kafka`.
        file: `signal.file`: one JSON object per line; renamed when it is read, then removed.
        poll_interval_s: `signal.poll.interval.ms` in seconds: how often channels other than `source` are looked at.
        chunk_rows: `incremental.snapshot.chunk.size`.
        recompile: `incremental.snapshot.option.recompile`.
        watermarking: `incremental.snapshot.watermarking.strategy`.
        kafka_topic: `signal.kafka.topic`; empty takes `<prefix>-signal`.
        kafka_servers: `signal.kafka.bootstrap.servers`.
        kafka_group: `signal.kafka.groupId`.
        kafka_timeout_s: `signal.kafka.poll.timeout.ms` in seconds.
        kafka_consumer: options of the client by name, may hold secrets; never printed.
    """

    collections: tuple[str, ...] = ()
    channels: tuple[str, ...] = ("source",)
    file: str = "file-signals.txt"
    poll_interval_s: float = 5.0
    chunk_rows: int = 1024
    recompile: bool = False
    watermarking: Literal["insert_insert", "insert_delete"] = "insert_insert"
    kafka_topic: str = ""
    kafka_servers: str = ""
    kafka_group: str = "kafka-signal"
    kafka_timeout_s: float = 0.1
    kafka_consumer: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class CaptureConfig:
    """One capture: everything a configuration file says.

    Args:
        name: `name`, or the topic prefix.
        ignored: properties that were given and have no effect here, with the reason.
    """

    name: str
    connection: ConnectionSettings
    events: EventSettings
    lake: LakeSettings
    filters: FilterSettings = field(default_factory=FilterSettings)
    text: TextSettings = field(default_factory=TextSettings)
    snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)
    streaming: StreamingSettings = field(default_factory=StreamingSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings)
    notifications: NotificationSettings = field(default_factory=NotificationSettings)
    signals: SignalSettings = field(default_factory=SignalSettings)
    ignored: tuple[tuple[str, str], ...] = ()
