"""Blocking snapshots that a row of the signal table asks for, ours against the real connector's.

Both capture the same stand-in. Changes are made, then the signal's row is inserted, then
more changes are made when both are through. Compared are the rows that are read again, where
they stand among the streamed events, all streamed events, and the notifications.
"""

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from cdc_assets_tests.conformance.compare import Record, compare, reads
from cdc_assets_tests.conformance.debezium import payload
from cdc_assets_tests.conformance.shop import ROWS, Shop
from cdc_assets_tests.conformance.side_by_side import settled, side_by_side
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

SELECT = "SELECT * FROM TestDB.dbo.orders WHERE id > 20 AND id <= 40"


def waves(records: list[Record]) -> list[list[dict[str, Any]]]:
    """What was told of each snapshot, without what counts the readers' own portions and what a start tells."""
    found: list[list[dict[str, Any]]] = []
    for value in (payload(record["value"]) for record in records if record["topic"] == "notes"):
        if value["type"] == "STARTED":
            found.append([])
        if value["type"] != "SKIPPED" and not value["type"].startswith("TABLE_CHUNK"):
            assert value["aggregate_type"] == "Initial Snapshot"
            found[-1].append({"id": value["id"], "type": value["type"], **dict(value["additional_data"])})
    return found


def ended(wave: int, kind: str) -> Callable[[list[Record]], bool]:
    """Whether a snapshot is through."""

    def look(records: list[Record]) -> bool:
        found = waves(records)
        return len(found) > wave and found[wave][-1]["type"] == kind

    return look


def told(wave: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Notifications by table: a reader of several tables at once tells of them in turn."""
    names = ("type", "current_collection_in_progress", "scanned_collection", "status")
    found = [(*(note.get(name, "") for name in names), note.get("total_rows_scanned", "0")) for note in wave]
    return [found[0], *sorted(found[1:-1]), found[-1]]


def places(records: list[Record], table: str) -> list[tuple[str, int]]:
    """Operation and version of a table's events in order, READs that stand together as a set."""
    own = [payload(record["value"]) for record in records if record["topic"].endswith(f".{table}") and record["value"]]
    events = [(value["op"], (value["after"] or value["before"])["version"]) for value in own]
    groups = groupby(events, key=lambda event: event[0] == "r")
    return [event for is_reads, group in groups for event in (sorted(group) if is_reads else group)]


def explained(path: str, theirs: Any, ours: Any) -> str | None:
    """Differences listed in docs/differences-from-debezium.md."""
    if path in ("payload.source.change_lsn", "payload.source.event_serial_no") and ours is None:
        return "source of a blocking READ: the signal's row / the low watermark"
    return None


def test_blocking_snapshots_are_equal(server: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop = Shop(server)
    properties = {
        "table.include.list": "dbo\\.(orders|lines|cdc_signal)",
        "signal.data.collection": "TestDB.dbo.cdc_signal",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": "notes",
    }
    with side_by_side(server, tmp_path, **properties) as (debezium, ours):
        debezium.wait(lambda records: len(reads(records)) == 2 * ROWS)
        shop.change(2)
        conditions = [{"data-collection": "TestDB.dbo.orders", "filter": SELECT}]
        tables = ["TestDB.dbo.orders", "TestDB.dbo.lines"]
        shop.ask("good", **{"data-collections": tables, "additional-conditions": conditions})
        debezium.wait(ended(1, "COMPLETED"))
        ours.catch_up()
        shop.change(3)
        broken = [{"data-collection": "TestDB.dbo.orders", "filter": "SELECT * FROM dbo.nowhere"}]
        shop.ask("bad", **{"data-collections": tables[:1], "additional-conditions": broken})
        debezium.wait(ended(2, "ABORTED"))
        ours.catch_up(failing="dbo.nowhere")
        shop.change(4)
        ours.catch_up()
        own = ours.records()
        theirs = settled(debezium, len(own))
    data = [[record for record in records if record["topic"].startswith("shop.")] for records in (theirs, own)]
    report = compare(*data, explained)
    with capsys.disabled():
        print(f"\nblocking snapshots\n{report}")  # noqa: T201 - the table is the result
    assert not report.differences, str(report)
    for table in ("orders", "lines"):
        assert places(own, table) == places(theirs, table)
        assert [place for place in places(own, table) if place[0] == "r"] != places(own, table)
    assert [told(wave) for wave in waves(own)] == [told(wave) for wave in waves(theirs)]
    assert [{note["id"] for note in wave} for wave in waves(own)][1:] == [{"good"}, {"bad"}]
