"""UPDATE and DELETE.

A plain statement becomes one SQLite statement. With subqueries or computed columns, the new values are computed first by a query over the rows' `rowid`s, which SQLite puts aside
before it changes anything; so no statement sees rows it has changed itself.
"""

from mssql_standin.catalog import Column, fold
from mssql_standin.changes import effects
from mssql_standin.changes.insert import ChangePlan
from mssql_standin.changes.ports import ChangeSession
from mssql_standin.contract import Query, Relation, Typed
from mssql_standin.errors import SqlError
from mssql_standin.queries.frame import Frame
from mssql_standin.queries.names import ROWID, SessionNames
from mssql_standin.queries.plans import is_shared
from mssql_standin.queries.selects import Reads
from mssql_standin.queries.targets import Target, column_of, full_name, resolve, specified_twice
from mssql_standin.sql.convert import assign
from mssql_standin.sql.expressions import compile_condition, compile_scalar
from mssql_standin.sql.literals import text_literal
from mssql_standin.sql.parse import parse_expression_tree, parse_select
from mssql_standin.sql.query import compile_query
from mssql_standin.sql.scope import Scope
from mssql_standin.text.update_text import UpdateText


class UpdateCompiler:
    """Compiles one UPDATE or DELETE."""

    def __init__(self, session: ChangeSession, frame: Frame, text: UpdateText) -> None:
        self.text = text
        self.alias = text.target[-1]
        reads = ("SELECT",) if text.where else ()
        self.table = resolve(session, frame, text.target, text.verb, *reads)
        self.target = Target(self.table, text.hints)
        self.names = SessionNames(session, frame, self.table)
        self.scope = Scope()

    def compile(self) -> ChangePlan:
        """The plan."""
        assignments = self.checked()
        simple = not any(c.computed for c in self.table.columns)
        plan = self._simple(assignments) if simple else None
        if plan is None:
            plan = self._joined(assignments)
        keys = {fold(name) for index in self.table.indexes if index.unique for name, _ in index.keys}
        plan.keys_change = any(fold(column.name) in keys for column, _ in assignments)
        plan.rewrites = effects.rewritten(self.table, (column.name for column, _ in assignments))
        return plan

    def checked(self) -> list[tuple[Column, str]]:
        """The assigned columns with their expressions."""
        found = []
        seen: set[int] = set()
        for name, text in self.text.assignments:
            column = column_of(self.table, name)
            if column.column_id in seen:
                raise specified_twice(column)
            seen.add(column.column_id)
            if column.identity is not None:
                raise SqlError(8102, f"Cannot update identity column '{column.name}'.")
            if column.computed is not None:
                raise SqlError(
                    271,
                    f'The column "{column.name}" cannot be modified because it is either a computed column or is the result of a '
                    "UNION operator.",
                )
            if column.type.name == "rowversion":
                raise SqlError(272, "Cannot update a timestamp column.")
            found.append((column, text))
        return found

    # ---- one table -------------------------------------------------------------------------------------------------

    def _simple(self, assignments: list[tuple[Column, str]]) -> ChangePlan | None:
        """One SQLite statement without a query in front; None when expressions hold subqueries."""
        self.scope.add(self.names.of_table(self.table), self.alias, self.table.sqlite)
        values = [(column, self._value(column, text)) for column, text in assignments]
        where = (
            compile_condition(parse_expression_tree(self.text.where), self.names, self.scope) if self.text.where else ""
        )
        if self.scope.used.relations:
            self.scope = Scope()
            return None
        return self._plan(self.settings(values), f" WHERE {where}" if where else "")

    def _value(self, column: Column, text: str) -> str:
        if text.upper() == "DEFAULT":
            return self.default(column)
        typed = compile_scalar(parse_expression_tree(text), self.names, self.scope)
        return assign(typed, column.type, column.name, full_name(self.table)).sql

    def default(self, column: Column) -> str:
        """SQLite text of SET column = DEFAULT."""
        if column.default is None:
            return "NULL"
        typed = compile_scalar(parse_expression_tree(column.default), self.names, self.scope)
        return assign(typed, column.type, column.name, full_name(self.table)).sql

    def settings(self, values: list[tuple[Column, str]]) -> str:
        """The SET list: what the statement names, and new row versions."""
        settings = [f"{column.sqlite} = {value}" for column, value in values]
        settings += [
            f"{column.sqlite} = engine_rowversion({text_literal(self.table.database)})"
            for column in self.table.columns
            if column.type.name == "rowversion"
        ]
        return ", ".join(settings)

    def _plan(self, settings: str, rest: str) -> ChangePlan:
        table = self.table.sqlite
        sql = f"DELETE FROM {table}{rest}" if self.text.verb == "DELETE" else f"UPDATE {table} SET {settings}{rest}"
        used = self.scope.used
        relations = [*used.relations, Relation("", (), self.table)]
        reads = Reads.of([r for r in used.relations if r.table is not self.table], used.hints)
        return ChangePlan(
            self.text.verb,
            sql,
            self.target,
            used.variables,
            reads,
            is_shared(relations),
        )

    # ---- through a query -------------------------------------------------------------------------------------------------

    def _joined(self, assignments: list[tuple[Column, str]]) -> ChangePlan:
        query = self._query(assignments)
        keys = ", ".join(["r", *(f"v{place}" for place in range(1, len(query.columns)))])
        source = f"(WITH q({keys}) AS ({query.sql}) SELECT * FROM q)"
        if self.text.verb == "DELETE":
            return self._plan("", f" WHERE rowid IN (SELECT r FROM {source})")
        values = []
        place = 0
        for column, text in assignments:
            if text.upper() == "DEFAULT":
                values.append((column, self.default(column)))
                continue
            place += 1
            given = query.columns[place]
            typed = Typed(f"source.v{place}", given.type, given.nullable)
            values.append((column, assign(typed, column.type, column.name, full_name(self.table)).sql))
        return self._plan(
            self.settings(values),
            f" FROM {source} AS source WHERE {self.table.sqlite}.rowid = source.r",
        )

    def _query(self, assignments: list[tuple[Column, str]]) -> Query:
        """The query that gives rowids and new values."""
        alias = self.alias
        items = [f"[{alias}].[{ROWID}]" if not alias.startswith("@") else f"[{ROWID}]"]
        items += [f"({text})" for _, text in assignments if text.upper() != "DEFAULT"]
        where = f" WHERE {self.text.where}" if self.text.where else ""
        tree = parse_select(f"SELECT {', '.join(items)} FROM {_quoted(self.text.target)}{where}")
        return compile_query(tree, self.names, self.scope)


def _quoted(parts: tuple[str, ...]) -> str:
    return ".".join(
        part if part.startswith(("@", "#")) else f"[{part.replace(']', ']]')}]" if part else "" for part in parts
    )
