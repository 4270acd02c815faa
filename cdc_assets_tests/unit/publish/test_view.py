"""How far topics are published, by the marker and the manifest."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cdc_assets.core.lsn import Lsn
from cdc_assets.errors import LakeError
from cdc_assets.overview import CaptureReport
from cdc_assets.overview.checks.sqlserver import published_result
from cdc_assets.publish.offset import Published
from cdc_assets.publish.view import published_report

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = [
    {"event": event, "number": number, "rows": rows, "at": NOW - timedelta(seconds=age), "database": "Shop", "until": str(Lsn.from_int(number or 0))}
    for event, number, rows, age in (
        ("complete", 1, 5, 100),
        ("planned", 2, None, 90),
        ("complete", 2, 0, 80),
        ("complete", 3, 5, 60),
        ("complete", 4, 5, 20),
        ("signals", None, None, 5),
    )
]  # fmt: skip


@pytest.mark.parametrize(
    ("marker", "waiting", "behind_s"),
    [
        (None, 3, 100),
        (Published("lake", 0), 3, 100),
        (Published("lake", 1), 2, 60),
        (Published("lake", 3), 1, 20),
        (Published("lake", 4), 0, 0),
        (Published("lake", -1, after={"Shop": str(Lsn.from_int(3))}), 1, 20),
    ],
)
def test_what_waits_are_complete_windows_with_events_behind_the_marker(
    marker: Published | None, waiting: int, behind_s: float
) -> None:
    found = published_report(marker.text() if marker else None, ROWS, NOW)
    assert (found.waiting, found.behind_s) == (waiting, behind_s)


def test_what_waits_since_a_time_that_lies_ahead_waits_for_an_unknown_time() -> None:
    """The clock was set back since, perhaps by an hour; a difference of seconds is that of two machines."""
    marker = Published("lake", 3).text()
    found = published_report(marker, ROWS, NOW - timedelta(hours=1))
    assert (found.waiting, found.behind_s, found.is_age_unknown) == (1, None, True)
    assert published_result(found).word == "warned"
    report = CaptureReport("shop", NOW, published=found)
    assert report.late == ["it is not known how late the topics in Kafka are"]
    assert published_report(marker, ROWS, NOW - timedelta(seconds=50)).behind_s == 0.0
    assert not published_report(Published("lake", 4).text(), ROWS, NOW - timedelta(hours=1)).is_age_unknown


@pytest.mark.parametrize(("age", "rate"), [(1, 7.5), (61, 0.0), (-3600, 0.0)])
def test_the_rate_of_a_publisher_that_is_gone_is_nothing(age: int, rate: float) -> None:
    at = NOW.timestamp() - age
    text = Published("lake", 4, stopped={"t": "large"}, lsn=str(Lsn.from_int(9)), written=at, per_second=7.5).text()
    found = published_report(text, ROWS, NOW)
    assert (found.per_second, found.lsn, dict(found.stopped)) == (rate, Lsn.from_int(9), {"t": "large"})


@pytest.mark.parametrize("text", ["", "{", "[]", '{"window":1}', '{"places":[]}', '{"places":null}'])
def test_what_is_no_marker_is_refused(text: Any) -> None:
    with pytest.raises(LakeError, match="not a marker"):
        published_report(text, ROWS, NOW)
