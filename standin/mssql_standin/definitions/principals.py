"""Logins, users and roles: CREATE LOGIN, CREATE and DROP USER, DROP ROLE, ALTER ROLE and ALTER SERVER ROLE."""

import hashlib
import hmac
import secrets
from dataclasses import replace
from typing import Final

from mssql_standin.catalog import Permission, Principal, Security, fold
from mssql_standin.certain import certain
from mssql_standin.definitions.ports import DefinitionInterpreter, DefinitionSession
from mssql_standin.errors import SqlError, unsupported
from mssql_standin.rights import DATABASE_ROLES, SERVER_ROLES, USERS, memberships, role_named
from mssql_standin.text.reader import Reader

_FIRST_LOGIN: Final = 256
_ROUNDS: Final = 10_000
_IGNORED: Final = frozenset({"CHECK_POLICY", "CHECK_EXPIRATION", "DEFAULT_LANGUAGE"})
"""Options of a login: no policy of passwords is in force, and there is one language."""


def hashed(password: str, salt: str = "") -> str:
    """What is kept of a password."""
    salt = salt or secrets.token_hex(8)
    return f"{salt}${hashlib.pbkdf2_hmac('sha256', password.encode(), bytes.fromhex(salt), _ROUNDS).hex()}"


def fits(login: Principal, password: str) -> bool:
    """Whether it is the login's password."""
    return hmac.compare_digest(login.password, hashed(password, login.password.partition("$")[0]))


def unknown(what: str, kind: str, name: str) -> SqlError:
    """15151."""
    return SqlError(
        15151, f"Cannot {what} the {kind} '{name}', because it does not exist or you do not have permission."
    )


def may_manage(session: DefinitionSession, server: bool) -> None:
    """Refuse whoever may not manage the server's, or the current database's, principals.

    Raises:
        SqlError: 15247.
    """
    rights, database = session.rights, certain(session.catalog.database(session.database), session.database)
    if rights is not None and (server or not rights.owns(database)):
        raise SqlError(15247, "User does not have permission to perform this action.")


def security_of(session: DefinitionSession, server: bool = False) -> Security:
    """Of the server or of the current database, to be changed."""
    may_manage(session, server)
    catalog = session.edit()
    return catalog.security if server else certain(catalog.database(session.database), session.database).security


# ---- logins --------------------------------------------------------------------------------------------------------


def create_login(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """CREATE LOGIN name WITH PASSWORD = '…' [, option = value …]."""
    session = interpreter.session
    reader.expect("LOGIN")
    name = reader.take().value
    if not reader.accept("WITH"):
        raise unsupported("logins of Windows, certificates and directories")
    security = security_of(session, server=True)
    if fold(name) in security.principals or fold(name) in (
        fold(session.engine.user),
        *map(fold, SERVER_ROLES),
        "public",
    ):
        raise SqlError(15025, f"The server principal '{name}' already exists.")
    made = _with_options(reader, security.add(name, "S", session.clock.local(), first=_FIRST_LOGIN))
    if not made.password:
        raise reader.fail()
    security.principals[fold(name)] = made


def _with_options(reader: Reader, login: Principal) -> Principal:
    while True:
        option = reader.take().upper
        reader.expect("=")
        value = reader.take().value
        if option == "PASSWORD":
            if reader.word() in ("HASHED", "MUST_CHANGE"):
                raise unsupported(f"a password that is {reader.word()}")
            login = replace(login, password=hashed(value))
        elif option == "DEFAULT_DATABASE":
            login = replace(login, default_database=value)
        elif option not in _IGNORED:
            raise unsupported(f"the option {option} of a login")
        if not reader.accept(","):
            return login


def _forget(security: Security, name: str) -> None:
    """A principal goes, with its memberships and permissions."""
    del security.principals[fold(name)]
    for key, role in list(security.principals.items()):
        security.principals[key] = replace(role, members=tuple(one for one in role.members if one != fold(name)))
    security.permissions[:] = [one for one in security.permissions if one.grantee != fold(name)]


# ---- users and roles -----------------------------------------------------------------------------------------------


def create_user(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """CREATE USER name [FOR LOGIN login | WITHOUT LOGIN] [WITH DEFAULT_SCHEMA = dbo]."""
    session = interpreter.session
    reader.expect("USER")
    name = login = reader.take().value
    if reader.accept("FOR", "LOGIN") or reader.accept("FROM", "LOGIN"):
        login = reader.take().value
    elif reader.accept("WITHOUT", "LOGIN"):
        login = ""
    if reader.accept("WITH", "DEFAULT_SCHEMA", "="):
        schema = reader.take().value
        if fold(schema) != "dbo":
            raise unsupported(f"a default schema other than dbo ({schema})")
    if reader.token() is not None:
        raise unsupported("this option of CREATE USER")
    security = _free(session, name)
    if login and fold(login) not in session.catalog.security.principals:
        raise SqlError(15007, f"'{login}' is not a valid login or you do not have permission.")
    if login and any(one.login == fold(login) for one in security.principals.values()):
        raise SqlError(15063, "The login already has an account under a different user name.")
    security.add(name, "S", session.clock.local(), fold(login))
    security.permissions.append(Permission(fold(name), "CONNECT"))


def _free(session: DefinitionSession, name: str) -> Security:
    """The current database's security, where nobody has that name.

    Raises:
        SqlError: 15023.
    """
    security = security_of(session)
    if fold(name) in security.principals or fold(name) in map(fold, (*USERS, *DATABASE_ROLES, "public", "cdc")):
        raise SqlError(15023, f"User, group, or role '{name}' already exists in the current database.")
    return security


def drop_principal(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """DROP USER | ROLE [IF EXISTS] name."""
    word = reader.take().upper
    quiet = reader.accept("IF", "EXISTS")
    name = reader.take().value
    security = security_of(interpreter.session)
    found = security.principals.get(fold(name))
    if found is None or found.kind != word[0].replace("U", "S") or found.principal_id >= 16384:
        if quiet:
            return
        raise unknown("drop", word.lower(), name)
    if found.members:
        raise SqlError(15144, "The role has members. It must be empty before it can be dropped.")
    _forget(security, name)


def alter_role(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """ALTER [SERVER] ROLE name ADD | DROP MEMBER name."""
    server = reader.accept("SERVER")
    reader.expect("ROLE")
    role = reader.take().value
    verb = reader.take().upper
    if verb not in ("ADD", "DROP"):
        raise unsupported(f"ALTER ROLE … {verb}")
    reader.expect("MEMBER")
    _change_member(interpreter.session, role, reader.take().value, verb == "ADD", server)


def _change_member(session: DefinitionSession, role: str, member: str, add: bool, server: bool) -> None:
    security = security_of(session, server)
    if fold(role) == "public":
        raise SqlError(15081, "Membership of the public role cannot be changed.")
    found = role_named(security, role, SERVER_ROLES if server else DATABASE_ROLES)
    if found is None:
        raise unknown("alter", "server role" if server else "role", role)
    if fold(member) not in security.principals and role_named(security, member, DATABASE_ROLES) is None:
        raise unknown("add" if add else "drop", "principal", member)
    if add and fold(member) in memberships(security, role):
        raise SqlError(15413, "Cannot make a role a member of itself.")
    kept = tuple(one for one in found.members if one != fold(member))
    security.principals[fold(role)] = replace(found, members=(*kept, fold(member)) if add else kept)
