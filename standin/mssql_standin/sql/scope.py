"""What names mean inside one query, and what a statement turned out to use."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from mssql_standin.catalog import fold
from mssql_standin.contract import Relation, RelationColumn, Typed
from mssql_standin.errors import SqlError, invalid_column


@dataclass(slots=True)
class Used:
    """What the compilation of one statement used; shared by all its scopes."""

    relations: list[Relation] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)
    hints: list[tuple[Relation, frozenset[str]]] = field(default_factory=list)
    count: int = 0

    def name(self, prefix: str) -> str:
        """A SQLite name that this statement has not used."""
        self.count += 1
        return f"{prefix}{self.count}"

    def relation(self, relation: Relation) -> None:
        """Note a relation once."""
        if all(relation is not known for known in self.relations):
            self.relations.append(relation)

    def variable(self, name: str) -> str:
        """Note a variable; returns its SQLite parameter."""
        if name not in self.variables:
            self.variables.append(name)
        return f":{name}"


@dataclass(frozen=True, slots=True)
class Source:
    """A relation in FROM under its T-SQL alias.

    `qualifier` stands before the columns in SQLite text; empty when their `sql` is complete.
    """

    alias: str
    relation: Relation
    qualifier: str
    parts: tuple[str, ...] = ()
    """The name as written, folded, for references such as `dbo.t.c`."""
    outer: bool = False
    """On the optional side of an outer join: its columns can be NULL."""

    def typed(self, column: RelationColumn) -> Typed:
        """A reference to a column."""
        sql = f"{self.qualifier}.{column.sql}" if self.qualifier else column.sql
        return Typed(sql, column.type, column.nullable or self.outer)


@dataclass(slots=True)
class Scope:
    """Sources in order, the scope around, and the state of grouping."""

    sources: list[Source] = field(default_factory=list)
    outer: "Scope | None" = None
    used: Used = field(default_factory=Used)
    ctes: dict[str, Relation] = field(default_factory=dict)
    groups: list[tuple[Any, Typed]] | None = None
    """(tree, typed) of GROUP BY when only those and aggregates may be used."""
    in_aggregate: bool = False
    in_window: bool = False
    clause: str = "select list"
    aggregates_allowed: bool = False
    windows_allowed: bool = False
    correlated: bool = False
    """A column of a scope around was used."""

    @classmethod
    def of(cls, relation: Relation, alias: str = "", qualifier: str | None = None, used: Used | None = None) -> "Scope":
        """A scope of one relation, as DML needs it.

        Args:
            alias: T-SQL name of the relation; also what qualified references must say.
            qualifier: SQLite text before its columns; default: `relation.sql` (the table's own name);
                empty for none.
            used: where to note relations, variables and hints.
        """
        scope = cls(used=used or Used())
        return scope.add(relation, alias, qualifier)

    def add(self, relation: Relation, alias: str = "", qualifier: str | None = None, outer: bool = False) -> "Scope":
        """Add a relation, such as `inserted` or `deleted`; returns the scope itself."""
        place = relation.sql if qualifier is None else qualifier
        table = relation.table
        parts = (fold(table.database), fold(table.schema), fold(table.name)) if table else ()
        self.sources.append(Source(alias or (table.name if table else ""), relation, place, parts, outer))
        return self

    def inner(self) -> "Scope":
        """An empty scope inside this one."""
        return Scope(outer=self, used=self.used, ctes=dict(self.ctes))

    def matching(self, qualifier: Sequence[str]) -> Iterator[Source]:
        """Sources a (possibly multi-part) qualifier means."""
        wanted = tuple(map(fold, qualifier))
        for source in self.sources:
            if (
                not wanted
                or (len(wanted) == 1 and fold(source.alias) == wanted[0])
                or (len(wanted) > 1 and source.parts[-len(wanted) :] == wanted)
            ):
                yield source

    def referred(self, sql: str) -> bool:
        """Whether SQLite text mentions a source of this scope."""
        return any(
            (f"{source.qualifier}." if source.qualifier else f"{source.relation.sql}.value") in sql
            for source in self.sources
        )

    def column(self, name: str, qualifier: Sequence[str] = ()) -> tuple["Scope", Typed]:
        """Resolve a column here or in the scopes around.

        Raises:
            SqlError: 207, 209, and 4104 when the qualifier means nothing.
        """
        wanted = fold(name)
        scope: Scope | None = self
        qualifier_known = not qualifier
        while scope is not None:
            found: list[tuple[Source, RelationColumn]] = []
            for source in scope.matching(qualifier):
                qualifier_known = True
                found.extend((source, column) for column in source.relation.columns if fold(column.name) == wanted)
            if len(found) > 1:
                raise SqlError(209, f"Ambiguous column name '{name}'.")
            if found:
                source, column = found[0]
                return scope, source.typed(column)
            scope.correlated = True
            scope = scope.outer
        if not qualifier_known:
            raise SqlError(4104, f'The multi-part identifier "{".".join((*qualifier, name))}" could not be bound.')
        raise invalid_column(name)

    def cte(self, name: str) -> Relation | None:
        """The common table expression of that name."""
        return self.ctes.get(fold(name))
