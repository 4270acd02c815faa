"""What the change tables of capture instances hold: small queries of many instances at once.

An instance whose change table was dropped between two queries is left to the reading of it, which reveals that.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from cdc_assets.adapters.sqlserver import change_queries
from cdc_assets.adapters.sqlserver.commit_positions import step_positions
from cdc_assets.adapters.sqlserver.errors import INVALID_OBJECT
from cdc_assets.adapters.sqlserver.portions import portions
from cdc_assets.adapters.sqlserver.rows import integer, lsn_of
from cdc_assets.adapters.sqlserver.session import Session
from cdc_assets.core.lsn import ZERO_LSN, Lsn, Position
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.errors import QueryError

T = TypeVar("T")

_PROBES_PER_QUERY = 200


def columns_with_nulls(
    session: Session, instance: CaptureInstance, columns: Sequence[str], after: Lsn
) -> frozenset[str]:
    """Which of these captured columns hold a NULL in a change row after an LSN."""
    found: set[str] = set()
    for portion in portions(columns, _PROBES_PER_QUERY):
        statement = change_queries.null_probes(instance.table.database, instance.name, portion)
        found |= {portion[integer(row[0])] for row in session.rows(statement, *[after.raw] * len(portion))}
    return frozenset(found)


def active_instances(session: Session, database: str, bounds: Mapping[str, Lsn], until: Lsn) -> frozenset[str]:
    """Which instances have change rows in `(bounds[name], until]`; also those whose change table was dropped."""

    def active(names: Sequence[str]) -> list[str]:
        rows = session.rows(change_queries.probes(database, names), *_bounds(names, bounds, until))
        return [names[integer(row[0])] for row in rows]

    names = sorted(name for name, after in bounds.items() if after < until)
    found = [_of_those_there(portion, active, lambda gone: [gone]) for portion in portions(names, _PROBES_PER_QUERY)]
    return frozenset(name for part in found for name in part)


def rows_per_commit(
    session: Session, database: str, bounds: Mapping[str, Lsn], until: Lsn
) -> Sequence[tuple[Lsn, int]]:
    """Commit LSNs with change rows in `(bounds[name], until]`, with the number of rows."""

    def counted(names: Sequence[str]) -> list[tuple[Lsn, int]]:
        rows = session.rows(change_queries.rows_per_commit(database, names), *_bounds(names, bounds, until))
        return [(lsn_of(raw) or ZERO_LSN, integer(count)) for raw, count in rows]

    counts: Counter[Lsn] = Counter()
    for portion in portions(sorted(bounds), _PROBES_PER_QUERY):
        for lsn, rows in _of_those_there(portion, counted, lambda _: []):
            counts[lsn] += rows
    return sorted(counts.items())


def positions_in_commit(
    session: Session, database: str, instances: Sequence[str], commit: Lsn, step: int
) -> Sequence[Position]:
    """Positions of every `step`-th change row of each instance inside a commit; see `core.ports`."""

    def counted(names: Sequence[str]) -> list[tuple[str, int]]:
        rows = session.rows(change_queries.rows_in_commit(database, names), *[commit.raw] * len(names))
        return [(names[integer(place)], integer(count)) for place, count in rows]

    found: list[Position] = []
    for portion in portions(instances, _PROBES_PER_QUERY):
        for name, rows in _of_those_there(portion, counted, lambda _: []):
            found += step_positions(session, database, name, commit, step, rows)
    return sorted(found, key=str)


def _bounds(names: Sequence[str], bounds: Mapping[str, Lsn], until: Lsn) -> list[bytes]:
    return [raw for name in names for raw in (bounds[name].raw, until.raw)]


def _of_those_there(
    names: Sequence[str], ask: Callable[[Sequence[str]], list[T]], of_gone: Callable[[str], list[T]]
) -> list[T]:
    """Query all capture instances at once; if a change table was dropped, query each one.

    Args:
        names: names of the instances, at least one.
        ask: function that queries some of them.
        of_gone: result for an instance whose change table was dropped.
    """
    try:
        return ask(names)
    except QueryError as error:
        if error.number != INVALID_OBJECT:
            raise
    if len(names) == 1:
        return of_gone(names[0])
    return [found for name in names for found in _of_those_there([name], ask, of_gone)]
