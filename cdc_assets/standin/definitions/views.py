"""CREATE, ALTER and DROP VIEW, and what a view means in FROM.

A view is kept as text and compiled anew into every statement that names it, in its own database, as a query in parentheses;
the tables that it reads count as read by the statement, so locks and snapshots hold for them. Its columns are those of the
moment of its definition, as on a real server: a `*` does not grow, and a column that is gone is error 4502. Views are for
reading: a change through one is refused.
"""

from cdc_assets.standin.catalog import Column, Database, UserView, fold
from cdc_assets.standin.certain import certain
from cdc_assets.standin.definitions.objects import home, module_shape
from cdc_assets.standin.definitions.ports import DefinitionInterpreter, DefinitionSession
from cdc_assets.standin.errors import SqlError, unsupported
from cdc_assets.standin.queries.names import SessionNames, compiled_view
from cdc_assets.standin.store.temporary import is_temporary
from cdc_assets.standin.text.clauses import read_columns, read_name
from cdc_assets.standin.text.reader import Reader

_ATTRIBUTES = frozenset({"SCHEMABINDING", "VIEW_METADATA"})


def create_view(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """CREATE [OR ALTER] VIEW name [(columns)] [WITH attributes] AS query."""
    either = reader.accept("OR", "ALTER")
    _define(interpreter.session, reader, text, create=True, alter=either)


def alter_view(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """ALTER VIEW: like CREATE; id and creation date stay."""
    _define(interpreter.session, reader, text, create=False, alter=True)


def _define(session: DefinitionSession, reader: Reader, text: str, create: bool, alter: bool) -> None:
    reader.expect("VIEW")
    parts = read_name(reader)
    if len(parts) > 2:
        raise SqlError(
            166, "'CREATE/ALTER VIEW' does not allow specifying the database name as a prefix to the object name.", 15
        )
    labels = read_columns(reader) if reader.word() == "(" else []
    _read_attributes(reader)
    reader.expect("AS")
    query = _query_text(reader)
    session.edit()
    database, schema = home(session, parts)
    known = database.view(schema, parts[-1])
    shape = module_shape(session, database, (schema, parts), known.shape if known else None, create=create, alter=alter)
    view = UserView(shape, text, query, labels)
    shape.columns = _columns(session, view)
    database.views = [other for other in database.views if other is not known] + [view]


def _read_attributes(reader: Reader) -> None:
    if not reader.accept("WITH"):
        return
    while True:
        word = reader.take().upper
        if word not in _ATTRIBUTES:
            raise unsupported(f"CREATE VIEW WITH {word}")
        if not reader.accept(","):
            return


def _query_text(reader: Reader) -> str:
    """The rest, without WITH CHECK OPTION, which says nothing about reading."""
    end = len(reader.tokens)
    words = [token.upper for token in reader.tokens[-3:]]
    if words == ["WITH", "CHECK", "OPTION"]:
        end -= 3
    if reader.place >= end:
        raise reader.fail()
    return reader.between(reader.place, end)


def _columns(session: DefinitionSession, view: UserView) -> list[Column]:
    """The columns that a definition gives its view.

    Raises:
        SqlError: 4508 over a temporary table, 4511 for one without a name, 4506 for two of the same, 8158 or 8159 for a list of another length, and what
            compiling the query raises.
    """
    relation = compiled_view(session, view)
    temporary = next((o.table for o in relation.behind if o.table and is_temporary(o.table)), None)
    if temporary is not None:
        raise SqlError(
            4508,
            "Views or functions are not allowed on temporary tables. Table names that begin with '#' denote temporary tables.",
        )
    names = view.labels or [column.name for column in relation.columns]
    if len(names) != len(relation.columns):
        number, word = (8158, "more") if len(names) < len(relation.columns) else (8159, "fewer")
        raise SqlError(number, f"'{view.shape.name}' has {word} columns than were specified in the column list.")
    seen: set[str] = set()
    for place, name in enumerate(names, 1):
        if not name:
            raise SqlError(
                4511, f"Create View or Function failed because no column name was specified for column {place}."
            )
        if fold(name) in seen:
            raise SqlError(
                4506,
                f"Column names in each view or function must be unique. Column name '{name}' in view or function "
                f"'{view.shape.name}' is specified more than once.",
            )
        seen.add(fold(name))
    return [
        Column(name, place, given.type, given.nullable)
        for place, (name, given) in enumerate(zip(names, relation.columns, strict=True), 1)
    ]


def drop_view(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """DROP VIEW [IF EXISTS] a, b."""
    reader.expect("VIEW")
    quiet = reader.accept("IF", "EXISTS")
    while True:
        _drop(interpreter.session, SessionNames(interpreter.session, interpreter.frame), read_name(reader), quiet)
        if not reader.accept(","):
            return


def _drop(session: DefinitionSession, names: SessionNames, parts: tuple[str, ...], quiet: bool) -> None:
    database_name, schema = names.place(parts)
    session.edit()
    database: Database = certain(session.catalog.database(database_name), database_name)
    view = database.view(schema, parts[-1])
    if view is not None:
        database.views = [other for other in database.views if other is not view]
        return
    name = ".".join(parts)
    if database.table(schema, parts[-1]) is not None:
        raise SqlError(3705, f"Cannot use DROP VIEW with '{name}' because '{name}' is a table. Use DROP TABLE.")
    if not quiet:
        raise SqlError(
            3701, f"Cannot drop the view '{name}', because it does not exist or you do not have permission.", 11, 5
        )
