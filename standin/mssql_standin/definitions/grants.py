"""GRANT, DENY and REVOKE of the permissions that the stand-in knows; others are refused, never accepted in vain."""

from mssql_standin.catalog import Permission, fold
from mssql_standin.certain import certain
from mssql_standin.definitions.ports import DefinitionInterpreter
from mssql_standin.definitions.principals import security_of, unknown
from mssql_standin.errors import SqlError, unsupported
from mssql_standin.queries.names import SessionNames
from mssql_standin.rights import (
    ACTIONS,
    DATABASE_ACTIONS,
    DATABASE_ROLES,
    SERVER_ACTIONS,
    SERVER_ROLES,
    role_named,
)
from mssql_standin.text.clauses import read_name
from mssql_standin.text.reader import Reader


def run(interpreter: DefinitionInterpreter, reader: Reader, verb: str) -> None:
    """Do one statement; the reader stands behind its verb."""
    if reader.word() == "GRANT":
        raise unsupported("REVOKE GRANT OPTION FOR")
    actions = _actions(reader)
    kind, target = _securable(interpreter, reader, actions)
    if not reader.accept("TO"):
        if verb != "REVOKE":
            raise reader.fail()
        reader.expect("FROM")
    names = [reader.take().value]
    while reader.accept(","):
        names.append(reader.take().value)
    reader.accept("CASCADE")
    if reader.token() is not None:
        raise unsupported(f"{verb} … {reader.word()}")
    for name in names:
        for action in actions:
            _change(interpreter, verb, Permission(fold(name), action, kind, target, verb == "DENY"), name)


def _actions(reader: Reader) -> list[str]:
    found = []
    while True:
        words = []
        while reader.token() is not None and reader.word() not in (",", "ON", "TO", "FROM", "("):
            words.append({"EXEC": "EXECUTE"}.get(reader.word(), reader.word()))
            reader.take()
        if not words:
            raise reader.fail()
        if reader.word() == "(":
            raise unsupported("permissions on columns")
        found.append(" ".join(words))
        if found[-1] not in SERVER_ACTIONS | DATABASE_ACTIONS | ACTIONS:
            raise unsupported(f"the permission {found[-1]}")
        if not reader.accept(","):
            return found


def _securable(interpreter: DefinitionInterpreter, reader: Reader, actions: list[str]) -> tuple[str, str]:
    """Kind and target of what the permissions are on."""
    session = interpreter.session
    of_server = [action for action in actions if action in SERVER_ACTIONS]
    if not reader.accept("ON"):
        if of_server and fold(session.database) != "master":
            raise SqlError(
                4621, "Permissions at the server scope can only be granted when the current database is master"
            )
        if of_server and len(of_server) < len(actions):
            raise unsupported("permissions of the server and of a database in one statement")
        return "SERVER" if of_server else "DATABASE", ""
    kind = "OBJECT"
    if reader.word(1) == "::":
        kind = reader.take().upper
        reader.expect("::")
    if kind not in ("OBJECT", "SCHEMA", "DATABASE"):
        raise unsupported(f"permissions on a {kind}")
    if set(actions) - (ACTIONS | (DATABASE_ACTIONS if kind == "DATABASE" else frozenset())):
        raise SqlError(102, f"Incorrect syntax near '{actions[0]}'.", 15)
    parts = read_name(reader)
    if reader.word() == "(":
        raise unsupported("permissions on columns")
    database = certain(session.catalog.database(session.database), session.database)
    if kind == "DATABASE":
        if fold(parts[-1]) != fold(database.name):
            raise unknown("find", "database", parts[-1])
        return kind, ""
    if kind == "SCHEMA":
        if all(fold(schema) != fold(parts[-1]) for schema in database.schemas):
            raise unknown("find", "schema", parts[-1])
        return kind, fold(parts[-1])
    owner, schema = SessionNames(session, interpreter.frame).place(parts)
    if fold(owner) != fold(database.name):
        raise SqlError(4610, "You can only grant or revoke permissions on objects in the current database.")
    shape = database.shape(schema, parts[-1])
    if shape is None:
        raise unknown("find", "object", parts[-1])
    return kind, str(shape.object_id)


def _change(interpreter: DefinitionInterpreter, verb: str, wanted: Permission, name: str) -> None:
    """Replace what was said of a permission before."""
    session, server = interpreter.session, wanted.kind == "SERVER"
    security = security_of(session, server)
    if wanted.grantee in ("dbo", "sys", "information_schema", fold(session.engine.user)):
        raise SqlError(4624, "Cannot grant, deny, or revoke permissions to sa, dbo, entity owner, information_schema, sys, or yourself.")  # fmt: skip
    fixed = SERVER_ROLES if server else DATABASE_ROLES
    known = wanted.grantee in security.principals or wanted.grantee in ("public", "guest")
    if not known and role_named(security, name, fixed) is None:
        raise unknown("find", "login" if server else "user", name)
    place = wanted.grantee, wanted.action, wanted.kind, wanted.target
    security.permissions[:] = [p for p in security.permissions if (p.grantee, p.action, p.kind, p.target) != place]
    if verb != "REVOKE":
        security.permissions.append(wanted)
