"""SELECT and scalar expressions: compiled plans and their execution."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from mssql_standin.catalog import Table
from mssql_standin.contract import Query, Relation, ResultSink, Typed
from mssql_standin.queries.frame import Frame
from mssql_standin.queries.names import SessionNames
from mssql_standin.queries.plans import is_shared, planned
from mssql_standin.queries.ports import QuerySession
from mssql_standin.sql.convert import implicit
from mssql_standin.sql.expressions import compile_condition, compile_scalar
from mssql_standin.sql.parse import parse_expression_tree, parse_select
from mssql_standin.sql.query import compile_query
from mssql_standin.sql.scope import Scope
from mssql_standin.sqltypes import SqlType, Value
from mssql_standin.store import sqlite_errors
from mssql_standin.store.locks import Mode
from mssql_standin.store.temporary import is_temporary

Row = Sequence[Value]

_TO_THE_END: Final = frozenset({"HOLDLOCK", "SERIALIZABLE", "REPEATABLEREAD"})
_WRITERS: Final = frozenset({"UPDLOCK", "XLOCK"})


@dataclass(slots=True)
class Reads:
    """What a statement reads, and how it locks."""

    relations: list[Relation] = field(default_factory=list)
    hints: list[tuple[Relation, frozenset[str]]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    refreshes: bool = False

    @classmethod
    def of(cls, relations: list[Relation], hints: list[tuple[Relation, frozenset[str]]]) -> "Reads":
        """From what the compiler noted."""
        ignored = {id(r) for r, names in hints if names & {"NOLOCK", "READUNCOMMITTED", "SNAPSHOT"}}
        tables = [
            r.table for r in relations if r.table is not None and not is_temporary(r.table) and id(r) not in ignored
        ]
        return cls(relations, hints, tables, any(r.refresh for r in relations))

    def prepare(self, session: QuerySession) -> None:
        """Lock, pin a snapshot and refill system views before an execution."""
        transaction = session.transaction
        if self.relations:
            transaction.begin_implicit()
        if self.tables:
            transaction.before_read(self.tables)
        for relation, names in self.hints:
            if relation.table is not None and not is_temporary(relation.table):
                _lock(session, relation.table, names)
        if self.refreshes:
            for relation in self.relations:
                if relation.refresh:
                    relation.refresh()


def _lock(session: QuerySession, table: Table, hints: frozenset[str]) -> None:
    transaction = session.transaction
    if hints & _WRITERS and transaction.count:
        transaction.open()
    if "TABLOCKX" in hints or ("TABLOCK" in hints and "XLOCK" in hints):
        transaction.lock(table, Mode.X)
    elif "TABLOCK" in hints or hints & {"HOLDLOCK", "SERIALIZABLE"}:
        serious = session.transaction.isolation in ("REPEATABLE READ", "SERIALIZABLE")
        transaction.lock(table, Mode.S, keep=bool(hints & _TO_THE_END) or serious)
    elif hints & _WRITERS:
        transaction.lock(table, Mode.IX)


@dataclass(slots=True)
class SelectPlan:
    """A compiled SELECT."""

    query: Query
    reads: Reads
    shared: bool


@dataclass(slots=True)
class ScalarPlan:
    """A compiled expression or condition: `sql` gives one row of one column."""

    sql: str
    type: SqlType
    variables: list[str]
    reads: Reads
    shared: bool


def select_plan(session: QuerySession, frame: Frame, text: str) -> SelectPlan:
    """The plan of a SELECT."""

    def compile_() -> SelectPlan:
        query = compile_query(parse_select(text), SessionNames(session, frame))
        return SelectPlan(query, Reads.of(query.relations, query.hints), is_shared(query.relations))

    return planned(session, frame, "select", text, compile_)


def scalar_plan(session: QuerySession, frame: Frame, text: str, target: SqlType | None = None) -> ScalarPlan:
    """The plan of an expression, converted to `target` if one is given."""

    def compile_() -> ScalarPlan:
        scope = Scope()
        typed = compile_scalar(parse_expression_tree(text), SessionNames(session, frame), scope)
        if target is not None:
            typed = implicit(typed, target)
        return _scalar(typed, scope)

    return planned(session, frame, f"scalar {target or ''}", text, compile_)


def condition_plan(session: QuerySession, frame: Frame, text: str) -> ScalarPlan:
    """The plan of a condition."""

    def compile_() -> ScalarPlan:
        scope = Scope()
        condition = compile_condition(parse_expression_tree(text), SessionNames(session, frame), scope)
        return _scalar(Typed(f"CASE WHEN {condition} THEN 1 ELSE 0 END", SqlType("int")), scope)

    return planned(session, frame, "condition", text, compile_)


def _scalar(typed: Typed, scope: Scope) -> ScalarPlan:
    used = scope.used
    reads = Reads.of(used.relations, used.hints)
    return ScalarPlan(f"SELECT {typed.sql}", typed.type, used.variables, reads, is_shared(used.relations))


def evaluate(session: QuerySession, frame: Frame, plan: ScalarPlan) -> Value:
    """Value of an expression plan."""
    plan.reads.prepare(session)
    try:
        row = session.connection.execute(plan.sql, frame.values(plan.variables)).fetchone()
    except sqlite3.Error as error:
        raise sqlite_errors.translate(session, error, "SELECT") from error
    value: Value = row[0]
    return value


def send(session: QuerySession, frame: Frame, plan: SelectPlan, sink: ResultSink) -> None:
    """Run a SELECT and send its result."""
    plan.reads.prepare(session)
    values = frame.values(plan.query.variables)
    try:
        count = _from_blocks(session, plan, values, sink)
        if count is None:
            count = _from_cursor(session, plan, values, sink)
    except sqlite3.Error as error:
        raise sqlite_errors.translate(session, error, "SELECT") from error
    session.rowcount = count
    sink.done(None if session.options.nocount else count)


def _from_blocks(session: QuerySession, plan: SelectPlan, values: dict[str, Value], sink: ResultSink) -> int | None:
    """Let the wire answer from encoded rows if it can; uncommitted changes are in no block."""
    blocks = session.engine.blocks
    if blocks is None or session.transaction.writing or session.options.rowcount:
        return None
    return blocks.send(session.connection, plan.query, values, sink)


def _from_cursor(session: QuerySession, plan: SelectPlan, values: dict[str, Value], sink: ResultSink) -> int:
    """Step through the rows; the cursor is closed whatever happens, so that no snapshot stays pinned."""
    cursor = session.connection.cursor()
    try:
        cursor.execute(plan.query.sql, values)
        sink.columns(plan.query.columns)
        return sink.rows(islice(cursor, session.options.rowcount) if session.options.rowcount else cursor)
    finally:
        cursor.close()
