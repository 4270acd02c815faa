"""Notifications in Dagster: their number is bounded, and what matters is always shown."""

import logging
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import dagster as dg

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.notification import Notification
from cdc_assets.defs.notices import Notices

TABLES = [TableId("Many", "dbo", f"t{number}") for number in range(1000)]


def notification(kind: str, table: TableId, status: str = "SUCCEEDED") -> Notification:
    data = {"scanned_collection": str(table), "status": status}
    return Notification("Initial Snapshot", kind, data, datetime.now(UTC))


def test_a_snapshot_of_many_tables_reports_few_steps_and_every_failure() -> None:
    keys = {dg.AssetKey(table.table): table for table in TABLES}
    events: list[Any] = []
    lines: list[str] = []
    catalog: Any = SimpleNamespace(page_key=dg.AssetKey("windows"), keys=lambda _: keys)
    context: Any = SimpleNamespace(log=SimpleNamespace(info=lines.append), log_event=events.append)
    notices = Notices(catalog, context)
    for _ in range(2):
        events.clear()
        lines.clear()
        notices.send(Notification("Initial Snapshot", "STARTED", {}, datetime.now(UTC)))
        for table in TABLES:
            notices.send(notification("IN_PROGRESS", table))
            notices.send(notification("TABLE_SCAN_COMPLETED", table))
        assert (len(events), len(lines)) == (51, 101)
        notices.send(notification("TABLE_SCAN_COMPLETED", TABLES[-1], "SQL_EXCEPTION"))
        notices.send(Notification("Initial Snapshot", "COMPLETED", {}, datetime.now(UTC)))
        assert [event.metadata["event"].value for event in events[51:]] == ["TABLE_SCAN_COMPLETED", "COMPLETED"]


def test_steps_that_are_not_reported_are_in_the_log_of_the_process(caplog: Any) -> None:
    catalog: Any = SimpleNamespace(page_key=dg.AssetKey("windows"), keys=lambda _: {})
    context: Any = SimpleNamespace(log=SimpleNamespace(info=lambda _: None), log_event=lambda _: None)
    notices = Notices(catalog, context)
    with caplog.at_level(logging.INFO):
        for table in TABLES[:150]:
            notices.send(notification("IN_PROGRESS", table))
    assert [f"t{number} " in record.getMessage() for number, record in enumerate(caplog.records, 100)] == [True] * 50
