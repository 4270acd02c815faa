"""The table that an INSERT, UPDATE, DELETE or MERGE changes, and reading its clauses."""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cdc_assets.standin.catalog import Column, Table
from cdc_assets.standin.errors import SqlError, unsupported
from cdc_assets.standin.queries.frame import Frame
from cdc_assets.standin.queries.names import SessionNames
from cdc_assets.standin.queries.plans import is_temporary
from cdc_assets.standin.store.locks import Mode
from cdc_assets.standin.text.lexer import Kind
from cdc_assets.standin.text.reader import Reader

if TYPE_CHECKING:
    from cdc_assets.standin.engine.session import EngineSession

_HINT_WORDS: Final = re.compile(r"\w+")


@dataclass(slots=True)
class Target:
    """A table to change."""

    table: Table
    hints: frozenset[str] = frozenset()

    @property
    def stored(self) -> bool:
        """A table of a database: neither temporary nor a variable."""
        return not is_temporary(self.table)

    @property
    def variable(self) -> bool:
        """A table variable: outside transactions and seen by nobody else."""
        return self.table.name.startswith("@")

    def lock(self, session: "EngineSession") -> None:
        """Take the table lock of a change."""
        if self.stored:
            mode = Mode.X if "TABLOCKX" in self.hints else Mode.SIX if "TABLOCK" in self.hints else Mode.IX
            session.transaction.lock(self.table, mode)


@dataclass(slots=True)
class Output:
    """An OUTPUT clause."""

    items: list[str]
    into: tuple[str, ...] | None = None
    columns: list[str] = field(default_factory=list)


def read_name(reader: Reader) -> tuple[str, ...]:
    """A one- to four-part name."""
    parts: list[str] = []
    while True:
        token = reader.token()
        if token is not None and token.kind in (Kind.WORD, Kind.NAME, Kind.VARIABLE):
            parts.append(reader.take().value)
        elif reader.word() == ".":
            parts.append("")
        else:
            raise reader.fail()
        if not reader.accept("."):
            return tuple(parts)


def read_hints(reader: Reader) -> frozenset[str]:
    """`WITH (…)` behind a table."""
    if reader.word() == "WITH" and reader.word(1) == "(":
        reader.take()
        first, last = reader.parenthesised()
        return frozenset(word.upper() for word in _HINT_WORDS.findall(reader.between(first, last)))
    return frozenset()


def read_top(reader: Reader) -> str:
    """`TOP (n)`: the expression text, or an empty text."""
    if not reader.accept("TOP"):
        return ""
    if reader.word() == "(":
        first, last = reader.parenthesised()
        text = reader.between(first, last)
    else:
        text = reader.take().text
    if reader.accept("PERCENT"):
        raise unsupported("TOP … PERCENT in a change")
    return text


def read_output(reader: Reader, ends: frozenset[str]) -> Output | None:
    """`OUTPUT items [INTO table [(columns)]]` up to one of the words in `ends`."""
    if not reader.accept("OUTPUT"):
        return None
    items = [read_until(reader, ends | {"INTO"}, ",")]
    while reader.accept(","):
        items.append(read_until(reader, ends | {"INTO"}, ","))
    if not reader.accept("INTO"):
        return Output(items)
    into = read_name(reader)
    columns: list[str] = []
    if reader.word() == "(":
        columns = read_columns(reader)
    if reader.word() == "OUTPUT":
        raise unsupported("two OUTPUT clauses")
    return Output(items, into, columns)


def read_until(reader: Reader, words: frozenset[str], signs: str = "") -> str:
    """Text up to a keyword or sign outside parentheses and CASE."""
    first, depth, cases = reader.place, 0, 0
    while (token := reader.token()) is not None:
        word = token.upper
        if depth == 0 and cases == 0 and (word in words or (token.kind is Kind.SIGN and token.text in signs)):
            break
        if token.kind is Kind.SIGN:
            depth += (token.text == "(") - (token.text == ")")
            if depth < 0:
                break
        cases += (word == "CASE") - (word == "END" and cases > 0)
        reader.take()
    if first == reader.place:
        raise reader.fail()
    return reader.between(first, reader.place)


def read_columns(reader: Reader) -> list[str]:
    """`(a, b, c)`: last parts of the names."""
    reader.expect("(")
    columns = [read_name(reader)[-1]]
    while reader.accept(","):
        columns.append(read_name(reader)[-1])
    reader.expect(")")
    return columns


def resolve(session: "EngineSession", frame: Frame, parts: tuple[str, ...], *actions: str) -> Table:
    """The table to change, with what is done to it.

    Raises:
        SqlError: 229 for what is not permitted, 208 for an unknown name, 259 for a system view, 1087 for an undeclared table variable.
    """
    names = SessionNames(session, frame)
    table = names.table(parts)
    if table is not None:
        for action in actions:
            names.permit(action, table)
        return table
    if names.view(parts) is not None:
        raise unsupported("a change through a view")
    names.relation(parts)
    raise SqlError(259, "Ad hoc updates to system catalogs are not allowed.")


def column_of(table: Table, name: str) -> Column:
    """A column by name.

    Raises:
        SqlError: 207.
    """
    found = table.column(name)
    if found is None:
        from cdc_assets.standin.errors import invalid_column

        raise invalid_column(name)
    return found


def specified_twice(column: Column) -> SqlError:
    """264."""
    return SqlError(
        264,
        f"The column name '{column.name}' is specified more than once in the SET clause or column list of an INSERT. A column cannot "
        "be assigned more than one value in the same clause. Modify the clause to make sure that a column is updated only once.",
    )


def full_name(table: Table) -> str:
    """`database.schema.table` for messages."""
    return str(table) if table.database else f"tempdb.dbo.{table.name}"
