"""Times of commits (`cdc.lsn_time_mapping`)."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from cdc_assets.adapters.sqlserver import queries
from cdc_assets.adapters.sqlserver.portions import portions
from cdc_assets.adapters.sqlserver.reached import Floor
from cdc_assets.adapters.sqlserver.rows import commit_time, lsn_of
from cdc_assets.adapters.sqlserver.session import Session
from cdc_assets.core.lsn import ZERO_LSN, Lsn

_KNOWN_PER_QUERY: Final = 1000
_BETWEEN_PER_QUERY: Final = 100


def commit_times(session: Session, floor: Floor, lsns: Sequence[Lsn]) -> Mapping[Lsn, datetime]:
    """Time of the newest commit up to each LSN; an LSN between two commits costs a query per 100 of them."""
    found = _times(session, floor, sorted(set(lsns)), _KNOWN_PER_QUERY, queries.commit_times)
    between = sorted(set(lsns) - found.keys())
    return found | _times(session, floor, between, _BETWEEN_PER_QUERY, queries.times_before)


def _times(
    session: Session, floor: Floor, lsns: Sequence[Lsn], size: int, statement: Callable[[str, int], str]
) -> dict[Lsn, datetime]:
    found: dict[Lsn, datetime] = {}
    for portion in portions(lsns, size):
        query, parameters = statement(floor.database, len(portion)), [lsn.raw for lsn in portion]
        for raw, local, offset in session.rows_behind(floor, query, *parameters):
            if local is not None:
                found[lsn_of(raw) or ZERO_LSN] = commit_time(local, offset)
    return found
