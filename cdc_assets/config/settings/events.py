"""Settings of events, topics and history."""

from dataclasses import dataclass, field
from typing import Literal

TimeMode = Literal[
    "adaptive", "adaptive_time_microseconds", "connect", "microseconds", "nanoseconds", "isostring", "structured"
]
DecimalMode = Literal["precise", "double", "string"]
BinaryMode = Literal["bytes", "base64", "base64-url-safe", "hex"]
AdjustmentMode = Literal["none", "avro", "avro_unicode"]
FailureMode = Literal["fail", "warn", "skip"]


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """Hash, mask or truncate a set of character columns (spec debezium-sqlserver §4.6); the first matching rule wins.

    Args:
        kind: `hash` (v1: digest of the Java-serialised text), `hash_v2` (digest of the UTF-8 text), `mask`, `truncate`.
        columns: anchored, case-insensitive regexes of `schema.table.column` or `db.schema.table.column`.
        length: asterisks of a mask or characters that remain after truncation; 0 for hashes.
        algorithm: Java name of a hash's digest, such as `SHA-256`; empty elsewhere.
        salt: salt of a hash; never printed.
    """

    kind: Literal["hash", "hash_v2", "mask", "truncate"]
    columns: tuple[str, ...]
    length: int = 0
    algorithm: str = ""
    salt: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class EventSettings:
    """Form of events (spec debezium-sqlserver §4, §5).

    Args:
        message_key_columns: entries `table regex:column,column` of `message.key.columns`.
        column_include: `column.include.list`: regexes of `schema.table.column` or `db.schema.table.column` of the
            columns in values; all if empty. `column_exclude` must be empty if it is not.
        column_rules: masks, hashes and truncations in the order of the file.
        propagate_columns: regexes of columns whose source type becomes schema parameters.
        propagate_types: regexes of `db.schema.table.TYPE` with the same effect.
        transaction_topic: last part of the transaction topic's name.
        conversion_failure: reaction to a value that does not fit its event type.
        sanitize_pattern: regex of characters that are replaced in topic names; empty for Debezium's rule.
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
    column_include: tuple[str, ...] = ()
    column_exclude: tuple[str, ...] = ()
    column_rules: tuple[ColumnRule, ...] = ()
    propagate_columns: tuple[str, ...] = ()
    propagate_types: tuple[str, ...] = ()
    transaction_topic: str = "transaction"
    conversion_failure: FailureMode = "warn"
    sanitize_pattern: str = ""

    @property
    def skipped_changes(self) -> str:
        """Letters of those `skipped_operations` that change rows, in order."""
        return "".join(sorted(self.skipped_operations & set("cud")))


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """Which schema changes are recorded and published (spec debezium-sqlserver §6)."""

    publish: bool = True
    """`include.schema.changes`."""
    only_captured_tables: bool = False
    """`schema.history.internal.store.only.captured.tables.ddl`."""


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """Heartbeats on a separate topic (spec debezium-sqlserver §10)."""

    interval_s: float = 0.0
    """`heartbeat.interval.ms` in seconds; 0 sends none."""
    topic_prefix: str = "__debezium-heartbeat"
    topic_name: str = ""
    """Complete topic name; empty builds it from the prefixes."""


@dataclass(frozen=True, slots=True)
class NotificationSettings:
    """Channels of notifications about snapshots and capture instances (spec debezium-sqlserver §10.1)."""

    channels: tuple[str, ...] = ()
    """`notification.enabled.channels`: `sink`, `log`."""
    sink_topic: str = ""
