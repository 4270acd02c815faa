"""How long unread changes are still kept, as far as what the server keeps tells it."""

from datetime import UTC, datetime, timedelta

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.ledger.table_state import TableState
from cdc_assets.overview.server import DatabaseFacts
from cdc_assets.overview.tables import headroom_of

TABLE = TableId("Db", "dbo", "orders")
STATE = TableState(TABLE, 7, Lsn.from_int(9), "dbo_orders")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("mark", "newest", "hours"),
    [
        (9, 9, None),  # an instance that is as young as the position, and nothing waits
        (9, 10, 0.0),
        (6, 9, 3.0),
        (6, 10, 3.0),
    ],
)
def test_nothing_is_about_to_be_removed_where_nothing_waits(mark: int, newest: int, hours: float | None) -> None:
    instances = {TABLE: [CaptureInstance(TABLE, 7, "dbo_orders", Lsn.from_int(mark))]}
    times = {Lsn.from_int(number): NOON + timedelta(hours=number) for number in (6, 9, 10)}
    found = headroom_of(STATE, DatabaseFacts(instances=instances, times=times, newest=Lsn.from_int(newest)))
    assert found is not None
    assert (found.hours, found.lost) == (hours, False)
