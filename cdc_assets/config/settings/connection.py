"""Settings of the connection and of the tables that are captured."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How to reach the server. The password is not part of `repr`.

    Args:
        host: `database.hostname`.
        port: `database.port`; None if not given: 1433, or for a named instance the port that SQL Server Browser
            returns.
        instance: `database.instance`, or empty.
        user: `database.user`.
        password: `database.password`; never printed.
        databases: `database.names`.
        encrypt: `driver.encrypt`: `no`, `yes` or `strict`; `yes` unless the server is the stand-in.
        trust_server_certificate: `driver.trustServerCertificate`.
        query_timeout_s: `database.query.timeout.ms` in seconds; 0 waits for ever.
        login_timeout_s: seconds until a login counts as failed.
        application: `driver.applicationName`: `program_name` in sys.dm_exec_sessions.
        extra: further `driver.*` options passed to the ODBC driver.
    """

    host: str
    user: str
    password: str = field(repr=False)
    databases: tuple[str, ...]
    port: int | None = None
    instance: str = ""
    encrypt: Literal["no", "yes", "strict"] = "yes"
    trust_server_certificate: bool = False
    query_timeout_s: int = 600
    login_timeout_s: int = 15
    application: str = "cdc-assets"
    extra: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """Which schemas and tables are captured (comma lists of anchored, case-insensitive regexes).

    Args:
        schema_include: `schema.include.list`; the exclude list of the same kind must be empty if it is not.
        table_include: `table.include.list`, matching `schema.table`.
        ignore_builtin: leave out system tables.
        max_tables: `guardrail.collections.max`; 0 sets no limit.
        limit_action: `guardrail.collections.limit.action`: reaction if the limit is exceeded.
        also: tables that are captured regardless of the lists, `db.schema.table` in lower case: signal tables.
    """

    schema_include: tuple[str, ...] = ()
    schema_exclude: tuple[str, ...] = ()
    table_include: tuple[str, ...] = ()
    table_exclude: tuple[str, ...] = ()
    ignore_builtin: bool = True
    max_tables: int = 0
    limit_action: Literal["warn", "fail"] = "warn"
    also: frozenset[str] = frozenset()
