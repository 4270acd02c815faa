"""Where a new object goes: its database and schema, whether its name is free, who may define it."""

from typing import Final

from mssql_standin.catalog import Database, Table, fold
from mssql_standin.certain import certain
from mssql_standin.definitions.ports import DefinitionSession
from mssql_standin.errors import SqlError
from mssql_standin.text.reader import Reader

_ON_A_TABLE: Final = frozenset({"INDEX", "UNIQUE", "CLUSTERED", "NONCLUSTERED", "STATISTICS"})


def require_ownership(session: DefinitionSession, verb: str, word: str, reader: Reader | None = None) -> None:
    """Refuse a definition to whoever is neither db_owner nor db_ddladmin; temporary tables are everybody's own.

    Raises:
        SqlError: 262 for something new, 3701 for what is dropped, 5011 for a database, 1088 for the rest.
    """
    rights = session.rights
    if rights is None or (reader is not None and any(token.value.startswith("#") for token in reader.tokens)):
        return
    database = certain(session.catalog.database(session.database), session.database)
    if word != "DATABASE" and rights.on_database("ALTER", database):
        return
    if verb == "CREATE" and word not in _ON_A_TABLE:
        place = "master" if word == "DATABASE" else database.name
        raise SqlError(262, f"{verb} {word} permission denied in database '{place}'.", 14)
    name = reader.tokens[-1].value if reader is not None else ""
    if verb == "DROP":
        text = f"Cannot drop the {word.lower()} '{name}', because it does not exist or you do not have permission."
        raise SqlError(3701, text, 14)
    if word == "DATABASE":
        text = f"User does not have permission to alter database '{name}', the database does not exist, or the database is not in a state that allows access checks."
        raise SqlError(5011, text, 14)
    raise SqlError(1088, f'Cannot find the object "{name}" because it does not exist or you do not have permissions.')


def home(session: DefinitionSession, parts: tuple[str, ...]) -> tuple[Database, str]:
    """Database (of the copy being edited) and declared schema name for a new object.

    Raises:
        SqlError: 911 for an unknown database, 2760 for an unknown schema.
    """
    name = parts[-3] if len(parts) > 2 and parts[-3] else session.database
    database = session.catalog.database(name)
    if database is None:
        raise SqlError(2702, f"Database '{name}' does not exist.")
    require_ownership(session, "CREATE", "TABLE")
    wanted = parts[-2] if len(parts) > 1 and parts[-2] else "dbo"
    schema = next((known for known in database.schemas if fold(known) == fold(wanted)), None)
    if schema is None or fold(schema) in ("sys", "information_schema"):
        raise SqlError(
            2760, f'The specified schema name "{wanted}" either does not exist or you do not have permission to use it.'
        )
    return database, schema


def check_free(database: Database, schema: str, name: str) -> None:
    """Refuse the name of a new object when a table or procedure has it.

    Raises:
        SqlError: 2714.
    """
    if database.table(schema, name) is not None or database.procedure(schema, name):
        raise exists(name)


def module_shape(
    session: DefinitionSession, database: Database, schema: str, name: str, known: Table | None, alter: bool
) -> Table:
    """What a procedure is in the catalogue: a new object, or the known one from now on.

    Args:
        session: that defines it.
        database: the copy being edited.
        schema: where it goes.
        name: its own.
        known: the object of that name, if there is one.
        alter: whether it may be there already.

    Raises:
        SqlError: 2714 if it may not.
    """
    if known is None or not alter:
        check_free(database, schema, name)
    now = session.clock.local()
    made, created = (known.object_id, known.created) if known else (session.catalog.new_object_id(), now)
    return Table(made, database.name, schema, name, created=created, modified=now)


def exists(name: str) -> SqlError:
    """2714."""
    return SqlError(2714, f"There is already an object named '{name}' in the database.", 16, 6)
