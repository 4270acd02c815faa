"""MERGE.

Every WHEN clause becomes a query that decides which rows it applies to and computes their new values; all queries run
first, into temporary tables, so every clause sees the table as it was. Then the clauses change the
table one after the other. A target row that two source rows would change is error 8672.
"""

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cdc_assets.standin.catalog import Column, fold
from cdc_assets.standin.certain import certain
from cdc_assets.standin.changes import effects, output
from cdc_assets.standin.changes.insert import InsertCompiler
from cdc_assets.standin.changes.ports import ChangeInterpreter, ChangeSession
from cdc_assets.standin.changes.update import UpdateCompiler
from cdc_assets.standin.contract import Query, Relation, RelationColumn, ResultColumn, Typed
from cdc_assets.standin.errors import SqlError
from cdc_assets.standin.queries.frame import Frame
from cdc_assets.standin.queries.names import ROWID, SessionNames
from cdc_assets.standin.queries.plans import is_shared, planned
from cdc_assets.standin.queries.selects import Reads
from cdc_assets.standin.queries.targets import Target, full_name, resolve
from cdc_assets.standin.sql.convert import assign
from cdc_assets.standin.sql.parse import parse_select
from cdc_assets.standin.sql.query import compile_query
from cdc_assets.standin.sql.scope import Scope
from cdc_assets.standin.sqltypes import Value
from cdc_assets.standin.store import sqlite_errors
from cdc_assets.standin.text import tree
from cdc_assets.standin.text.clauses import Output
from cdc_assets.standin.text.insert_text import InsertText
from cdc_assets.standin.text.merge_text import BY_SOURCE, Clause, MergeText, read
from cdc_assets.standin.text.update_text import UpdateText

_ACTION: Final = re.compile(r"\$action\b", re.IGNORECASE)


@dataclass(slots=True)
class Step:
    """A compiled clause: `select` fills temp.`table`, then `change` is run."""

    action: str
    table: str
    select: str
    change: str
    output: str = ""
    rewrites: int = 0
    """See `effects.rewritten`."""


@dataclass(slots=True)
class MergePlan:
    """A compiled MERGE."""

    steps: list[Step]
    target: Target
    variables: list[str]
    reads: Reads
    shared: bool
    columns: list[ResultColumn] | None
    into: output.OutputPlan | None


# ---- compiling -----------------------------------------------------------------------------------------------------


class MergeCompiler:
    """Compiles one MERGE."""

    def __init__(self, session: ChangeSession, frame: "Frame", text: MergeText, with_clause: str) -> None:
        self.session, self.frame, self.text, self.with_clause = session, frame, text, with_clause
        self.table = resolve(session, frame, text.target, "SELECT", *{clause.action for clause in text.clauses})
        self.names = SessionNames(session, frame, self.table)
        self.scope = Scope()
        self.columns: list[ResultColumn] | None = None
        self.into: output.OutputPlan | None = None

    def compile(self) -> MergePlan:
        """The plan."""
        steps = [self._step(place, clause) for place, clause in enumerate(self.text.clauses, start=1)]
        used = self.scope.used
        relations = [*used.relations, Relation("", (), self.table), *(self.into.relations if self.into else [])]
        reads = Reads.of([r for r in used.relations if r.table is not self.table], used.hints)
        target = Target(self.table, self.text.hints)
        return MergePlan(steps, target, used.variables, reads, is_shared(relations), self.columns, self.into)

    def _step(self, place: int, clause: Clause) -> Step:
        values = [text for _, text in clause.assignments] if clause.action == "UPDATE" else clause.values
        given = [text for text in values if text.upper() != "DEFAULT"]
        query = self._query(place - 1, clause, given)
        table = f"merge{place}"
        keys = ", ".join(["r", *(f"v{number}" for number in range(1, len(query.columns)))])
        select = f"CREATE TEMP TABLE {table} AS WITH q({keys}) AS ({query.sql}) SELECT * FROM q"
        if clause.action == "UPDATE":
            change = self._update(clause, query, table)
        elif clause.action == "DELETE":
            change = f"DELETE FROM {self.table.sqlite} WHERE rowid IN (SELECT r FROM temp.{table})"
        else:
            change = self._insert(clause, query, table)
        step = Step(clause.action, table, select, change)
        if clause.action == "UPDATE":
            step.rewrites = effects.rewritten(self.table, (name for name, _ in clause.assignments))
        if self.text.output is not None:
            step.output = self._output(clause, query, table, 1 + len(given))
        return step

    def _query(self, place: int, clause: Clause, values: Sequence[str]) -> Query:
        """Rows that the clause applies to: target rowid, values, and for OUTPUT both rows."""
        earlier = [other for other in self.text.clauses[:place] if other.kind == clause.kind]
        tests = [f"(CASE WHEN ({other.condition}) THEN 1 ELSE 0 END) = 0" for other in earlier if other.condition]
        tests += ["1 = 0" for other in earlier if not other.condition]
        if clause.condition:
            tests.append(f"({clause.condition})")
        name = ".".join(f"[{part}]" if part and part[0] not in "#@" else part for part in self.text.target)
        target = f"{name} AS [{self.text.alias}]" if self.text.alias != self.text.target[-1] else name
        alias = self.text.alias if self.text.alias[0] in "#@" else f"[{self.text.alias}]"
        rowid = f"{alias}.[{ROWID}]" if not alias.startswith("@") else f"[{ROWID}]"
        source, on = self.text.source, self.text.condition
        sides: list[str] = []
        if self.text.output is not None:
            sides = {"MATCHED": [f"{alias}.*", f"[{self.text.source_alias}].*"], BY_SOURCE: [f"{alias}.*"]}.get(
                clause.kind, [f"[{self.text.source_alias}].*"]
            )
        if clause.kind == "MATCHED":
            rest = f"FROM {target} JOIN {source} ON {on}"
        elif clause.kind == BY_SOURCE:
            rest, tests = f"FROM {target}", [f"NOT EXISTS (SELECT 1 FROM {source} WHERE {on})", *tests]
        else:
            rest, tests = f"FROM {source}", [f"NOT EXISTS (SELECT 1 FROM {target} WHERE {on})", *tests]
            rowid = "NULL"
        items = ", ".join([rowid, *(f"({value})" for value in values), *sides])
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        return compile_query(parse_select(f"{self.with_clause} SELECT {items} {rest}{where}"), self.names, self.scope)

    def _update(self, clause: Clause, query: Query, table: str) -> str:
        compiler = UpdateCompiler(
            self.session, self.frame, UpdateText("UPDATE", self.text.target, assignments=clause.assignments)
        )
        compiler.scope = self.scope
        values: list[tuple[Column, str]] = []
        place = 0
        for column, text in compiler.checked():
            if text.upper() == "DEFAULT":
                values.append((column, compiler.default(column)))
                continue
            place += 1
            typed = Typed(f"source.v{place}", query.columns[place].type, query.columns[place].nullable)
            values.append((column, assign(typed, column.type, column.name, full_name(self.table)).sql))
        settings = compiler.settings(values)
        return f"UPDATE {self.table.sqlite} SET {settings} FROM temp.{table} AS source WHERE {self.table.sqlite}.rowid = source.r"

    def _insert(self, clause: Clause, query: Query, table: str) -> str:
        columns, values = clause.columns, clause.values
        compiler = InsertCompiler(
            self.session, self.frame, InsertText(self.text.target, frozenset(), columns, None, defaults=columns == [])
        )
        compiler.scope = self.scope
        if len(values) != len(compiler.listed):
            raise SqlError(213, "Column name or number of supplied values does not match table definition.")
        texts: dict[str, str] = {}
        place = 0
        for column, text in zip(compiler.listed, values, strict=True):
            if text.upper() == "DEFAULT":
                continue
            place += 1
            typed = Typed(f"source.v{place}", query.columns[place].type, query.columns[place].nullable)
            texts[fold(column.name)] = assign(typed, column.type, column.name, full_name(self.table)).sql
        keys = ", ".join(column.sqlite for column in compiler.written())
        filled = ", ".join(compiler.filled(texts))
        return f"INSERT INTO {self.table.sqlite} ({keys}) SELECT {filled} FROM temp.{table} AS source WHERE true"

    def _output(self, clause: Clause, query: Query, table: str, first: int) -> str:
        """SELECT of the clause's OUTPUT rows, after the change."""
        wanted = certain(self.text.output, "an OUTPUT clause")
        items = ["$action AS [$action]" if _ACTION.fullmatch(item.strip()) else item for item in wanted.items]
        items = [_ACTION.sub(f"CAST('{clause.action}' AS nvarchar(10))", item, count=1) for item in items]
        has_target = clause.kind != "NOT MATCHED"
        width = len(self.table.columns) + 1 if has_target else 0
        stale = self._noted(query, first, width) if has_target else self._nothing()
        source = self._source_row(query, first + width) if clause.kind != BY_SOURCE else self._no_source()
        fresh = self._nothing() if clause.action == "DELETE" else self.names.of_row(self.table, "fresh")
        plan = output.compile_relations(
            self.session, self.frame, Output(items, wanted.into, wanted.columns),
            {"inserted": fresh, "deleted": stale, self.text.source_alias: source}, self.scope,
        )  # fmt: skip
        if plan.into is None:  # what one clause always has, another may lack: `inserted` after a DELETE
            self.columns = [
                replace(column, nullable=column.nullable or known.nullable)
                for column, known in zip(plan.columns, self.columns or plan.columns, strict=True)
            ]
        self.into = plan if plan.into is not None else None
        return (
            f"SELECT {plan.sql} FROM temp.{table} AS source LEFT JOIN {self.table.sqlite} AS fresh ON fresh.rowid = source.r "
            "ORDER BY source.rowid"
        )

    def _source_row(self, query: Query, first: int) -> Relation:
        return self._noted(query, first, len(query.columns) - first)

    def _no_source(self) -> Relation:
        """The source's columns, all NULL."""
        text = f"{self.with_clause} SELECT [{self.text.source_alias}].* FROM {self.text.source}"
        shape = compile_query(parse_select(text), self.names, Scope(used=self.scope.used))
        return Relation("", tuple(RelationColumn(c.name, "NULL", c.type, True) for c in shape.columns))

    def _noted(self, query: Query, first: int, count: int) -> Relation:
        columns = query.columns[first : first + count]
        return Relation(
            "",
            tuple(
                RelationColumn(column.name, f"source.v{place}", column.type, True)
                for place, column in enumerate(columns, start=first)
                if column.name != ROWID
            ),
        )

    def _nothing(self) -> Relation:
        return Relation("", tuple(RelationColumn(c.name, "NULL", c.type, True) for c in self.table.columns))


# ---- running -------------------------------------------------------------------------------------------------------


def run(interpreter: ChangeInterpreter, statement: tree.Change) -> None:
    """Run a MERGE."""
    session, frame = interpreter.session, interpreter.frame

    def compile_() -> MergePlan:
        return MergeCompiler(session, frame, read(statement.text), statement.with_clause).compile()

    plan = planned(session, frame, "MERGE", f"{statement.with_clause} {statement.text}", compile_)
    plan.reads.prepare(session)
    with effects.changing(interpreter):
        plan.target.lock(session)
        try:
            count, rows = _execute(session, plan, frame.values(plan.variables))
        except sqlite3.Error as error:
            raise sqlite_errors.translate(session, error, "MERGE") from error
        if plan.into is not None:
            session.connection.executemany(plan.into.insert, rows)
    effects.finish(interpreter, plan.columns, rows, count)


def _execute(session: ChangeSession, plan: MergePlan, values: dict[str, Value]) -> tuple[int, list[effects.Row]]:
    connection = session.connection
    for step in plan.steps:
        connection.execute(f"DROP TABLE IF EXISTS temp.{step.table}")
        connection.execute(step.select, values)
    _check_once(connection, plan)
    done = effects.judged_at_end(session, plan.target.table, lambda: _change(session, plan, values))
    for step in plan.steps:
        connection.execute(f"DROP TABLE temp.{step.table}")
    return done


def _change(session: ChangeSession, plan: MergePlan, values: dict[str, Value]) -> tuple[int, list[effects.Row]]:
    count, connection = 0, session.connection
    rows: list[effects.Row] = []
    for step in plan.steps:
        if step.action == "INSERT" and step.output:
            count += _insert_one_by_one(connection, step, values)
        else:
            with effects.rewriting(session, step.rewrites):
                count += connection.execute(step.change, values).rowcount
        if step.output:
            rows += connection.execute(step.output, values).fetchall()
    return count, rows


def _check_once(connection: sqlite3.Connection, plan: MergePlan) -> None:
    changed = [step.table for step in plan.steps if step.action != "INSERT"]
    if not changed:
        return
    union = " UNION ALL ".join(f"SELECT r FROM temp.{table}" for table in changed)
    if connection.execute(f"SELECT 1 FROM ({union}) GROUP BY r HAVING count(*) > 1 LIMIT 1").fetchone():
        raise SqlError(
            8672,
            "The MERGE statement attempted to UPDATE or DELETE the same row more than once. This happens when a target row matches "
            "more than one source row. A MERGE statement cannot UPDATE/DELETE the same row of the target table multiple times. "
            "Refine the ON clause to ensure a target row matches at most one source row, or use the GROUP BY clause to group the "
            "source rows.",
        )


def _insert_one_by_one(connection: sqlite3.Connection, step: Step, values: dict[str, Value]) -> int:
    """Insert row by row and note the new rowids, which OUTPUT needs."""
    places = [row[0] for row in connection.execute(f"SELECT rowid FROM temp.{step.table}")]
    for place in places:
        cursor = connection.execute(f"{step.change} AND source.rowid = {place}", values)
        connection.execute(f"UPDATE temp.{step.table} SET r = {cursor.lastrowid} WHERE rowid = {place}")
    return len(places)
