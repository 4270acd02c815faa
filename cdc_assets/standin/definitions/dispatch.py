"""Definition statements: which module does which."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from cdc_assets.standin.capture import hooks
from cdc_assets.standin.catalog import Column, Database, Table, fold
from cdc_assets.standin.certain import certain
from cdc_assets.standin.contract import ResultColumn
from cdc_assets.standin.definitions.elements import ElementReader, skip_storage
from cdc_assets.standin.definitions.keys import add_constraints
from cdc_assets.standin.errors import SqlError, invalid_object, unsupported
from cdc_assets.standin.queries.frame import Frame
from cdc_assets.standin.queries.names import SessionNames
from cdc_assets.standin.queries.plans import is_temporary
from cdc_assets.standin.queries.targets import read_name, resolve
from cdc_assets.standin.store import physical
from cdc_assets.standin.store.locks import Mode
from cdc_assets.standin.text import tree
from cdc_assets.standin.text.reader import Reader

if TYPE_CHECKING:
    from cdc_assets.standin.batches.interpreter import Interpreter
    from cdc_assets.standin.engine.session import EngineSession


_ON_A_TABLE: Final = frozenset({"INDEX", "UNIQUE", "CLUSTERED", "NONCLUSTERED", "STATISTICS"})
_OWN_RULES: Final = frozenset({"LOGIN", "USER", "ROLE", "SERVER"})
"""Definitions that say themselves who may do them."""


def require_ownership(session: "EngineSession", verb: str, word: str, reader: Reader | None = None) -> None:
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


def run(interpreter: "Interpreter", statement: tree.Definition) -> None:
    """Run a definition statement."""
    from cdc_assets.standin.batches import routines
    from cdc_assets.standin.definitions import alter, databases, grants, indexes, principals, rename, views

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
        ("ALTER", "SCHEMA"): rename.alter_schema,
        ("DROP", "SCHEMA"): databases.drop_schema,
        ("CREATE", "TYPE"): databases.create_type,
        ("DROP", "TYPE"): databases.drop_type,
        ("CREATE", "INDEX"): indexes.create_index,
        ("CREATE", "UNIQUE"): indexes.create_index,
        ("CREATE", "CLUSTERED"): indexes.create_index,
        ("CREATE", "NONCLUSTERED"): indexes.create_index,
        ("DROP", "INDEX"): indexes.drop_index,
        ("ALTER", "INDEX"): indexes.alter_index,
        ("UPDATE", "STATISTICS"): nothing,
        ("CREATE", "STATISTICS"): nothing,
        ("CREATE", "VIEW"): views.create_view,
        ("ALTER", "VIEW"): views.alter_view,
        ("DROP", "VIEW"): views.drop_view,
        ("CREATE", "PROCEDURE"): routines.create_procedure,
        ("CREATE", "PROC"): routines.create_procedure,
        ("ALTER", "PROCEDURE"): routines.alter_procedure,
        ("ALTER", "PROC"): routines.alter_procedure,
        ("DROP", "PROCEDURE"): routines.drop_procedure,
        ("DROP", "PROC"): routines.drop_procedure,
        ("CREATE", "LOGIN"): principals.create_login,
        ("ALTER", "LOGIN"): principals.alter_login,
        ("DROP", "LOGIN"): principals.drop_login,
        ("CREATE", "USER"): principals.create_user,
        ("DROP", "USER"): principals.drop_principal,
        ("CREATE", "ROLE"): principals.create_role,
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
        if verb == "DBCC":
            databases.dbcc(interpreter, reader)
            return
        if verb not in ("GRANT", "REVOKE", "DENY"):
            raise unsupported(f"{verb} {word}".strip())

        def action(interpreter: "Interpreter", reader: Reader, _: str) -> None:
            grants.run(interpreter, reader, verb)

    elif word not in _OWN_RULES:
        require_ownership(interpreter.session, verb, word, reader)
    interpreter.session.transaction.begin_implicit()
    interpreter.session.editing(lambda: action(interpreter, reader, statement.text))


def nothing(interpreter: "Interpreter", reader: Reader, text: str) -> None:
    """Statements about statistics change nothing here."""


# ---- CREATE TABLE ------------------------------------------------------------------------------------------------


def create_table(interpreter: "Interpreter", reader: Reader, text: str) -> None:
    """CREATE TABLE."""
    session = interpreter.session
    reader.expect("TABLE")
    parts = read_name(reader)
    if parts[-1].startswith("#"):
        _create_temporary(interpreter, reader, parts[-1])
        return
    session.edit()
    database, schema = home(session, parts)
    check_free(database, schema, parts[-1])
    table = Table(session.catalog.new_object_id(), database.name, schema, parts[-1])
    table.created = table.modified = session.clock.local()
    _read_elements(interpreter, reader, table)
    session.create_table(table)


def home(session: "EngineSession", parts: tuple[str, ...]) -> tuple[Database, str]:
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
    """Refuse the name of a new object when a table, view or procedure has it.

    Raises:
        SqlError: 2714.
    """
    if database.table(schema, name) is not None or database.view(schema, name) or database.procedure(schema, name):
        raise exists(name)


def module_shape(
    session: "EngineSession",
    database: Database,
    place: tuple[str, tuple[str, ...]],
    known: Table | None,
    *,
    create: bool,
    alter: bool,
) -> Table:
    """What a view or procedure is in the catalogue: a new object, or the known one from now on.

    Args:
        session: that defines it.
        database: the copy being edited.
        place: schema, and the name as it was written.
        known: the object of that name, if there is one.
        create: whether it may be new.
        alter: whether it may be there already.

    Raises:
        SqlError: 208 or 2714 if it is not as the statement says.
    """
    schema, parts = place
    if known is None and not create:
        raise invalid_object(".".join(parts))
    if known is None or not alter:
        check_free(database, schema, parts[-1])
    now = session.clock.local()
    made, created = (known.object_id, known.created) if known else (session.catalog.new_object_id(), now)
    return Table(made, database.name, schema, parts[-1], created=created, modified=now)


def exists(name: str) -> SqlError:
    """2714."""
    return SqlError(2714, f"There is already an object named '{name}' in the database.", 16, 6)


def _read_elements(interpreter: "Interpreter", reader: Reader, table: Table) -> None:
    session = interpreter.session
    elements = ElementReader(session, SessionNames(session, interpreter.frame), reader, table).read_all()
    skip_storage(reader)
    if reader.token() is not None:
        raise reader.fail()
    table.columns = elements.columns
    ids = session.new_temporary_id if is_temporary(table) else session.catalog.new_object_id
    _not_null_keys(table, elements.constraints)
    add_constraints(session, table, elements.constraints, ids)


def _not_null_keys(table: Table, constraints: Sequence[Any]) -> None:
    """A primary key makes its columns NOT NULL when nothing was said."""
    for constraint in constraints:
        if constraint.kind == "PRIMARY":
            for name, _ in constraint.keys:
                column = table.column(name)
                if column is not None:
                    column.nullable = False


def _create_temporary(interpreter: "Interpreter", reader: Reader, name: str) -> None:
    session = interpreter.session
    if name.startswith("##"):
        raise unsupported("global temporary tables")
    if fold(name) in session.temporary:
        raise exists(name)
    table = Table(session.new_temporary_id(), "", "", name)
    table.created = table.modified = session.clock.local()
    _read_elements(interpreter, reader, table)
    _make_temporary(session, table)
    if interpreter.frame.depth:
        interpreter.frame.temporary.append(fold(name))


def _make_temporary(session: "EngineSession", table: Table) -> None:
    if session.transaction.count:
        session.edit()
    physical.create(session, table)
    session.add_temporary(table)


def table_variable(session: "EngineSession", frame: Frame, item: tree.Declaration) -> Table:
    """The table of DECLARE @t TABLE (…)."""
    text = _text_of(item)
    table = Table(session.new_temporary_id(), "", "", item.name)
    elements = ElementReader(session, SessionNames(session, frame), Reader(text), table).read_all()
    table.columns = elements.columns
    _not_null_keys(table, elements.constraints)
    add_constraints(session, table, elements.constraints, session.new_temporary_id)
    physical.create(session, table)
    return table


def _text_of(item: tree.Declaration) -> str:
    """The column list as text, blanks where they stood."""
    pieces = []
    place = item.table[0].start
    for token in item.table:
        pieces.append(" " * (token.start > place) + token.text)
        place = token.end
    return "".join(pieces)


def table_like(interpreter: "Interpreter", parts: tuple[str, ...], columns: Sequence[ResultColumn]) -> Table:
    """Create the table of a SELECT INTO."""
    session = interpreter.session
    listed = [
        Column(column.name, place, column.type, column.nullable, (1, 1) if column.identity else None)
        for place, column in enumerate(columns, start=1)
    ]
    if parts[-1].startswith("#"):
        if fold(parts[-1]) in session.temporary:
            raise exists(parts[-1])
        table = Table(session.new_temporary_id(), "", "", parts[-1], listed, next_column_id=len(listed) + 1)
        _make_temporary(session, table)
        if interpreter.frame.depth:
            interpreter.frame.temporary.append(fold(parts[-1]))
        return table
    session.edit()
    database, schema = home(session, parts)
    check_free(database, schema, parts[-1])
    table = Table(
        session.catalog.new_object_id(), database.name, schema, parts[-1], listed, next_column_id=len(listed) + 1
    )
    table.created = table.modified = session.clock.local()
    session.create_table(table)
    return table


# ---- DROP and TRUNCATE -------------------------------------------------------------------------------------------


def drop_table(interpreter: "Interpreter", reader: Reader, text: str) -> None:
    """DROP TABLE [IF EXISTS] a, b."""
    reader.expect("TABLE")
    quiet = reader.accept("IF", "EXISTS")
    while True:
        _drop_one(interpreter, read_name(reader), quiet)
        if not reader.accept(","):
            return


def _drop_one(interpreter: "Interpreter", parts: tuple[str, ...], quiet: bool) -> None:
    session = interpreter.session
    names = SessionNames(session, interpreter.frame)
    table = None if parts[-1].startswith("@") else names.table(parts)
    if table is None:
        if names.view(parts) is not None:
            name = ".".join(parts)
            raise SqlError(3705, f"Cannot use DROP TABLE with '{name}' because '{name}' is a view. Use DROP VIEW.")
        if quiet:
            return
        raise SqlError(
            3701,
            f"Cannot drop the table '{'.'.join(parts)}', because it does not exist or you do not have permission.",
            11,
            5,
        )
    if is_temporary(table):
        session.drop_temporary(fold(table.name))
        return
    session.edit()
    table = certain(names.table(parts), ".".join(parts))
    database = certain(session.catalog.database(table.database), table.database)
    from cdc_assets.standin.store.constraints import referencing

    if referencing(database, table):
        raise SqlError(
            3726, f"Could not drop object '{'.'.join(parts)}' because it is referenced by a FOREIGN KEY constraint."
        )
    session.transaction.lock(table, Mode.X)
    hooks.before_table_change(session, table, "drop", None)
    session.drop_table(table)


def truncate(interpreter: "Interpreter", reader: Reader, text: str) -> None:
    """TRUNCATE TABLE."""
    from cdc_assets.standin.store.constraints import referencing

    session = interpreter.session
    reader.expect("TABLE")
    parts = read_name(reader)
    try:
        table = resolve(session, interpreter.frame, parts)
    except SqlError as error:
        if error.number != 208:
            raise
        raise SqlError(
            4701,
            f'Cannot find the object "{".".join(parts)}" because it does not exist or you do not have permissions.',
        ) from error
    if not is_temporary(table):
        session.edit()
        table = resolve(session, interpreter.frame, parts)
        database = session.catalog.database(table.database)
        if database is not None and referencing(database, table):
            raise SqlError(
                4712,
                f"Cannot truncate table '{'.'.join(parts)}' because it is being referenced by a FOREIGN KEY constraint.",
            )
        hooks.before_table_change(session, table, "truncate", None)
        session.transaction.lock(table, Mode.X)
    session.connection.execute(f"DELETE FROM {table.sqlite}")
    session.identities.restart(table)
