"""Functions that look into the session, and what generated SQLite text calls."""

from typing import Any, Final, cast

from mssql_standin.batches.ports import BatchSession
from mssql_standin.contract import SessionContext
from mssql_standin.sql.registry import define
from mssql_standin.sqltypes import BIGINT, INT, SqlType, Value, decimal_to_stored

_NUMERIC38: Final = SqlType("numeric", precision=38)


def register_engine_functions(session: BatchSession) -> None:
    """Register `engine_identity` and `engine_rowversion` on the session's connection."""
    session.connection.create_function("engine_identity", 5, session.identities.draw)
    session.connection.create_function("engine_rowversion", 1, session.identities.row_version)


def _session(context: SessionContext) -> BatchSession:
    return cast(BatchSession, context)


def _wide(value: int | None) -> Value:

    return None if value is None else decimal_to_stored(value, _NUMERIC38)


def _define() -> None:
    def volatile(name: str, returns: SqlType, implementation: Any, count: int = 0) -> None:
        define(name, returns, count, count, implementation, needs_context=True, deterministic=False)

    volatile("@@ERROR", INT, lambda context, _: _session(context).last_error)
    volatile("@@IDENTITY", _NUMERIC38, lambda context, _: _wide(_session(context).identities.session))
    volatile("SCOPE_IDENTITY", _NUMERIC38, lambda context, _: _wide(_session(context).identities.scope))
    volatile("@@LOCK_TIMEOUT", INT, lambda context, _: _session(context).options.lock_timeout_ms)
    volatile("@@NESTLEVEL", INT, lambda context, _: _session(context).nest_level)
    volatile("@@DATEFIRST", SqlType("tinyint"), lambda context, _: _session(context).options.date_first)
    volatile("ROWCOUNT_BIG", BIGINT, lambda context, _: context.rowcount)


_define()
