"""What a session says about itself: @@ functions, user and host names.

Beside the `SessionContext` contract these read two attributes that the engine's session has: `login` (a `contract.Login`) and
`server_name`. What needs the engine's own state (@@ERROR, ERROR_NUMBER(), @@IDENTITY, XACT_STATE() …) is defined there.
"""

from collections.abc import Callable
from typing import Any, Final

from mssql_standin.contract import SessionContext
from mssql_standin.sql.registry import Call, define
from mssql_standin.sqltypes import INT, SYSNAME, SqlType, Value

VERSION: Final = (
    "Microsoft SQL Server 2022 (RTM-CU0) - 16.0.1000.6 (X64) \n\tStand-in, no Microsoft product \n"
    "\tDeveloper Edition (64-bit) on Linux"
)


def _context(name: str, returns: SqlType, read: Callable[[Any], Value], nullable: bool = True) -> None:
    def implementation(context: SessionContext, _: Call) -> Value:
        return read(context)

    define(name, returns, 0, 0, implementation, True, nullable=nullable)


def _fixed(name: str, returns: SqlType, value: Value) -> None:
    define(name, returns, 0, 0, lambda _: value, nullable=False)


def _login(attribute: str, default: str) -> Callable[[Any], Value]:
    def run(context: Any) -> Value:
        login = getattr(context, "login", None)
        return getattr(login, attribute, "") or default

    return run


login_name = _login("user", "sa")


_fixed("@@VERSION", SqlType("nvarchar", 300), VERSION)
_context("@@SERVERNAME", SYSNAME, lambda c: getattr(c, "server_name", None) or "STANDIN", False)
_context("@@SPID", SqlType("smallint"), lambda c: c.session_id, False)
_context("@@TRANCOUNT", INT, lambda c: c.transaction_count, False)
_context("@@ROWCOUNT", INT, lambda c: c.rowcount, False)
_context("SYSTEM_USER", SYSNAME, login_name, False)
