"""UPDATE and DELETE.

A plain statement over one table becomes one SQLite statement. With FROM, subqueries or computed
columns, the new values are computed first by a query over the rows' `rowid`s, which SQLite puts aside
before it changes anything; so no statement sees rows it has changed itself.
"""

from sqlglot import exp

from cdc_assets.standin.catalog import Column, fold
from cdc_assets.standin.certain import certain
from cdc_assets.standin.changes import effects, output, updatable
from cdc_assets.standin.changes.insert import ChangePlan
from cdc_assets.standin.changes.ports import ChangeSession
from cdc_assets.standin.contract import Query, Relation, ResultColumn, Typed
from cdc_assets.standin.errors import SqlError, unsupported
from cdc_assets.standin.queries.frame import Frame
from cdc_assets.standin.queries.names import ROWID, SessionNames
from cdc_assets.standin.queries.plans import is_shared
from cdc_assets.standin.queries.selects import Reads
from cdc_assets.standin.queries.targets import Target, column_of, full_name, resolve, specified_twice
from cdc_assets.standin.sql.convert import assign
from cdc_assets.standin.sql.expressions import compile_condition, compile_scalar
from cdc_assets.standin.sql.limits import compile_row_count
from cdc_assets.standin.sql.literals import text_literal
from cdc_assets.standin.sql.parse import parse_expression_tree, parse_select
from cdc_assets.standin.sql.query import compile_query
from cdc_assets.standin.sql.scope import Scope
from cdc_assets.standin.sql.sources import table_parts
from cdc_assets.standin.text.update_text import UpdateText


class UpdateCompiler:
    """Compiles one UPDATE or DELETE."""

    def __init__(self, session: ChangeSession, frame: Frame, text: UpdateText, with_clause: str = "") -> None:
        self.session, self.frame, self.text, self.with_clause = session, frame, text, with_clause
        self.alias = text.target[-1]
        self.through = self._query_of_target()
        self.assigned = [name for name, _ in text.assignments]
        if self.through is not None:
            self.assigned = self.through.choose(self.assigned)
            self.table = self.through.table
            SessionNames(session, frame).permit(text.verb, self.table)
        else:
            reads = ("SELECT",) if text.where or text.source else ()
            self.table = resolve(session, frame, self._target_parts(), text.verb, *reads)
        self.target = Target(self.table, text.hints)
        self.names = SessionNames(session, frame, self.table)
        self.scope = Scope()

    def _query_of_target(self) -> updatable.Updatable | None:
        """The common table expression or derived table that is changed, if the target is not a stored table."""
        if len(self.text.target) > 1 or not (self.with_clause or self.text.source):
            return None
        source = self.text.source or _quoted(self.text.target)
        tree = parse_select(f"{self.with_clause} SELECT 1 FROM {source}")
        return updatable.find(tree, self.alias, SessionNames(self.session, self.frame))

    def _target_parts(self) -> tuple[str, ...]:
        """The table's name: the target itself, or what its alias means in FROM."""
        wanted = self.text.target
        if not self.text.source or len(wanted) > 1:
            return wanted
        tree = parse_select(f"{self.with_clause} SELECT 1 FROM {self.text.source}")
        for node in tree.find_all(exp.Table):
            if fold(node.alias) == fold(wanted[0]):
                return table_parts(node)
        return wanted

    def compile(self) -> ChangePlan:
        """The plan."""
        assignments = self.checked()
        simple = not self.text.source and not self.with_clause and not any(c.computed for c in self.table.columns)
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
        for name, (_, text) in zip(self.assigned, self.text.assignments, strict=True):
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
        top = self._top()
        if self.scope.used.relations:
            self.scope = Scope()
            return None
        if top:
            inner = f" WHERE {where}" if where else ""
            where = f"rowid IN (SELECT rowid FROM {self.table.sqlite}{inner} LIMIT {top})"
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

    def _top(self) -> str:
        if not self.text.top:
            return ""
        return compile_row_count(parse_expression_tree(self.text.top), self.names, Scope(used=self.scope.used))

    def settings(self, values: list[tuple[Column, str]]) -> str:
        """The SET list: what the statement names, and new row versions."""
        settings = [f"{column.sqlite} = {value}" for column, value in values]
        settings += [
            f"{column.sqlite} = engine_rowversion({text_literal(self.table.database)})"
            for column in self.table.columns
            if column.type.name == "rowversion"
        ]
        return ", ".join(settings)

    def _plan(self, settings: str, rest: str, rowids: str = "") -> ChangePlan:
        table = self.table.sqlite
        sql = f"DELETE FROM {table}{rest}" if self.text.verb == "DELETE" else f"UPDATE {table} SET {settings}{rest}"
        before, wanted = "", None
        if self.text.variables and self.text.output is not None:
            raise unsupported("UPDATE … SET @variable together with OUTPUT")
        if self.text.output is not None or self.text.variables:
            if self.text.verb == "DELETE":
                wanted = output.for_delete(self.session, self.frame, self.table, self.text.output, self.scope)
                sql += f" RETURNING {certain(wanted, 'an OUTPUT clause').sql}"
            else:
                before, sql, wanted = self._staged_output(settings, rest, rowids)
        used = self.scope.used
        relations = [*used.relations, Relation("", (), self.table), *(wanted.relations if wanted else [])]
        reads = Reads.of([r for r in used.relations if r.table is not self.table], used.hints)
        return ChangePlan(
            self.text.verb,
            sql,
            self.target,
            used.variables,
            reads,
            is_shared(relations),
            wanted,
            before=before,
            assigned=[name for name, _, _ in self.text.variables],
        )

    def _staged_output(self, settings: str, rest: str, rowids: str) -> tuple[str, str, output.OutputPlan]:
        """Note old rows in temp.engine_stage, update, read both sides."""
        columns = ", ".join(f"{self.table.sqlite}.{c.sqlite} AS {c.sqlite}" for c in self.table.columns)
        where = rest if not rowids else f" WHERE rowid IN ({rowids})"
        before = f"CREATE TEMP TABLE engine_stage AS SELECT {self.table.sqlite}.rowid AS r, {columns} FROM {self.table.sqlite}{where}"
        if self.text.output is not None:
            sides = {"inserted": (self.table, "fresh"), "deleted": (self.table, "stale")}
            wanted = output.compile_output(self.session, self.frame, self.text.output, sides, self.scope)
        else:
            wanted = self._variables()
        wanted.sql = f"SELECT {wanted.sql} FROM temp.engine_stage AS stale JOIN {self.table.sqlite} AS fresh ON fresh.rowid = stale.r ORDER BY stale.r"
        return before, f"UPDATE {self.table.sqlite} SET {settings}{rest}", wanted

    def _variables(self) -> output.OutputPlan:
        """Values of SET @v = …: of the new row for a column, else of an expression over the old row."""
        fresh, stale = (self.names.of_row(self.table, row) for row in ("fresh", "stale"))
        pieces = []
        for _, column, text in self.text.variables:
            scope = Scope(used=self.scope.used).add(fresh if column else stale, self.alias, "")
            pieces.append(compile_scalar(parse_expression_tree(f"[{column}]" if column else text), self.names, scope))
        columns = [ResultColumn("", typed.type) for typed in pieces]
        return output.OutputPlan(", ".join(typed.sql for typed in pieces), columns)

    # ---- with FROM -------------------------------------------------------------------------------------------------

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
            f"SELECT r FROM {source}",
        )

    def _query(self, assignments: list[tuple[Column, str]]) -> Query:
        """The query that gives rowids and new values."""
        source = self.text.source
        alias = self.alias
        if not source:
            source = _quoted(self.text.target)
        elif self.through is None and not self._mentioned():
            source = f"{_quoted(self.text.target)}, {source}"
        items = [f"[{alias}].[{ROWID}]" if not alias.startswith("@") else f"[{ROWID}]"]
        items += [f"({text})" for _, text in assignments if text.upper() != "DEFAULT"]
        top = f"TOP ({self.text.top}) " if self.text.top else ""
        where = f" WHERE {self.text.where}" if self.text.where else ""
        tree = parse_select(f"{self.with_clause} SELECT {top}{', '.join(items)} FROM {source}{where}")
        if self.through is not None:
            tree = tree.copy()
            through = certain(updatable.find(tree, self.alias, self.names), self.alias)
            through.choose([name for name, _ in self.text.assignments])
            through.show_rows()
        return compile_query(tree, self.names, self.scope)

    def _mentioned(self) -> bool:
        """Whether FROM names the target, by alias or by name."""
        tree = parse_select(f"{self.with_clause} SELECT 1 FROM {self.text.source}")
        wanted = fold(self.alias)
        for node in tree.find_all(exp.Table):
            if fold(node.alias) == wanted or (not node.alias and fold(node.name) == wanted.lstrip("#@")):
                return True
        return False


def _quoted(parts: tuple[str, ...]) -> str:
    return ".".join(
        part if part.startswith(("@", "#")) else f"[{part.replace(']', ']]')}]" if part else "" for part in parts
    )
