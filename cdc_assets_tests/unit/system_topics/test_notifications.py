"""Notifications as people read them; as events they are compared with the connector's by the conformance tests."""

from datetime import UTC, datetime

import pytest

from cdc_assets.core.notification import Aggregate, Notification

AT = datetime(2026, 10, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("aggregate", "kind", "data", "text"),
    [
        ("Initial Snapshot", "STARTED", {}, "Initial Snapshot STARTED"),
        (
            "Initial Snapshot",
            "TABLE_SCAN_COMPLETED",
            {"scanned_collection": "a.b.c", "data_collections": "a.b.c, a.b.d", "total_rows_scanned": "7"},
            "Initial Snapshot TABLE_SCAN_COMPLETED a.b.c total_rows_scanned=7",
        ),
        (
            "Incremental Snapshot",
            "PAUSED",
            {"data_collections": "a.b.c, a.b.d"},
            "Incremental Snapshot PAUSED a.b.c, a.b.d",
        ),
    ],
)
def test_one_line_names_what_it_is_about(aggregate: Aggregate, kind: str, data: dict[str, str], text: str) -> None:
    assert str(Notification(aggregate, kind, data, AT)) == text
