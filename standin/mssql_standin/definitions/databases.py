"""Databases, schemas, alias types."""

from datetime import datetime
from typing import Final

from mssql_standin.capture.enable import disable_db
from mssql_standin.catalog import DATABASE_STATES, OPTIONS, AliasType, Catalog, Database, Table, fold
from mssql_standin.certain import certain
from mssql_standin.definitions import states
from mssql_standin.definitions.elements import ElementReader
from mssql_standin.definitions.objects import exists, home
from mssql_standin.definitions.ports import DefinitionInterpreter
from mssql_standin.errors import SqlError, syntax_error, unsupported
from mssql_standin.queries.names import SessionNames
from mssql_standin.sql.collation import sqlite_collation
from mssql_standin.sqltypes import DEFAULT_COLLATION
from mssql_standin.text.clauses import read_name
from mssql_standin.text.reader import Reader

SYSTEM: Final = ("master", "tempdb", "model", "msdb")


def _no_transaction(interpreter: DefinitionInterpreter, what: str) -> None:
    if interpreter.session.transaction.count:
        raise SqlError(226, f"{what} statement not allowed within multi-statement transaction.")


def create_database(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """CREATE DATABASE name [COLLATE …]."""
    _no_transaction(interpreter, "CREATE DATABASE")
    reader.expect("DATABASE")
    name = reader.take().value
    collation = DEFAULT_COLLATION
    while reader.token() is not None:
        if reader.accept("COLLATE"):
            collation = reader.take().value
            sqlite_collation(collation)
        elif reader.word() == "(":
            reader.parenthesised()  # files and sizes mean nothing here
        elif reader.word() in ("ON", "PRIMARY", "LOG", ","):
            reader.take()
        else:
            raise unsupported(f"CREATE DATABASE … {reader.word()}")
    catalog = interpreter.session.edit()
    if catalog.database(name) is not None:
        raise SqlError(1801, f"Database '{name}' already exists. Choose a different database name.")
    add_database(catalog, name, collation, interpreter.session.clock.local())


def add_database(catalog: Catalog, name: str, collation: str, created: datetime) -> Database:
    """Add a database to a catalogue copy."""
    taken = {database.database_id for database in catalog.databases.values()}
    number = next(i for i in range(1, 32767) if i not in taken)
    database = Database(name, number, collation, created)
    catalog.databases[fold(name)] = database
    return database


def alter_database(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """ALTER DATABASE name SET option …."""
    session = interpreter.session
    _no_transaction(interpreter, "ALTER DATABASE")
    reader.expect("DATABASE")
    name = reader.take()
    wanted = session.database if name.upper == "CURRENT" else name.value
    if session.catalog.database(wanted) is None:
        raise SqlError(5011, f"User does not have permission to alter database '{wanted}', the database does not exist, or the database is not in a state that allows access checks.", 14)  # fmt: skip
    if not reader.accept("SET"):
        raise unsupported(f"ALTER DATABASE … {reader.word()}")
    options = dict([_option(reader)])
    while reader.accept(","):
        options.update([_option(reader)])
    termination = states.read_termination(reader)
    if reader.token() is not None:
        raise reader.fail()
    alone = options.get("state") == "OFFLINE"
    if alone and fold(wanted) in SYSTEM:
        raise SqlError(5058, f"Option '{' '.join(map(str, options.values()))}' cannot be set in database '{wanted}'.")
    if alone:  # before the lock that a transaction there may hold
        states.clear(session, wanted, termination)
    database = certain(session.edit().database(wanted), wanted)
    for option, value in options.items():
        if option in OPTIONS:
            database.options[option] = value
        elif option:
            setattr(database, option, value)
    if alone:  # who came in meanwhile
        states.clear(session, wanted, termination)


def _option(reader: Reader) -> tuple[str, str]:
    """Option and value; what is none of `OPTIONS` is a state of the database."""
    name = reader.take().upper
    if name in DATABASE_STATES:
        return "state", name
    if name == "READ_WRITE":
        return "", ""  # no database is anything else
    if name not in OPTIONS:
        raise unsupported(f"ALTER DATABASE … SET {name}")
    reader.accept("=")
    token = reader.take()
    value = token.upper or token.text
    if value not in OPTIONS[name]:
        if name == "COMPATIBILITY_LEVEL":
            levels = "100, 110, 120, 130, 140, 150, or 160"
            raise SqlError(15048, f"Valid values of the database compatibility level are {levels}.")
        raise syntax_error(token.value)
    if reader.word() == "(":
        raise unsupported(f"ALTER DATABASE … SET {name} with options of its own")
    return name, value


def drop_database(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """DROP DATABASE [IF EXISTS] a, b."""
    _no_transaction(interpreter, "DROP DATABASE")
    reader.expect("DATABASE")
    quiet = reader.accept("IF", "EXISTS")
    while True:
        _drop_database(interpreter, reader.take().value, quiet)
        if not reader.accept(","):
            return


def _drop_database(interpreter: DefinitionInterpreter, name: str, quiet: bool) -> None:
    session = interpreter.session
    catalog = session.edit()
    database = catalog.database(name)
    if database is None:
        if quiet:
            return
        raise SqlError(
            3701, f"Cannot drop the database '{name}', because it does not exist or you do not have permission.", 11
        )
    if fold(name) in SYSTEM:
        raise SqlError(3708, f"Cannot drop the database '{name}' because it is a system database.")
    if any(fold(other.database) == fold(name) for other in session.engine.sessions()):
        raise SqlError(3702, f'Cannot drop database "{name}" because it is currently in use.')
    if database.cdc_enabled:
        outer, session.procedure_database = session.procedure_database, database.name
        try:
            disable_db(session, {})
        finally:
            session.procedure_database = outer
    for table in list(database.tables.values()):
        session.drop_table(table)
    del catalog.databases[fold(name)]


def create_schema(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """CREATE SCHEMA name [AUTHORIZATION owner]."""
    reader.expect("SCHEMA")
    if reader.word() == "AUTHORIZATION":
        raise unsupported("CREATE SCHEMA AUTHORIZATION")
    name = reader.take().value
    if reader.accept("AUTHORIZATION"):
        reader.take()
    if reader.token() is not None:
        raise unsupported("objects inside CREATE SCHEMA")
    session = interpreter.session
    database = certain(session.edit().database(session.database), "the current database")
    if any(fold(known) == fold(name) for known in database.schemas):
        raise exists(name)
    database.schemas[name] = max([4, *(number for number in database.schemas.values() if number < 16384)]) + 1


def create_type(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """CREATE TYPE name FROM base [NULL | NOT NULL]."""
    reader.expect("TYPE")
    parts = read_name(reader)
    if not reader.accept("FROM"):
        raise unsupported("CREATE TYPE … AS TABLE")
    session = interpreter.session
    session.edit()
    database, schema = home(session, parts)

    base, alias = ElementReader(
        session, SessionNames(session, interpreter.frame), reader, Table(0, "", "", "")
    ).read_type()
    if alias is not None:
        raise SqlError(15373, f"Alias type '{alias}' cannot be the base of another.")
    nullable = not reader.accept("NOT", "NULL")
    reader.accept("NULL")
    if any(
        fold(known.name) == fold(parts[-1]) and fold(known.schema) == fold(schema) for known in database.alias_types
    ):
        raise SqlError(
            219, f"The type '{schema}.{parts[-1]}' already exists, or you do not have permission to create it."
        )
    number = max([256, *(known.user_type_id for known in database.alias_types)]) + 1
    database.alias_types.append(AliasType(schema, parts[-1], number, base, nullable))


def drop_type(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """DROP TYPE [IF EXISTS] name."""
    reader.expect("TYPE")
    quiet = reader.accept("IF", "EXISTS")
    parts = read_name(reader)
    session = interpreter.session
    session.edit()
    database, schema = home(session, parts)
    found = next(
        (a for a in database.alias_types if fold(a.name) == fold(parts[-1]) and fold(a.schema) == fold(schema)), None
    )
    if found is None:
        if quiet:
            return
        raise SqlError(
            3701,
            f"Cannot drop the type '{'.'.join(parts)}', because it does not exist or you do not have permission.",
            11,
        )
    for table in database.tables.shared():
        if any(column.alias_type and fold(column.alias_type) == fold(found.name) for column in table.columns):
            raise SqlError(
                3732,
                f"Cannot drop type '{'.'.join(parts)}' because it is being referenced by object '{table.name}'. There may be other objects that reference this type.",
            )
    database.alias_types.remove(found)
