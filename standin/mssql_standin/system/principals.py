"""Logins, users, roles and their permissions."""

from datetime import datetime
from typing import Final

from mssql_standin.catalog import Database, Principal, fold
from mssql_standin.contract import SessionContext
from mssql_standin.rights import DATABASE_ROLES, SERVER_ROLES, USERS, sid_of
from mssql_standin.system.describe import stored_datetime
from mssql_standin.system.view import Rows, view

_NO_LOGIN: Final = 1 << 32
"""Added to the number of a principal that stands for no login, so that its identifier is none of a login's."""
_SHIPPED: Final = datetime(2022, 10, 8)
_TYPES: Final = {"S": ("S", "SQL_USER"), "R": ("R", "DATABASE_ROLE")}


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
