"""OUTPUT clauses.

INSERT and DELETE use SQLite's RETURNING. UPDATE and MERGE also show old values, which RETURNING cannot: they note
the old rows in a temporary table first and read both sides after the change.
"""

from dataclasses import dataclass, field

from sqlglot import exp

from cdc_assets.standin.catalog import Table, fold
from cdc_assets.standin.certain import certain
from cdc_assets.standin.changes.filling import Filler
from cdc_assets.standin.changes.ports import ChangeSession
from cdc_assets.standin.contract import Relation, ResultColumn, Typed
from cdc_assets.standin.errors import SqlError
from cdc_assets.standin.queries.frame import Frame
from cdc_assets.standin.queries.names import SessionNames
from cdc_assets.standin.queries.targets import column_of, full_name, resolve
from cdc_assets.standin.sql.convert import assign
from cdc_assets.standin.sql.expressions import compile_scalar
from cdc_assets.standin.sql.parse import parse_select
from cdc_assets.standin.sql.scope import Scope
from cdc_assets.standin.text.clauses import Output


@dataclass(slots=True)
class OutputPlan:
    """A compiled OUTPUT clause."""

    sql: str
    """Select list."""
    columns: list[ResultColumn]
    into: Table | None = None
    insert: str = ""
    """Statement that puts a row of the list into `into`."""
    relations: list[Relation] = field(default_factory=list)


def for_insert(
    session: ChangeSession, frame: Frame, table: Table, clause: Output | None, scope: Scope
) -> OutputPlan | None:
    """The plan over RETURNING of an INSERT: only `inserted` is known."""
    return compile_output(session, frame, clause, {"inserted": (table, "")}, scope) if clause else None


def for_delete(
    session: ChangeSession, frame: Frame, table: Table, clause: Output | None, scope: Scope
) -> OutputPlan | None:
    """The plan over RETURNING of a DELETE: only `deleted` is known."""
    return compile_output(session, frame, clause, {"deleted": (table, "")}, scope) if clause else None


def compile_output(
    session: ChangeSession, frame: Frame, clause: Output, sides: dict[str, tuple[Table, str]], outer: Scope
) -> OutputPlan:
    """Compile the items over rows of stored tables.

    Args:
        sides: `inserted` and `deleted` with their table and what stands for the row in SQLite.
        outer: scope whose `used` notes variables.
    """
    names = SessionNames(session, frame)
    relations = {alias: names.of_row(table, row) for alias, (table, row) in sides.items()}
    return compile_relations(session, frame, clause, relations, outer)


def compile_relations(
    session: ChangeSession, frame: Frame, clause: Output, relations: dict[str, Relation], outer: Scope
) -> OutputPlan:
    """Compile the items over relations whose columns are complete SQLite text."""
    names = SessionNames(session, frame)
    scope = Scope(used=outer.used)
    for alias, relation in relations.items():
        scope.add(relation, alias, "")
    columns: list[ResultColumn] = []
    texts: list[str] = []
    for item in parse_select("SELECT " + ", ".join(clause.items)).expressions:
        for name, typed in _expanded(item, scope, names):
            columns.append(ResultColumn(name, typed.type, typed.nullable))
            texts.append(typed.sql)
    plan = OutputPlan(", ".join(texts), columns)
    if clause.into is not None:
        _into(session, frame, clause, plan)
    return plan


def _expanded(item: exp.Expression, scope: Scope, names: SessionNames) -> list[tuple[str, Typed]]:
    if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
        side = fold(item.table)
        source = next((s for s in scope.sources if fold(s.alias) == side), None)
        if source is None:
            raise SqlError(
                107,
                f"The column prefix '{item.table}' does not match with a table name or alias name used in the query.",
                15,
            )
        return [
            (column.name, source.typed(column))
            for column in source.relation.columns
            if not column.name.startswith("%%")
        ]
    if isinstance(item, exp.Star):
        raise SqlError(102, "Incorrect syntax near '*'.", 15)
    name = item.alias_or_name
    body = item.this if isinstance(item, exp.Alias) else item
    return [(name, compile_scalar(body, names, scope))]


def _into(session: ChangeSession, frame: Frame, clause: Output, plan: OutputPlan) -> None:
    parts = certain(clause.into, "the target of OUTPUT INTO")
    table = resolve(session, frame, parts, "INSERT")
    listed = (
        [column_of(table, name) for name in clause.columns]
        if clause.columns
        else [c for c in table.columns if c.computed is None and c.identity is None]
    )
    if len(listed) != len(plan.columns):
        raise SqlError(213, "Column name or number of supplied values does not match table definition.")
    values = [
        assign(Typed(f"?{place}", given.type), column.type, column.name, full_name(table)).sql
        for place, (column, given) in enumerate(zip(listed, plan.columns, strict=True), start=1)
    ]

    filler = Filler(session, frame, table, [c.name for c in listed])
    filled = filler.filled({fold(c.name): value for c, value in zip(listed, values, strict=True)})
    keys = ", ".join(column.sqlite for column in filler.written())
    plan.into = table
    plan.insert = f"INSERT INTO {table.sqlite} ({keys}) VALUES ({', '.join(filled)})"
    plan.relations.append(Relation("", (), table))
