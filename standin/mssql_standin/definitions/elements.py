"""Column lists: CREATE TABLE, DECLARE @t TABLE, ALTER TABLE ADD – text to catalogue objects."""

import secrets
from dataclasses import dataclass, field
from typing import Final

from mssql_standin.catalog import Column, Table, fold
from mssql_standin.contract import Relation, RelationColumn
from mssql_standin.definitions.ports import DefinitionSession
from mssql_standin.errors import SqlError, syntax_error, unknown_type, unsupported
from mssql_standin.queries.names import SessionNames
from mssql_standin.sql.collation import sqlite_collation
from mssql_standin.sql.expressions import compile_scalar
from mssql_standin.sql.parse import parse_expression_tree
from mssql_standin.sql.scope import Scope
from mssql_standin.sqltypes import SqlType, parse_type
from mssql_standin.text.catalog_text import catalog_text
from mssql_standin.text.clauses import read_name, read_until
from mssql_standin.text.lexer import Kind
from mssql_standin.text.reader import Reader

_TABLE_CONSTRAINTS: Final = frozenset({"CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "INDEX", "PERIOD"})
_COLUMN_WORDS: Final = frozenset({
    "NULL", "NOT", "DEFAULT", "CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "REFERENCES", "FOREIGN", "IDENTITY", "COLLATE", "SPARSE",
    "ROWGUIDCOL", "PERSISTED", "WITH", "INDEX", "GENERATED", "MASKED", "ENCRYPTED", "FILESTREAM", "HIDDEN",
})  # fmt: skip
_IDENTITY_TYPES: Final = frozenset({"tinyint", "smallint", "int", "bigint", "decimal", "numeric"})
_TWO_WORDS: Final = frozenset({"VARYING", "PRECISION"})


@dataclass(slots=True)
class Constraint:
    """A constraint as written, of a column or of the table."""

    kind: str
    """PRIMARY, UNIQUE, CHECK, FOREIGN or INDEX."""
    name: str = ""
    keys: list[tuple[str, bool]] = field(default_factory=list)
    clustered: bool | None = None
    expression: str = ""
    references: tuple[str, ...] = ()
    referenced_columns: list[str] = field(default_factory=list)
    on_delete: str = "NO_ACTION"
    on_update: str = "NO_ACTION"


@dataclass(slots=True)
class Elements:
    """What stands between the parentheses."""

    columns: list[Column] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    with_values: set[str] = field(default_factory=set)
    """Columns added WITH VALUES."""


class ElementReader:
    """Reads column and constraint definitions.

    Args:
        table: receives column ids; its other columns may be named by computed ones.
    """

    def __init__(self, session: DefinitionSession, names: SessionNames, reader: Reader, table: Table) -> None:
        self.session, self.names, self.reader, self.table = session, names, reader, table
        self.elements = Elements()
        self._computed: list[Column] = []

    def read_all(self, parenthesised: bool = True) -> Elements:
        """Read elements up to the closing parenthesis, or to the end."""
        if parenthesised:
            self.reader.expect("(")
        self._element()
        while self.reader.accept(","):
            if self.reader.word() == ")":
                break
            self._element()
        if parenthesised:
            self.reader.expect(")")
        for column in self._computed:
            self._type_computed(column)
        return self.elements

    def _element(self) -> None:
        if self.reader.word() in _TABLE_CONSTRAINTS:
            self.elements.constraints.append(self.constraint())
        else:
            self._column()

    # ---- columns -------------------------------------------------------------------------------------------------

    def _column(self) -> None:
        token = self.reader.take()
        if token.kind not in (Kind.WORD, Kind.NAME):
            raise syntax_error(token.value)
        name = token.value
        known = [*self.table.columns, *self.elements.columns]
        if any(fold(column.name) == fold(name) for column in known):
            raise SqlError(
                2705,
                f"Column names in each table must be unique. Column name '{name}' in table '{self.table.name}' is specified more than once.",
            )
        column = Column(name, self.table.next_column_id, SqlType("int"))
        self.table.next_column_id += 1
        self.elements.columns.append(column)
        if self.reader.accept("AS"):
            self._read_computed(column)
        else:
            column.type, column.alias_type = self.read_type(len(self.elements.columns))
            self._options(column)
        if column.type.name == "rowversion":
            column.nullable = False if column.nullable is None else column.nullable

    def read_type(self, number: int = 1) -> tuple[SqlType, str | None]:
        """A type, and the name of the alias type it was declared with.

        Args:
            number: of the column, for the message.

        Raises:
            SqlError: 2715 when there is no such type.
        """
        reader = self.reader
        first = reader.place
        parts = read_name(reader)
        while reader.word() in _TWO_WORDS or (
            reader.word() in ("CHAR", "CHARACTER", "TEXT") and parts[-1].lower() == "national"
        ):
            reader.take()
        if reader.word() == "(":
            reader.parenthesised()
        text = reader.between(first, reader.place)
        bare = text.replace("[", "").replace("]", "").removeprefix("sys.")
        if "(" not in bare:
            alias = self.names.user_type(parts)
            if alias is not None:
                return alias, parts[-1]
        try:
            return parse_type(bare), None
        except SqlError as error:
            raise unknown_type(bare, number) if error.number == 243 else error from error

    def _read_computed(self, column: Column) -> None:
        text = read_until(self.reader, _COLUMN_WORDS, ",")
        column.computed = catalog_text(text)
        if self.reader.accept("PERSISTED"):
            column.persisted = True
        self._computed.append(column)
        self._options(column)

    def _type_computed(self, column: Column) -> None:

        stored = [c for c in [*self.table.columns, *self.elements.columns] if c.computed is None]
        relation = Relation("", tuple(RelationColumn(c.name, c.sqlite, c.type, c.nullable) for c in stored))
        typed = compile_scalar(
            parse_expression_tree(column.computed or ""), self.names, Scope.of(relation, self.table.name, "")
        )
        column.type = typed.type
        column.nullable = typed.nullable if column.nullable else False

    def _options(self, column: Column) -> None:
        """NULL, DEFAULT, IDENTITY, constraints … behind the type."""
        reader = self.reader
        named = ""
        nullable: bool | None = None
        while (word := reader.word()) and word in _COLUMN_WORDS:
            if reader.accept("NOT", "NULL"):
                nullable = False
            elif reader.accept("NULL"):
                nullable = True
            elif reader.accept("CONSTRAINT"):
                named = reader.take().value
                continue
            elif reader.accept("COLLATE"):
                collation = reader.take().value
                sqlite_collation(collation)
                column.type = column.type.with_collation(collation)
            elif reader.accept("DEFAULT"):
                self._default(column, named)
            elif reader.accept("IDENTITY"):
                self._identity(column)
            elif reader.accept("SPARSE"):
                column.sparse = True
            elif reader.accept("ROWGUIDCOL"):
                column.rowguid = True
            elif reader.accept("WITH", "VALUES"):
                self.elements.with_values.add(fold(column.name))
            elif word in ("PRIMARY", "UNIQUE", "REFERENCES", "FOREIGN"):
                self.elements.constraints.append(self.constraint(column, named))
                if word == "PRIMARY":
                    nullable = False
            else:
                raise unsupported(f"{word} of a column")
            named = ""
        if nullable is not None:
            column.nullable = nullable
        elif column.identity is not None or column.type.name == "rowversion":
            column.nullable = False

    def _default(self, column: Column, name: str) -> None:
        text = (
            read_until(self.reader, _COLUMN_WORDS - {"NULL"}, ",")
            if self.reader.word() != "NULL"
            else self.reader.take().text
        )
        if text.upper().endswith(" NULL") and self.reader.token() is not None:
            raise syntax_error("NULL")
        column.default = catalog_text(text)
        column.default_name = name or generated("DF", self.table.name, column.name)

    def _identity(self, column: Column) -> None:
        seed = increment = 1
        if self.reader.accept("("):
            seed = self._integer()
            self.reader.expect(",")
            increment = self._integer()
            self.reader.expect(")")
        if self.reader.accept("NOT", "FOR", "REPLICATION"):
            pass
        if column.type.name not in _IDENTITY_TYPES or column.type.scale:
            raise SqlError(
                2749,
                f"Identity column '{column.name}' must be of data type int, bigint, smallint, tinyint, or decimal or numeric with a "
                "scale of 0, unencrypted, and constrained to be nonnullable.",
            )
        if any(other.identity for other in [*self.table.columns, *self.elements.columns]):
            raise SqlError(
                2744,
                f"Multiple identity columns specified for table '{self.table.name}'. Only one identity column per table is allowed.",
            )
        column.identity = (seed, increment)

    def _integer(self) -> int:
        sign = -1 if self.reader.accept("-") else 1
        self.reader.accept("+")
        token = self.reader.take()
        if token.kind is not Kind.NUMBER or not token.text.isdigit():
            raise syntax_error(token.value)
        return sign * int(token.text)

    # ---- constraints -----------------------------------------------------------------------------------------------

    def constraint(self, column: Column | None = None, name: str = "") -> Constraint:
        """A constraint of a column, or of the table."""
        reader = self.reader
        if reader.accept("CONSTRAINT"):
            name = reader.take().value
        word = reader.take().upper
        found = Constraint(word, name)
        if word in ("PRIMARY", "UNIQUE"):
            self._key(found, column)
        elif word in ("FOREIGN", "REFERENCES"):
            self._foreign_key(found, column, word)
        elif word == "INDEX":
            found.name = reader.take().value
            self._key(found, column)
            found.kind = "INDEX"
        else:
            raise unsupported(f"{word} in a table definition")
        return found

    def _key(self, found: Constraint, column: Column | None) -> None:
        reader = self.reader
        if found.kind == "PRIMARY":
            reader.expect("KEY")
        if found.kind == "INDEX" and reader.accept("UNIQUE"):
            found.expression = "UNIQUE"
        if reader.accept("CLUSTERED"):
            found.clustered = True
        elif reader.accept("NONCLUSTERED"):
            found.clustered = False
        if reader.word() == "(":
            found.keys = read_keys(reader)
        elif column is not None:
            found.keys = [(column.name, False)]
        else:
            raise reader.fail()
        skip_storage(reader)

    def _foreign_key(self, found: Constraint, column: Column | None, word: str) -> None:
        reader = self.reader
        found.kind = "FOREIGN"
        if word == "FOREIGN":
            reader.expect("KEY")
            if column is None:
                found.keys = read_keys(reader)
            reader.expect("REFERENCES")
        if column is not None:
            found.keys = [(column.name, False)]
        found.references = read_name(reader)
        if reader.word() == "(":
            found.referenced_columns = [name for name, _ in read_keys(reader)]
        while reader.accept("ON"):
            event = reader.take().upper
            action = "_".join(_action_words(reader))
            if event == "DELETE":
                found.on_delete = action
            else:
                found.on_update = action
        reader.accept("NOT", "FOR", "REPLICATION")


def _action_words(reader: Reader) -> list[str]:
    word = reader.take().upper
    if word == "CASCADE":
        return [word]
    return [word, reader.take().upper]


def read_keys(reader: Reader) -> list[tuple[str, bool]]:
    """`(a, b DESC)`."""
    reader.expect("(")
    keys = []
    while True:
        name = read_name(reader)[-1]
        descending = reader.accept("DESC")
        if not descending:
            reader.accept("ASC")
        keys.append((name, descending))
        if not reader.accept(","):
            break
    reader.expect(")")
    return keys


def skip_storage(reader: Reader) -> None:
    """`WITH (…)`, `ON filegroup`, `TEXTIMAGE_ON filegroup`: where and how rows lie means nothing here."""
    while True:
        if reader.word() == "WITH" and reader.word(1) == "(":
            reader.take()
            reader.parenthesised()
        elif reader.word() == "WITH" and reader.word(1) in ("FILLFACTOR", "PAD_INDEX"):
            reader.place += 4
        elif reader.word() in ("TEXTIMAGE_ON", "FILESTREAM_ON") or (
            reader.word() == "ON" and reader.word(1) not in ("DELETE", "UPDATE")
        ):
            reader.take()
            reader.take()
            if reader.word() == "(":
                reader.parenthesised()
        else:
            return


def generated(prefix: str, table: str, column: str = "") -> str:
    """A name as SQL Server generates it."""
    middle = f"__{table[:9]}__" + (f"{column[:5]}__" if column else "")
    return f"{prefix}{middle}{secrets.token_hex(8 if prefix in ('PK', 'UQ') else 4).upper()}"
