"""Which compiled queries are plain scans, so that their rows can come from encoded blocks.

A plain scan reads one stored table, its *driving* table, row by row: `SELECT expressions FROM t AS s1
[LEFT JOIN u AS s2 ON s2.key = s1.column] [WHERE …] [ORDER BY columns of s1]`, where the join is on a one-column
unique key and so never multiplies rows. Its result is a function of the rows that it reads if the select list
uses deterministic functions and no variables. Whether a range is contiguous and in order is not judged from
the text: `blocks` asks the data.

Only SQLite text of the compiler's own making is read here; what is not recognised takes the ordinary way.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mssql_standin.catalog import Table, fold
from mssql_standin.contract import Query
from mssql_standin.sql.runtime import DETERMINISTIC
from mssql_standin.sqltypes import CHARACTER

_CLAUSES: Final = (
    " FROM ",
    " WHERE ",
    " GROUP BY ",
    " HAVING ",
    " ORDER BY ",
    " LIMIT ",
    " UNION ",
    " EXCEPT ",
    " INTERSECT ",
)
_LITERAL: Final = re.compile(r"'(?:[^']|'')*'")
_DRIVING: Final = re.compile(r"(?:t\d+|\(SELECT rowid, .* FROM t\d+\)) AS s1")
_JOIN: Final = re.compile(r"LEFT JOIN (t\d+) AS s2 ON s2\.(c\d+) = s1\.c\d+")
_COLUMN: Final = re.compile(r"(?:^|, )(s1\.c\d+) AS (k\d+)(?=, |$)")
_CALL: Final = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)\s*\(")
_PURE: Final = frozenset(
    {DETERMINISTIC, "CASE", "WHEN", "THEN", "ELSE", "AND", "OR", "NOT", "IN", "BETWEEN", "ifnull", "coalesce", "substr"}
)


@dataclass(frozen=True, slots=True)
class Scan:
    """A plain scan in pieces of SQLite text.

    Args:
        selected: the select list.
        source: what stands after FROM, joins included; the driving table is `s1`.
        driving: `s1` alone, for counting.
        condition: after WHERE, empty if there is none; may use variables.
        order: columns of `s1`, in whose ascending order the rows are wanted.
        tables: object ids of the tables that it reads.
    """

    selected: str
    source: str
    driving: str
    condition: str
    order: tuple[str, ...]
    tables: tuple[int, ...]

    @property
    def table(self) -> str:
        """SQLite name of the driving table."""
        return f"t{self.tables[0]}"

    @property
    def is_stored(self) -> bool:
        """Whether `s1` is the stored table itself, not a selection with columns computed from it."""
        return self.driving == f"{self.table} AS s1"


def recognise(query: Query) -> Scan | None:
    """The plain scan that a query is, or None."""
    tables = [relation.table for relation in query.relations]
    stored = [table for table in tables if table is not None]
    if not 1 <= len(stored) <= 2 or len(stored) != len(tables) or query.into:
        return None
    parts = _clauses(query.sql)
    if parts is None:
        return None
    selected, source, condition, order = parts
    found = _DRIVING.match(_masked(source))
    if found is None or not _is_pure(selected) or not _is_pure(source):
        return None
    join = source[found.end() :].strip()
    if bool(join) != (len(stored) == 2) or (join and not _keeps_rows(join, stored[1])):
        return None
    columns = _order(order, selected, stored[0])
    if columns is None or _reads_join(condition):
        return None
    return Scan(selected, source, source[: found.end()], condition, columns, tuple(table.object_id for table in stored))


def _masked(text: str) -> str:
    """The text with literals blotted out, so that words and signs in them mean nothing."""
    return _LITERAL.sub(lambda found: "'" + "_" * (len(found[0]) - 2) + "'", text)


@lru_cache(maxsize=1024)
def _clauses(sql: str) -> tuple[str, str, str, str] | None:
    """Select list, FROM, WHERE and ORDER BY; None if the text has anything else."""
    masked = _masked(sql)
    if not masked.startswith("SELECT ") or masked.startswith("SELECT DISTINCT ") or " OVER (" in masked:
        return None
    places = _top_level(masked)
    if not places or set(places) - {" FROM ", " WHERE ", " ORDER BY "} or " FROM " not in places:
        return None
    bounds = sorted((place, clause) for clause, place in places.items())
    pieces = {"SELECT": sql[len("SELECT ") : bounds[0][0]]}
    for (place, clause), (end, _) in zip(bounds, [*bounds[1:], (len(sql), "")], strict=True):
        pieces[clause] = sql[place + len(clause) : end]
    condition = pieces.get(" WHERE ", "")
    if "SELECT " in _masked(condition):
        return None
    return pieces["SELECT"], pieces[" FROM "], condition, pieces.get(" ORDER BY ", "")


def _top_level(masked: str) -> dict[str, int]:
    """Places of clause words outside parentheses."""
    depth, places = 0, dict[str, int]()
    for place, character in enumerate(masked):
        depth += (character == "(") - (character == ")")
        if character == " " and not depth:
            for clause in _CLAUSES:
                if masked.startswith(clause, place):
                    places.setdefault(clause, place)
    return places


def _is_pure(text: str) -> bool:
    masked = _masked(text)
    return ":" not in masked and all(name in _PURE for name in _CALL.findall(masked))


def _keeps_rows(join: str, joined: Table) -> bool:
    found = _JOIN.fullmatch(join)
    if found is None or found[1] != joined.sqlite:
        return False
    names = {column.sqlite: fold(column.name) for column in joined.columns}
    unique = {fold(i.keys[0][0]) for i in joined.indexes if i.unique and len(i.keys) == 1 and not i.filter}
    return names.get(found[2]) in unique


def _reads_join(condition: str) -> bool:
    return re.search(r"\bs2\.", _masked(condition)) is not None


def _order(order: str, selected: str, driving: Table) -> tuple[str, ...] | None:
    """The columns of an ORDER BY; None unless all are plain, ascending and compare by value."""
    if not order:
        return ()
    aliases = {name: text for text, name in _COLUMN.findall(_masked(selected))}
    comparable = {f"s1.{c.sqlite}" for c in driving.columns if c.type.name not in CHARACTER | {"datetimeoffset"}}
    columns = tuple(aliases.get(term, term) for term in order.split(", "))
    return columns if all(column in comparable for column in columns) else None
