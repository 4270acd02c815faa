"""UPDATE and DELETE through a common table expression or a derived table.

The query behind the target must show rows of one stored table: no aggregates, no DISTINCT, no set operation. Its select
list gets one more column, the hidden `ROWID` of that table, so that the statement's own query can say which rows it means;
columns that are assigned are traced back to columns of the table.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from sqlglot import exp

from cdc_assets.standin.catalog import Table, fold
from cdc_assets.standin.errors import SqlError, invalid_column, unsupported
from cdc_assets.standin.queries.names import ROWID, SessionNames
from cdc_assets.standin.sql.functions.aggregates import contains_aggregate
from cdc_assets.standin.sql.sources import table_parts

_CLAUSES: Final = ("distinct", "group", "having")


@dataclass(slots=True)
class Updatable:
    """A query that shows rows of stored tables.

    Args:
        name: of the common table expression or derived table.
        query: its tree, part of the statement's.
        labels: column names that follow its name, none for those of the select list.
        sources: (alias, table) of its FROM.
    """

    name: str
    query: Any
    labels: list[str]
    sources: list[tuple[str, Table]]
    alias: str = field(init=False)
    """The source whose rows are changed."""
    table: Table = field(init=False)

    def __post_init__(self) -> None:
        self.alias, self.table = self.sources[0]

    def choose(self, columns: list[str]) -> list[str]:
        """Choose the source that owns these columns of the query; returns their names there.

        Args:
            columns: the assigned ones; none for a DELETE, which needs a query over one table.

        Raises:
            SqlError: 4405 for several tables, 4406 for a computed column, 207 for one that is not there.
        """
        owners = [self._origin(column) for column in columns]
        found = {source for source, _ in owners} or set(range(len(self.sources)))
        if len(found) != 1:
            raise SqlError(
                4405,
                f"View or function '{self.name}' is not updatable because the modification affects multiple base tables.",
            )
        self.alias, self.table = self.sources[found.pop()]
        return [column for _, column in owners]

    def show_rows(self) -> None:
        """Add the hidden column to the select list, unless a star brings it."""
        if any(self._is_star(entry, self.alias) for entry in self.query.expressions):
            return
        hidden = exp.to_identifier(ROWID, quoted=True)
        column = exp.Column(this=hidden, table=exp.to_identifier(self.alias, quoted=True))
        self.query.append("expressions", exp.Alias(this=column, alias=hidden.copy()))
        if self.labels:
            self.query.parent.args["alias"].append("columns", hidden.copy())

    def _origin(self, name: str) -> tuple[int, str]:
        """Source and column behind a column of the query."""
        for place, entry in enumerate(self.query.expressions):
            if isinstance(entry, exp.Star) or (isinstance(entry, exp.Column) and isinstance(entry.this, exp.Star)):
                for source, (alias, table) in enumerate(self.sources):
                    if self._is_star(entry, alias) and table.column(name) is not None:
                        return source, name
                continue
            if self.labels and place >= len(self.labels):
                raise SqlError(8158, f"'{self.name}' has more columns than were specified in the column list.")
            label = self.labels[place] if self.labels else entry.alias_or_name
            if fold(label) != fold(name):
                continue
            inner = entry.unalias()
            if not isinstance(inner, exp.Column):
                raise SqlError(
                    4406,
                    f"Update or insert of view or function '{self.name}' failed because it contains a derived or "
                    "constant field.",
                )
            return self._source_of(inner), inner.name
        raise invalid_column(name)

    def _source_of(self, column: Any) -> int:
        for source, (alias, table) in enumerate(self.sources):
            if fold(column.table) == fold(alias) or (not column.table and table.column(column.name) is not None):
                return source
        raise invalid_column(column.name)

    @staticmethod
    def _is_star(entry: Any, alias: str) -> bool:
        if isinstance(entry, exp.Column) and isinstance(entry.this, exp.Star):
            return fold(entry.table) == fold(alias)
        return isinstance(entry, exp.Star)


def find(tree: Any, name: str, names: SessionNames) -> Updatable | None:
    """The common table expression or derived table of that name in a statement's query; None for a stored table.

    Raises:
        SqlError: 4403 or 4426 for a query whose rows are not those of a table, 40510 for one over other queries.
    """
    found = _query(tree, name)
    if found is None:
        return None
    holder, query = found
    if isinstance(query, exp.SetOperation):
        raise SqlError(4426, f"View '{name}' is not updatable because the definition contains a set operator.")
    if not isinstance(query, exp.Select) or query.args.get("from_") is None:
        raise unsupported(f"a change through '{name}', which is no SELECT over a table")
    if any(query.args.get(clause) for clause in _CLAUSES) or any(map(contains_aggregate, query.expressions)):
        raise SqlError(
            4403,
            f"Cannot update the view or function '{name}' because it contains aggregates, or a DISTINCT or GROUP BY clause, "
            "or PIVOT or UNPIVOT operator.",
        )
    labels = [column.name for column in holder.args["alias"].args.get("columns") or ()]
    nodes = [query.args["from_"].this, *(join.this for join in query.args.get("joins") or ())]
    return Updatable(name, query, labels, [_source(node, name, names) for node in nodes])


def _query(tree: Any, name: str) -> tuple[Any, Any] | None:
    with_ = tree.args.get("with_")
    for holder in with_.expressions if with_ is not None else ():
        if fold(holder.alias) == fold(name):
            return holder, holder.this
    from_ = tree.args.get("from_")
    for node in [from_.this if from_ is not None else None, *(join.this for join in tree.args.get("joins") or ())]:
        if isinstance(node, exp.Subquery) and fold(node.alias) == fold(name):
            return node, node.this
    return None


def _source(node: Any, name: str, names: SessionNames) -> tuple[str, Table]:
    table = names.table(table_parts(node)) if isinstance(node, exp.Table) and not node.args.get("joins") else None
    if table is None:
        raise unsupported(f"a change through '{name}', which reads something else than stored tables")
    return node.alias or table.name, table
