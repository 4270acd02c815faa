"""Signals in the topic of a signal table that nobody has read."""

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.signals.lost import inserted_signals

TOPIC = "shop.signals"


def test_rows_that_another_program_has_appended_are_no_signals(tmp_path: Path) -> None:
    """They have no position, so they are at no LSN."""
    tables = TopicTables(Location(str(tmp_path)), "shop")
    after = {"id": "mine", "type": "execute-snapshot", "data": "{}"}
    value = {"op": "c", "after": after}
    here = str(Position(Lsn.from_int(4), 1, Lsn.from_int(4), 2))
    rows = pa.table(
        {"position": pa.array([here, None]), "value": pa.array([value, {**value, "after": {**after, "id": "other"}}])}
    )
    write_deltalake(tables.location.uri(TOPIC), rows)
    assert inserted_signals(tables, TOPIC, Lsn.from_int(3), Lsn.from_int(4)) == ["mine"]
    assert inserted_signals(tables, TOPIC, Lsn.from_int(4), Lsn.from_int(5)) == []
