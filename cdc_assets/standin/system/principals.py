"""Logins, users, roles and their permissions."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from cdc_assets.standin.catalog import Database, Permission, Principal, Security, fold
from cdc_assets.standin.contract import SessionContext
from cdc_assets.standin.rights import DATABASE_ROLES, SERVER_ROLES, USERS, sid_of
from cdc_assets.standin.sqltypes import Value
from cdc_assets.standin.system.describe import stored_datetime
from cdc_assets.standin.system.view import Rows, view

_NO_LOGIN: Final = 1 << 32
"""Added to the number of a principal that stands for no login, so that its identifier is none of a login's."""
_SHIPPED: Final = datetime(2022, 10, 8)
_TYPES: Final = {"S": ("S", "SQL_USER"), "R": ("R", "DATABASE_ROLE")}
_SERVER_TYPES: Final = {"S": ("S", "SQL_LOGIN"), "R": ("R", "SERVER_ROLE")}
_CODES: Final = {
    "SELECT": "SL", "INSERT": "IN", "UPDATE": "UP", "DELETE": "DL", "EXECUTE": "EX", "ALTER": "AL", "CONTROL": "CL",
    "VIEW DEFINITION": "VW", "CONNECT": "CO", "VIEW DATABASE STATE": "VWDS", "VIEW DATABASE PERFORMANCE STATE": "VDP",
    "VIEW DATABASE SECURITY STATE": "VDSS", "CONTROL SERVER": "CL", "VIEW SERVER STATE": "VWSS",
    "VIEW SERVER PERFORMANCE STATE": "VSPS", "VIEW SERVER SECURITY STATE": "VSSS", "VIEW ANY DATABASE": "VWDB",
    "VIEW ANY DEFINITION": "VWAD", "CONNECT ANY DATABASE": "CADB", "SELECT ALL USER SECURABLES": "SUS", "CONNECT SQL": "COSQ",
}  # fmt: skip


def _made(principal: Principal) -> int:
    return stored_datetime(datetime.fromisoformat(principal.created) if principal.created else _SHIPPED)


def server_list(context: SessionContext) -> dict[str, Principal]:
    """Every principal of the server by folded name."""
    owner = str(getattr(getattr(context, "engine", None), "user", "sa"))
    fixed = [Principal(owner, 1, "S"), Principal("public", 2, "R")]
    fixed += [Principal(name, number, "R") for name, number in SERVER_ROLES.items()]
    return {fold(one.name): one for one in fixed} | context.catalog.security.principals


def database_list(database: Database) -> dict[str, Principal]:
    """Every principal of a database by folded name."""
    fixed = [Principal("public", 0, "R"), *(Principal(name, number, "S") for name, number in USERS.items())]
    fixed += [Principal("cdc", 5, "S")] if database.cdc_enabled else []
    fixed += [Principal(name, number, "R") for name, number in DATABASE_ROLES.items()]
    return {fold(one.name): one for one in fixed} | database.security.principals


@view(
    "sys.server_principals",
    "name sysname!, principal_id int!, sid varbinary(85), type char(1)!, type_desc nvarchar(60), is_disabled int, create_date datetime!, modify_date datetime!, default_database_name sysname",
)
def server_principals(context: SessionContext, _: Database) -> Rows:
    """Logins and server roles; who is no sysadmin sees itself and the roles."""
    for one in server_list(context).values():
        rights = context.rights
        if rights is None or one.kind == "R" or one.principal_id == 1 or fold(one.name) == fold(rights.login):
            default = one.default_database if one.kind == "S" else None
            made = _made(one)
            yield (one.name, one.principal_id, sid_of(one.principal_id), *_SERVER_TYPES[one.kind], int(one.disabled), made, made, default)  # fmt: skip


@view(
    "sys.database_principals",
    "name sysname!, principal_id int!, type char(1)!, type_desc nvarchar(60), default_schema_name sysname, create_date datetime!, modify_date datetime!, owning_principal_id int, sid varbinary(85), is_fixed_role bit!, authentication_type int!, authentication_type_desc nvarchar(60)",
)
def database_principals(context: SessionContext, database: Database) -> Rows:
    """Users and roles."""
    logins = server_list(context)
    for one in database_list(database).values():
        user, made = one.kind == "S", _made(one)
        login = logins.get(one.login) if one.login else None
        default = {"guest": "guest", "cdc": "cdc"}.get(one.name, None if one.name in ("INFORMATION_SCHEMA", "sys") else "dbo") if user else None  # fmt: skip
        known = one.name == "dbo" or login is not None
        yield (
            one.name, one.principal_id, *_TYPES[one.kind], default, made, made, None if user else 1,
            sid_of(login.principal_id if login else one.principal_id + _NO_LOGIN * (one.name != "dbo")), int(one.principal_id >= 16384), int(known),
            "INSTANCE" if known else "NONE",
        )  # fmt: skip


def _members(listed: dict[str, Principal], security: Security) -> Iterator[tuple[Value, ...]]:
    for role in security.principals.values():
        for name in role.members:
            if name in listed:
                yield (role.principal_id, listed[name].principal_id)


@view("sys.database_role_members", "role_principal_id int!, member_principal_id int!")
def database_role_members(_: SessionContext, database: Database) -> Rows:
    """Who is in which role."""
    yield (DATABASE_ROLES["db_owner"], USERS["dbo"])
    yield from _members(database_list(database), database.security)


@view("sys.server_role_members", "role_principal_id int!, member_principal_id int!")
def server_role_members(context: SessionContext, _: Database) -> Rows:
    """Who is in which role of the server."""
    yield (SERVER_ROLES["sysadmin"], 1)
    yield from _members(server_list(context), context.catalog.security)


_PERMISSION: Final = (
    "class tinyint!, class_desc nvarchar(60), major_id int!, minor_id int!, grantee_principal_id int!, grantor_principal_id int!, "
    "type char(4)!, permission_name nvarchar(128), state char(1)!, state_desc nvarchar(60)"
)
_CLASSES: Final = {
    "DATABASE": (0, "DATABASE"),
    "OBJECT": (1, "OBJECT_OR_COLUMN"),
    "SCHEMA": (3, "SCHEMA"),
    "SERVER": (100, "SERVER"),
}


def _permission(one: Permission, grantee: Principal, major: int) -> tuple[Value, ...]:
    state = ("D", "DENY") if one.deny else ("G", "GRANT")
    return (*_CLASSES[one.kind], major, 0, grantee.principal_id, 1, _CODES[one.action].ljust(4), one.action, *state)


@view("sys.database_permissions", _PERMISSION)
def database_permissions(_: SessionContext, database: Database) -> Rows:
    """What was granted and denied in the database."""
    listed, schemas = database_list(database), {fold(name): number for name, number in database.schemas.items()}
    for one in database.security.permissions:
        major = {"OBJECT": lambda one: int(one.target), "SCHEMA": lambda one: schemas.get(one.target, 0)}.get(one.kind)
        if one.grantee in listed:
            yield _permission(one, listed[one.grantee], major(one) if major else 0)


@view("sys.server_permissions", _PERMISSION)
def server_permissions(context: SessionContext, _: Database) -> Rows:
    """What was granted and denied on the server."""
    listed = server_list(context)
    return [
        _permission(one, listed[one.grantee], 0)
        for one in context.catalog.security.permissions
        if one.grantee in listed
    ]
