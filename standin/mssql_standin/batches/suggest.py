"""sp_describe_undeclared_parameters: what type a parameter should have, from where it stands.

Known places: INSERT … VALUES (the column), SET column = @p, comparisons, IN, BETWEEN and LIKE against a column, TOP and
OFFSET. A parameter elsewhere cannot be deduced, which SQL Server answers with an error too; drivers then
fall back on the type of the value.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlglot import exp

from mssql_standin.catalog import fold
from mssql_standin.contract import Parameter, RelationColumn
from mssql_standin.errors import SqlError
from mssql_standin.queries.frame import Frame
from mssql_standin.queries.names import SessionNames
from mssql_standin.queries.ports import QuerySession
from mssql_standin.sql.parse import parse_expression_tree, parse_select
from mssql_standin.sql.sources import table_parts
from mssql_standin.sqltypes import BIGINT, SqlType
from mssql_standin.text import insert_text, tree, update_text
from mssql_standin.text.batch import parse_batch
from mssql_standin.text.lexer import Kind, tokenize

_COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like)


def suggest(session: QuerySession, text: str) -> Sequence[Parameter]:
    """The undeclared parameters of a text, in order of appearance, with suggested types.

    Raises:
        SqlError: 11503 for one whose type cannot be deduced; what parsing and names raise.
    """
    wanted = _undeclared(text)
    finder = _Finder(SessionNames(session, Frame()))
    for statement in parse_batch(text).statements:
        finder.statement(statement)
    parameters = []
    for name in wanted:
        found = finder.found.get(fold(name))
        if found is None:
            raise SqlError(
                11503,
                f"The parameter type cannot be deduced because no expression gives parameter '{name}' a type.",
            )
        parameters.append(Parameter(name, found, None))
    return parameters


def _undeclared(text: str) -> list[str]:
    names: dict[str, str] = {}
    for token in tokenize(text):
        if token.kind is Kind.VARIABLE and not token.text.startswith("@@"):
            names.setdefault(fold(token.text), token.text)
    return list(names.values())


class _Finder:
    """Collects parameter → type."""

    def __init__(self, names: SessionNames) -> None:
        self._names = names
        self.found: dict[str, SqlType] = {}

    def statement(self, statement: tree.Statement) -> None:
        """Look into one statement."""
        if isinstance(statement, tree.Query):
            self._query(parse_select(statement.text), [])
        elif isinstance(statement, tree.Change) and statement.verb == "INSERT":
            self._insert(insert_text.read(statement.text))
        elif isinstance(statement, tree.Change) and statement.verb in ("UPDATE", "DELETE"):
            self._update(update_text.read(statement.text))

    def _insert(self, text: insert_text.InsertText) -> None:
        columns = [c for c in self._names.relation(text.target).columns if not c.computed]
        if text.columns is not None:
            by_name = {fold(column.name): column for column in columns}
            columns = [by_name[fold(name)] for name in text.columns if fold(name) in by_name]
        else:
            columns = [c for c in columns if not c.identity and c.type.name != "rowversion"]
        for row in text.rows:
            for column, value in zip(columns, row, strict=False):
                self._assigned(parse_expression_tree(value), column.type)
        if text.query:
            self._query(parse_select(text.query), [])

    def _update(self, text: update_text.UpdateText) -> None:
        columns = list(self._names.relation(text.target).columns)
        by_name = {fold(column.name): column.type for column in columns}
        for name, value in text.assignments:
            if fold(name) in by_name and value.upper() != "DEFAULT":
                self._assigned(parse_expression_tree(value), by_name[fold(name)])
        if text.where:
            self._walk(parse_expression_tree(text.where), columns)

    def _assigned(self, node: Any, sql_type: SqlType) -> None:
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Parameter):
            self.found.setdefault(fold(f"@{node.name}"), sql_type)

    def _query(self, node: exp.Expression, around: list[RelationColumn]) -> None:
        columns = [*self._columns(node), *around]
        self._walk(node, columns)
        for limit in node.find_all(exp.Limit, exp.Fetch, exp.Offset):
            for parameter in limit.find_all(exp.Parameter):
                self._assigned(parameter, BIGINT)

    def _columns(self, node: exp.Expression) -> list[RelationColumn]:
        return list(self._tables(node))

    def _tables(self, node: exp.Expression) -> Iterator[RelationColumn]:
        for table in node.find_all(exp.Table):
            try:
                yield from self._names.relation(table_parts(table)).columns
            except SqlError:  # a common table expression or a function: its columns stay unknown
                continue

    def _walk(self, node: exp.Expression, columns: list[RelationColumn]) -> None:
        by_name = {fold(column.name): column.type for column in reversed(columns)}
        for comparison in node.find_all(*_COMPARISONS, exp.Between, exp.In):
            sides = [
                comparison.this,
                comparison.args.get("expression"),
                comparison.args.get("low"),
                comparison.args.get("high"),
            ]
            sides += comparison.expressions
            named = [side for side in sides if isinstance(side, exp.Column) and fold(side.name) in by_name]
            if named:
                for side in sides:
                    self._assigned(side, by_name[fold(named[0].name)])
