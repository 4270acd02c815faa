"""Typed settings, one frozen class per concern. `properties` builds them from Debezium's names."""

from dataclasses import dataclass, field
from typing import Literal

TimeMode = Literal[
    "adaptive", "adaptive_time_microseconds", "connect", "microseconds", "nanoseconds", "isostring", "structured"
]
DecimalMode = Literal["precise", "double", "string"]
BinaryMode = Literal["bytes", "base64", "base64-url-safe", "hex"]
AdjustmentMode = Literal["none", "avro", "avro_unicode"]


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
    """Which schemas, tables and columns are captured (comma lists of anchored, case-insensitive regexes)."""

    schema_include: tuple[str, ...] = ()
    schema_exclude: tuple[str, ...] = ()
    table_include: tuple[str, ...] = ()
    table_exclude: tuple[str, ...] = ()
    column_include: tuple[str, ...] = ()
    column_exclude: tuple[str, ...] = ()
    ignore_builtin: bool = True


@dataclass(frozen=True, slots=True)
class EventSettings:
    """How events look (spec debezium-sqlserver §4, §5)."""

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
