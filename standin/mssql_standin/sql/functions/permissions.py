"""Who the session is, and what it or somebody else may do.

NULL is the answer about what does not exist. A sysadmin is `dbo` everywhere: db_owner, and in no other role.
"""

from typing import Final

from mssql_standin.catalog import Database, fold
from mssql_standin.contract import SessionContext
from mssql_standin.rights import (
    ACTIONS,
    DATABASE_ACTIONS,
    SERVER_ACTIONS,
    SERVER_ROLES,
    sid_of,
)
from mssql_standin.sql.functions.metadata import find_database
from mssql_standin.sql.functions.session import login_name
from mssql_standin.sql.functions.strings import split_name
from mssql_standin.sql.registry import Call, define
from mssql_standin.sqltypes import INT, SYSNAME, SqlType, Value

_SID: Final = SqlType("varbinary", 85)


def _here(context: SessionContext) -> Database | None:
    return context.catalog.database(context.database)


def _user(context: SessionContext) -> str:
    database = _here(context)
    return "dbo" if context.rights is None or database is None else context.rights.user(database)


# ---- names and numbers -----------------------------------------------------------------------------------------------


def _logins(context: SessionContext) -> dict[str, int]:
    found = {getattr(getattr(context, "engine", None), "user", "sa"): 1, "public": 2, **SERVER_ROLES}
    return found | {one.name: one.principal_id for one in context.catalog.security.principals.values()}


def _number(names: dict[str, int], name: str) -> Value:
    return next((number for known, number in names.items() if fold(known) == fold(name)), None)


def _login_id(context: SessionContext, _: Call, *name: str | None) -> Value:
    wanted = name[0] if name else login_name(context)
    return None if wanted is None else _number(_logins(context), str(wanted))


def _login_sid(context: SessionContext, call: Call, *name: Value) -> Value:
    number = _login_id(context, call, *(str(one) if one is not None else None for one in name[:1]))
    return sid_of(number) if isinstance(number, int) else None


def _login_name(context: SessionContext, _: Call, *wanted: Value) -> Value:
    if not wanted:
        return login_name(context)
    return next((name for name, known in _logins(context).items() if wanted[0] in (known, sid_of(known))), None)


# ---- roles -----------------------------------------------------------------------------------------------------------


# ---- permissions -----------------------------------------------------------------------------------------------------


def _enters(context: SessionContext, _: Call, name: str) -> Value:
    database = context.catalog.database(name)
    if database is None:
        return None
    return int(database.state == "ONLINE" and (context.rights is None or context.rights.enters(database)))


def _permitted(context: SessionContext, _: Call, securable: Value, kind: Value, action: Value, *rest: Value) -> Value:
    """HAS_PERMS_BY_NAME; what is on columns is not told apart from the table."""
    wanted = " ".join(str(action or "").upper().split())
    kind = str(kind).upper() if kind is not None else "SERVER"
    known = {"SERVER": SERVER_ACTIONS, "DATABASE": DATABASE_ACTIONS | ACTIONS}.get(kind, ACTIONS)
    if action is None or wanted not in {*known, "ANY"} or kind not in ("SERVER", "DATABASE", "SCHEMA", "OBJECT"):
        return None
    actions = known if wanted == "ANY" else {wanted}
    rights = context.rights
    if kind == "SERVER":
        return int(rights is None or any(rights.on_server(one) for one in actions))
    place = _place(context, str(securable or ""), kind)
    if place is None:
        return None
    return int(rights is None or any(rights.on_database(one, *place) for one in actions))


def _place(context: SessionContext, name: str, kind: str) -> tuple[Database, str, int] | None:
    """Database, schema and number of an object; None for what is not there."""
    parts = split_name(name)
    database = find_database(context, parts[-1] if kind == "DATABASE" and parts else None)
    if kind == "DATABASE":
        return (database, "", 0) if database and parts else None
    if kind == "OBJECT" and len(parts) > 2 and parts[-3]:
        database = find_database(context, parts[-3])
    if database is None or not parts:
        return None
    if kind == "SCHEMA":
        return (database, parts[-1], 0) if fold(parts[-1]) in map(fold, database.schemas) else None
    schema = parts[-2] if len(parts) > 1 and parts[-2] else "dbo"
    shape = database.shape(schema, parts[-1])
    return (database, schema, shape.object_id) if shape else None


for _name in ("CURRENT_USER", "SESSION_USER", "USER"):
    define(_name, SYSNAME, 0, 0, lambda context, _: _user(context), True, nullable=False)
define("SUSER_SNAME", SYSNAME, 0, 1, _login_name, True)
define("SUSER_NAME", SYSNAME, 0, 1, _login_name, True)
define("SUSER_SID", _SID, 0, 2, _login_sid, True)
define("HAS_DBACCESS", INT, 1, 1, _enters, True, arguments=(SYSNAME,))
define("HAS_PERMS_BY_NAME", INT, 3, 5, _permitted, True, strict=False)
