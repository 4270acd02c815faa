"""What a login may do that is no sysadmin: users, roles, and what was granted or denied to them.

The rule is SQL Server's: somebody is the user of the login, the roles that it is a member of, and `public`; one DENY
to any of them, on the object, its schema or the database, outweighs every GRANT. Fixed roles are nothing but grants
(`db_datareader` is SELECT on the database). A sysadmin has no `Rights` at all, so that nothing is looked up for it.

Rights are computed from one version of the catalogue and never change; GRANT, like every definition, makes a new one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, Self

from mssql_standin.catalog import Catalog, Database, Permission, Principal, Security, Table, Tables, fold
from mssql_standin.errors import SqlError

SERVER_ROLES: Final = {
    "sysadmin": 3, "securityadmin": 4, "serveradmin": 5, "setupadmin": 6, "processadmin": 7, "diskadmin": 8, "dbcreator": 9,
    "bulkadmin": 10, "##MS_DefinitionReader##": 14, "##MS_ServerStateReader##": 16, "##MS_ServerPerformanceStateReader##": 18,
    "##MS_DatabaseConnector##": 21,
}  # fmt: skip
DATABASE_ROLES: Final = {
    "db_owner": 16384, "db_accessadmin": 16385, "db_securityadmin": 16386, "db_ddladmin": 16387, "db_backupoperator": 16389,
    "db_datareader": 16390, "db_datawriter": 16391, "db_denydatareader": 16392, "db_denydatawriter": 16393,
}  # fmt: skip
USERS: Final = {"dbo": 1, "guest": 2, "INFORMATION_SCHEMA": 3, "sys": 4}

SERVER_ACTIONS: Final = frozenset({
    "CONTROL SERVER", "VIEW SERVER STATE", "VIEW SERVER PERFORMANCE STATE", "VIEW SERVER SECURITY STATE", "VIEW ANY DATABASE",
    "VIEW ANY DEFINITION", "CONNECT ANY DATABASE", "SELECT ALL USER SECURABLES", "CONNECT SQL",
})  # fmt: skip
DATABASE_ACTIONS: Final = frozenset({
    "CONNECT", "VIEW DATABASE STATE", "VIEW DATABASE PERFORMANCE STATE", "VIEW DATABASE SECURITY STATE",
})  # fmt: skip
ACTIONS: Final = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "EXECUTE", "ALTER", "CONTROL", "VIEW DEFINITION"})
"""On a database, a schema or an object."""

_IMPLIED_BY: Final = {
    "VIEW SERVER PERFORMANCE STATE": ("VIEW SERVER STATE",),
    "VIEW SERVER SECURITY STATE": ("VIEW SERVER STATE",),
    "VIEW DATABASE STATE": ("VIEW SERVER STATE",),
    "VIEW DATABASE PERFORMANCE STATE": ("VIEW DATABASE STATE", "VIEW SERVER PERFORMANCE STATE", "VIEW SERVER STATE"),
    "VIEW DATABASE SECURITY STATE": ("VIEW DATABASE STATE", "VIEW SERVER SECURITY STATE", "VIEW SERVER STATE"),
    "VIEW DEFINITION": ("VIEW ANY DEFINITION",),
    "CONNECT": ("CONNECT ANY DATABASE",),
    "SELECT": ("SELECT ALL USER SECURABLES",),
}
_OF_ROLE: Final = {
    "db_owner": ("CONTROL",), "db_ddladmin": ("ALTER",), "db_datareader": ("SELECT",), "db_datawriter": ("INSERT", "UPDATE", "DELETE"),
    "##MS_DefinitionReader##": ("VIEW ANY DEFINITION",), "##MS_ServerStateReader##": ("VIEW SERVER STATE",),
    "##MS_ServerPerformanceStateReader##": ("VIEW SERVER PERFORMANCE STATE",),
    "##MS_DatabaseConnector##": ("CONNECT ANY DATABASE",),
}  # fmt: skip
_DENIED_TO_ROLE: Final = {"db_denydatareader": ("SELECT",), "db_denydatawriter": ("INSERT", "UPDATE", "DELETE")}
_FIXED: Final = (
    *(Permission(fold(role), action) for role, actions in _OF_ROLE.items() for action in actions),
    *(Permission(fold(role), action, deny=True) for role, actions in _DENIED_TO_ROLE.items() for action in actions),
)
_GUESTS: Final = frozenset({"master", "tempdb", "msdb"})
"""Databases that every login may enter."""


def memberships(security: Security, name: str) -> frozenset[str]:
    """A principal's folded name, the roles that it is in, directly or through others, and public."""
    found = {fold(name), "public"}
    while (
        more := {fold(role.name) for role in security.principals.values() if found.intersection(role.members)} - found
    ):
        found |= more
    return frozenset(found)


class Rights:
    """What one login may do.

    Args:
        catalog: the version that these are the rights of.
        login: its name.
    """

    def __init__(self, catalog: Catalog, login: str) -> None:
        self.login, self.version, self._catalog = login, catalog.version, catalog
        self._server = memberships(catalog.security, login)
        self._names: dict[str, frozenset[str]] = {}
        self._visible: dict[str, Database] = {}

    @classmethod
    def of(cls, catalog: Catalog, login: str) -> Self | None:
        """The rights of a login; None for a sysadmin, who may do everything."""
        found = cls(catalog, login)
        return None if "sysadmin" in found._server or found.on_server("CONTROL SERVER") else found

    # ---- who it is -----------------------------------------------------------------------------------------------

    def user(self, database: Database) -> str:
        """Its user in a database, empty for none."""
        for principal in database.security.principals.values():
            if principal.kind == "S" and principal.login == fold(self.login):
                return principal.name
        return "guest" if fold(database.name) in _GUESTS or self.on_server("CONNECT ANY DATABASE") else ""

    def names(self, database: Database) -> frozenset[str]:
        """Folded names of its user and the user's roles; empty without a user."""
        known = self._names.get(database.name)
        if known is None:
            user = self.user(database)
            known = self._names[database.name] = memberships(database.security, user) if user else frozenset()
        return known

    # ---- what it may do ------------------------------------------------------------------------------------------

    def on_server(self, action: str) -> bool:
        """Whether it has a permission of the server."""
        wanted = {action, "CONTROL SERVER", *_IMPLIED_BY.get(action, ())}
        return _decide(p.deny for p in self._of_server() if p.action in wanted)

    def on_database(self, action: str, database: Database, schema: str = "", object_id: int = 0) -> bool:
        """Whether it has a permission on a database, on a schema of it, or on an object."""
        names = self.names(database)
        if not names:
            return False
        wanted = {action, "CONTROL", "CONTROL SERVER", *_IMPLIED_BY.get(action, ())}
        guest = [False] if action == "CONNECT" and fold(database.name) in _GUESTS else []
        own = (
            permission.deny
            for permission in (*database.security.permissions, *_FIXED)
            if permission.grantee in names and permission.action in wanted and permission.covers(schema, object_id)
        )
        return _decide([*guest, *own, *(p.deny for p in self._of_server() if p.action in wanted)])

    def _of_server(self) -> Iterator[Permission]:
        return (p for p in (*self._catalog.security.permissions, *_FIXED) if p.grantee in self._server)

    def owns(self, database: Database) -> bool:
        """Whether it may do everything in a database."""
        return self.on_database("CONTROL", database)

    def enters(self, database: Database) -> bool:
        """Whether it may use a database."""
        return self.on_database("CONNECT", database)

    def reads_changes(self, database: Database, source: Table | None, role: str | None) -> bool:
        """Whether it may see the changes of a table: it reads the table and is in the role that gates them."""
        if self.owns(database):
            return True
        reads = source is not None and self.on_database("SELECT", database, source.schema, source.object_id)
        return reads and (not role or fold(role) in self.names(database))

    # ---- what it sees --------------------------------------------------------------------------------------------

    def sees(self, database: Database, shape: Table) -> bool:
        """Whether the catalogue shows it an object: it has some permission there."""
        return any(self.on_database(action, database, shape.schema, shape.object_id) for action in ACTIONS)

    def visible(self, database: Database) -> Database:
        """The database as its catalogue views show it to the login."""
        known = self._visible.get(database.name)
        if known is None:
            tables = Tables()
            for table in database.tables.shared():
                if self.sees(database, table):
                    tables[fold(table.schema), fold(table.name)] = table
            procedures = [routine for routine in database.procedures if self.sees(database, routine.shape)]
            known = replace(database, tables=tables, procedures=procedures)
            self._visible[database.name] = known
        return known

    def listed(self, databases: Iterable[Database]) -> list[Database]:
        """The databases that `sys.databases` shows it."""
        every = self.on_server("VIEW ANY DATABASE")
        return [one for one in databases if every or fold(one.name) in ("master", "tempdb") or self.owns(one)]

    # ---- refusals ------------------------------------------------------------------------------------------------

    def require(self, action: str, database: Database, shape: Table) -> None:
        """Refuse what is not permitted on an object.

        Raises:
            SqlError: 916 for a database that it may not use, 229.
        """
        self.require_entry(database)
        if not self.on_database(action, database, shape.schema, shape.object_id):
            raise denied(action, shape.name, database.name, shape.schema)

    def require_entry(self, database: Database) -> None:
        """Refuse a database that it may not use.

        Raises:
            SqlError: 916.
        """
        if not self.enters(database):
            text = f'The server principal "{self.login}" is not able to access the database "{database.name}" under the current security context.'
            raise SqlError(916, text, 14)

    def require_state(self, action: str, database: Database) -> None:
        """Refuse a management view without the permission that it takes.

        Raises:
            SqlError: 300 for one of the server, 262 for one of a database.
        """
        if action in SERVER_ACTIONS and not self.on_server(action):
            raise SqlError(300, f"{action} permission was denied on object 'server', database 'master'.", 14)
        if action in DATABASE_ACTIONS and not self.on_database(action, database):
            raise SqlError(262, f"{action} permission denied in database '{database.name}'.", 14)


def _decide(denials: Iterable[bool]) -> bool:
    """Whether something is permitted: granted by some entry, denied by none."""
    found = list(denials)
    return bool(found) and not any(found)


def denied(action: str, name: str, database: str, schema: str) -> SqlError:
    """229."""
    text = f"The {action} permission was denied on the object '{name}', database '{database}', schema '{schema}'."
    return SqlError(229, text, 14, 5)


def sid_of(number: int) -> bytes:
    """Security identifier of a login: of one length, for binary values that differ in zeros at the end are equal."""
    return b"\x01" if number == 1 else b"\x05" + number.to_bytes(15, "big")


def role_named(security: Security, name: str, fixed: dict[str, int]) -> Principal | None:
    """A role by name; a fixed one is there even while nothing was ever said of it."""
    known = security.principals.get(fold(name))
    if known is not None:
        return known if known.kind == "R" else None
    found = next((role for role in fixed if fold(role) == fold(name)), None)
    return None if found is None else Principal(found, fixed[found], "R")
