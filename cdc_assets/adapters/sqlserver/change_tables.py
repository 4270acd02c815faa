"""What the change tables of capture instances hold: small queries of many instances at once.

An instance whose change table was dropped between two queries, or cannot be read, is left to the reading of it, which reveals that.
"""

from collections.abc import Mapping, Sequence

from cdc_assets.adapters.sqlserver import change_queries
from cdc_assets.adapters.sqlserver.commit_positions import step_positions
from cdc_assets.adapters.sqlserver.portions import PROBES_PER_QUERY, of_those_there, portions
from cdc_assets.adapters.sqlserver.rows import integer, lsn_of
from cdc_assets.adapters.sqlserver.session import Session
from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.core.schema import CaptureInstance, Column


def columns_with_nulls(
    session: Session, instance: CaptureInstance, columns: Sequence[Column], after: Lsn, known: Lsn
) -> frozenset[str]:
    """Which of these captured columns hold a NULL in a change row after an LSN, and not a value that the log omits."""
    floor, found = session.floor(instance.table.database, known), set[str]()
    places = {name: place for place, name in enumerate(instance.columns, 1)}
    for portion in portions(columns, PROBES_PER_QUERY):
        pairs = [(column, places[column.name]) for column in portion]
        statement = change_queries.null_probes(instance.table.database, instance.name, pairs)
        rows = session.rows_behind(floor, statement, *[after.raw] * len(portion))
        found |= {portion[integer(row[0])].name for row in rows}
    return frozenset(found)


def active_instances(
    session: Session, database: str, bounds: Mapping[str, Lsn], until: Lsn, ending: set[str] | None = None
) -> frozenset[str]:
    """Which instances have change rows in `(bounds[name], until]`; also those whose change table was dropped, or cannot be read.

    Args:
        ending: takes the instances whose own query ended the connection.
    """

    def active(names: Sequence[str]) -> list[str]:
        probes = change_queries.probes(database, names)
        rows = session.rows_behind(session.floor(database, until), probes, *_bounds(names, bounds, until))
        return [names[integer(row[0])] for row in rows]

    names = sorted(name for name, after in bounds.items() if after < until)
    return frozenset(
        name
        for portion in portions(names, PROBES_PER_QUERY)
        for name in of_those_there(session, portion, active, lambda gone: [gone], ending)
    )


def inserted_lsn(session: Session, instance: CaptureInstance, column: str, value: str, after: Lsn) -> Lsn | None:
    """Commit LSN, greater than `after`, of an inserted row with a value in a captured column; None if there is none yet."""
    statement = change_queries.inserted(instance.table.database, instance.name, column)
    return lsn_of(session.value(statement, after.raw, value))


def inserted_others(
    session: Session, instance: CaptureInstance, column: str, values: Sequence[str], after: Lsn
) -> bool:
    """Whether a row with another value than these in a captured column was inserted after an LSN."""
    statement = change_queries.inserted_others(instance.table.database, instance.name, column, len(values))
    return bool(session.rows(statement, after.raw, *values))


def positions_in_commit(
    session: Session, database: str, instances: Sequence[str], commit: Lsn, step: int
) -> Sequence[Position]:
    """Positions of every `step`-th change row of each instance inside a commit; see `core.ports`."""

    def at_steps(names: Sequence[str]) -> list[Position]:
        rows = session.rows(change_queries.rows_in_commit(database, names), *[commit.raw] * len(names))
        counts = [(names[integer(place)], integer(count)) for place, count in rows]
        return [at for name, count in counts for at in step_positions(session, database, name, commit, step, count)]

    found: list[Position] = []
    for portion in portions(instances, PROBES_PER_QUERY):
        found += of_those_there(session, portion, at_steps, lambda _: [])
    return sorted(found, key=str)


def _bounds(names: Sequence[str], bounds: Mapping[str, Lsn], until: Lsn) -> list[bytes]:
    return [raw for name in names for raw in (bounds[name].raw, until.raw)]
