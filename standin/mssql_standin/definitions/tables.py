"""CREATE, DROP and TRUNCATE TABLE; temporary tables, table variables, the table of a SELECT INTO."""

from collections.abc import Sequence
from typing import Any

from mssql_standin.capture import hooks
from mssql_standin.catalog import Column, Table, fold
from mssql_standin.certain import certain
from mssql_standin.contract import ResultColumn
from mssql_standin.definitions.elements import ElementReader, skip_storage
from mssql_standin.definitions.keys import add_constraints
from mssql_standin.definitions.objects import check_free, exists, home
from mssql_standin.definitions.ports import DefinitionInterpreter, DefinitionSession
from mssql_standin.errors import SqlError, unsupported
from mssql_standin.queries.frame import Frame
from mssql_standin.queries.names import SessionNames
from mssql_standin.queries.targets import resolve, resolve_object
from mssql_standin.store import physical
from mssql_standin.store.constraints import referencing
from mssql_standin.store.locks import Mode
from mssql_standin.store.temporary import is_temporary
from mssql_standin.text import tree
from mssql_standin.text.clauses import read_name
from mssql_standin.text.reader import Reader


def create_table(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
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


def _read_elements(interpreter: DefinitionInterpreter, reader: Reader, table: Table) -> None:
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


def _create_temporary(interpreter: DefinitionInterpreter, reader: Reader, name: str) -> None:
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


def _make_temporary(session: DefinitionSession, table: Table) -> None:
    if session.transaction.count:
        session.edit()
    physical.create(session, table)
    session.add_temporary(table)


def table_variable(session: DefinitionSession, frame: Frame, item: tree.Declaration) -> Table:
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


def table_like(interpreter: DefinitionInterpreter, parts: tuple[str, ...], columns: Sequence[ResultColumn]) -> Table:
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


def drop_table(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """DROP TABLE [IF EXISTS] a, b."""
    reader.expect("TABLE")
    quiet = reader.accept("IF", "EXISTS")
    while True:
        _drop_one(interpreter, read_name(reader), quiet)
        if not reader.accept(","):
            return


def _drop_one(interpreter: DefinitionInterpreter, parts: tuple[str, ...], quiet: bool) -> None:
    session = interpreter.session
    names = SessionNames(session, interpreter.frame)
    table = None if parts[-1].startswith("@") else names.table(parts)
    if table is None:
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

    if referencing(database, table):
        raise SqlError(
            3726, f"Could not drop object '{'.'.join(parts)}' because it is referenced by a FOREIGN KEY constraint."
        )
    session.transaction.lock(table, Mode.X)
    hooks.before_table_change(session, table, "drop", None)
    session.drop_table(table)


def truncate(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """TRUNCATE TABLE."""
    session = interpreter.session
    reader.expect("TABLE")
    parts = read_name(reader)
    table = resolve_object(session, interpreter.frame, parts, 4701)
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
