"""The least rights of a capture's login as T-SQL that runs as it stands; docs/rights.md says what each is for.

Each GRANT may be run again; the login and its users are made once. Names come from the server and are quoted.
"""

import secrets
from collections.abc import Iterator

from cdc_assets.adapters.sqlserver import queries
from cdc_assets.adapters.sqlserver.rows import integer
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.config.filters import TableFilter
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId, quote
from cdc_assets.core.signal import signal_table

AZURE_SQL_DATABASE = 5
_PASSWORD_BYTES = 24


def grants(source: SqlServerSource, config: CaptureConfig, login: str) -> Iterator[str]:
    """Statements that make a login and give it what this capture needs, in order.

    Args:
        source: the server, by a login that sees the tables.
        login: name of the login, and of its user in each database.

    Raises:
        ConfigurationError: no table matches the filters.
        CdcError: the server cannot be queried.
    """
    azure = integer(source.session.value(queries.EDITION) or 0) == AZURE_SQL_DATABASE
    password = f"Aa1-{secrets.token_urlsafe(_PASSWORD_BYTES)}"
    user = quote(login)
    if not azure:
        yield "USE [master]"
        yield f"CREATE LOGIN {user} WITH PASSWORD = {_text(password)}"
        yield f"GRANT VIEW SERVER STATE TO {user}"
        yield f"GRANT VIEW ANY DATABASE TO {user}"
    for database in source.databases():
        if not azure:
            yield f"USE {quote(database)}"
        how = f"WITH PASSWORD = {_text(password)}" if azure else f"FOR LOGIN {user}"
        yield f"CREATE USER {user} {how}"
        yield f"GRANT SELECT ON SCHEMA::[cdc] TO {user}"
        if azure:
            yield f"GRANT VIEW DATABASE STATE TO {user}"
        yield from _of_tables(source, config, database, user)


def _of_tables(source: SqlServerSource, config: CaptureConfig, database: str, user: str) -> Iterator[str]:
    signals = signal_table(config.signals.collections, database)
    found = source.user_tables(database)
    chosen = TableFilter(config.filters).require(found, guard_all=not config.history.only_captured_tables)
    for table in sorted({*chosen, *([signals] if signals else [])}):
        yield f"GRANT SELECT, VIEW DEFINITION ON {_place(table)} TO {user}"
    if signals is not None:
        actions = "INSERT, DELETE" if config.signals.watermarking == "insert_delete" else "INSERT"
        yield f"GRANT {actions} ON {_place(signals)} TO {user}"
    if config.streaming.query_mode == "function":
        options = source.instance_options(database).values()
        for role in sorted({option.role for option in options if option.role}):
            yield f"ALTER ROLE {quote(role)} ADD MEMBER {user}"


def _place(table: TableId) -> str:
    return f"{quote(table.schema)}.{quote(table.table)}"


def _text(value: str) -> str:
    return "N'" + value.replace("'", "''") + "'"
