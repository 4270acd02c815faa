"""Definition statements: which module does which."""

from collections.abc import Callable
from typing import Any, Final

from mssql_standin.definitions import alter, databases, grants, indexes, principals, routines
from mssql_standin.definitions.objects import require_ownership
from mssql_standin.definitions.ports import DefinitionInterpreter
from mssql_standin.definitions.tables import create_table, drop_table, truncate
from mssql_standin.errors import unsupported
from mssql_standin.text import tree
from mssql_standin.text.reader import Reader

_OWN_RULES: Final = frozenset({"LOGIN", "USER", "ROLE", "SERVER"})
"""Definitions that say themselves who may do them."""


def run(interpreter: DefinitionInterpreter, statement: tree.Definition) -> None:
    """Run a definition statement."""
    reader = Reader(statement.text)
    verb = reader.take().upper
    word = reader.word()
    table: dict[tuple[str, str], Callable[[Any, Reader, str], None]] = {
        ("CREATE", "TABLE"): create_table,
        ("DROP", "TABLE"): drop_table,
        ("TRUNCATE", "TABLE"): truncate,
        ("ALTER", "TABLE"): alter.alter_table,
        ("CREATE", "DATABASE"): databases.create_database,
        ("ALTER", "DATABASE"): databases.alter_database,
        ("DROP", "DATABASE"): databases.drop_database,
        ("CREATE", "SCHEMA"): databases.create_schema,
        ("CREATE", "TYPE"): databases.create_type,
        ("DROP", "TYPE"): databases.drop_type,
        ("CREATE", "INDEX"): indexes.create_index,
        ("CREATE", "UNIQUE"): indexes.create_index,
        ("CREATE", "CLUSTERED"): indexes.create_index,
        ("CREATE", "NONCLUSTERED"): indexes.create_index,
        ("DROP", "INDEX"): indexes.drop_index,
        ("UPDATE", "STATISTICS"): nothing,
        ("CREATE", "STATISTICS"): nothing,
        ("CREATE", "PROCEDURE"): routines.create_procedure,
        ("CREATE", "PROC"): routines.create_procedure,
        ("DROP", "PROCEDURE"): routines.drop_procedure,
        ("DROP", "PROC"): routines.drop_procedure,
        ("CREATE", "LOGIN"): principals.create_login,
        ("CREATE", "USER"): principals.create_user,
        ("DROP", "USER"): principals.drop_principal,
        ("ALTER", "ROLE"): principals.alter_role,
        ("ALTER", "SERVER"): principals.alter_role,
        ("DROP", "ROLE"): principals.drop_principal,
    }
    if (verb, word, reader.word(1)) == ("CREATE", "OR", "ALTER"):
        word = reader.word(2)
    action = table.get((verb, word))
    if action is None:
        if verb == "CHECKPOINT":
            return
        if verb not in ("GRANT", "REVOKE", "DENY"):
            raise unsupported(f"{verb} {word}".strip())

        def action(interpreter: DefinitionInterpreter, reader: Reader, _: str) -> None:
            grants.run(interpreter, reader, verb)

    elif word not in _OWN_RULES:
        require_ownership(interpreter.session, verb, word, reader)
    interpreter.session.transaction.begin_implicit()
    interpreter.session.editing(lambda: action(interpreter, reader, statement.text))


def nothing(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """Statements about statistics change nothing here."""


# ---- CREATE TABLE ------------------------------------------------------------------------------------------------


# ---- DROP and TRUNCATE -------------------------------------------------------------------------------------------
