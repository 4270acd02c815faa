"""Functions that look into the session, and what generated SQLite text calls."""

from typing import Any, Final, cast

from cdc_assets.standin.batches.ports import BatchSession
from cdc_assets.standin.contract import SessionContext
from cdc_assets.standin.queries.lookup import table_named
from cdc_assets.standin.sql.registry import Call, define
from cdc_assets.standin.sqltypes import BIGINT, INT, SMALLINT, SqlType, Value, decimal_to_stored

_NUMERIC38: Final = SqlType("numeric", precision=38)
_MESSAGE: Final = SqlType("nvarchar", 4000)
_NAME: Final = SqlType("nvarchar", 128)


def register_engine_functions(session: BatchSession) -> None:
    """Register `engine_identity` and `engine_rowversion` on the session's connection."""
    session.connection.create_function("engine_identity", 5, session.identities.draw)
    session.connection.create_function("engine_rowversion", 1, session.identities.row_version)


def _session(context: SessionContext) -> BatchSession:
    return cast(BatchSession, context)


def _wide(value: int | None) -> Value:

    return None if value is None else decimal_to_stored(value, _NUMERIC38)


def _caught(context: SessionContext, field: str) -> Any:
    caught = _session(context).caught
    if not caught:
        return None
    value = getattr(caught[-1], field)
    return value if value != "" else None


def _xact_state(context: SessionContext, _: Call) -> Value:
    transaction = _session(context).transaction
    return -1 if transaction.doomed else int(transaction.count > 0)


def _ident_current(context: SessionContext, _: Call, name: Value) -> Value:

    session = _session(context)
    table = table_named(session, str(name))
    identity = next((column.identity for column in table.columns if column.identity), None) if table else None
    if table is None or identity is None:
        return None
    last = session.identities.current(table)
    return _wide(identity[0] if last is None else last)


def _ident_part(place: int) -> Any:
    def part(context: SessionContext, _: Call, name: Value) -> Value:

        table = table_named(_session(context), str(name))
        identity = next((column.identity for column in table.columns if column.identity), None) if table else None
        return _wide(identity[place]) if identity else None

    return part


def _define() -> None:
    def volatile(name: str, returns: SqlType, implementation: Any, count: int = 0) -> None:
        define(name, returns, count, count, implementation, needs_context=True, deterministic=False)

    volatile("@@ERROR", INT, lambda context, _: _session(context).last_error)
    volatile("@@IDENTITY", _NUMERIC38, lambda context, _: _wide(_session(context).identities.session))
    volatile("SCOPE_IDENTITY", _NUMERIC38, lambda context, _: _wide(_session(context).identities.scope))
    volatile("IDENT_CURRENT", _NUMERIC38, _ident_current, 1)
    volatile("IDENT_SEED", _NUMERIC38, _ident_part(0), 1)
    volatile("IDENT_INCR", _NUMERIC38, _ident_part(1), 1)
    volatile("@@DBTS", SqlType("varbinary", 8), lambda context, _: _session(context).identities.last_row_version())
    volatile("XACT_STATE", SMALLINT, _xact_state)
    volatile("ERROR_NUMBER", INT, lambda context, _: _caught(context, "number"))
    volatile("ERROR_SEVERITY", INT, lambda context, _: _caught(context, "severity"))
    volatile("ERROR_STATE", INT, lambda context, _: _caught(context, "state"))
    volatile("ERROR_LINE", INT, lambda context, _: _caught(context, "line"))
    volatile("ERROR_PROCEDURE", _NAME, lambda context, _: _caught(context, "procedure"))
    volatile("ERROR_MESSAGE", _MESSAGE, lambda context, _: _caught(context, "message"))
    volatile("@@LOCK_TIMEOUT", INT, lambda context, _: _session(context).options.lock_timeout_ms)
    volatile("@@NESTLEVEL", INT, lambda context, _: _session(context).nest_level)
    volatile("@@DATEFIRST", SqlType("tinyint"), lambda context, _: _session(context).options.date_first)
    volatile("ROWCOUNT_BIG", BIGINT, lambda context, _: context.rowcount)


_define()
