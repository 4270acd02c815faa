"""What a server's clock may have shown at a time."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from cdc_assets.adoption import times
from cdc_assets.adoption.times import local_readings

SUMMER, WINTER = datetime(2026, 7, 1, 12, tzinfo=UTC), datetime(2026, 1, 15, 12, tzinfo=UTC)


def at(moment: datetime, hours: float) -> datetime:
    """The clock of a server at a moment."""
    return moment.astimezone(timezone(timedelta(hours=hours)))


@pytest.mark.parametrize(
    ("time", "now", "shown"),
    [
        (SUMMER, at(SUMMER + timedelta(days=1), 2), [14]),
        (WINTER, at(SUMMER, 2), [13, 14]),  # Berlin or Johannesburg
        (SUMMER, at(WINTER, 1), [13, 14]),  # Lagos or Berlin
        (SUMMER, at(WINTER, 0), [12, 13]),  # UTC or London
        (WINTER, at(SUMMER, 9), [21]),  # no zone there changes its clocks
        (WINTER, at(WINTER + timedelta(days=9), -5), [7]),
    ],
)
def test_all_zones_that_have_the_present_offset_are_asked(time: datetime, now: datetime, shown: list[int]) -> None:
    assert [reading.hour for reading in local_readings(time, now)] == shown
    assert all(reading.tzinfo is None for reading in local_readings(time, now))


def test_a_machine_that_knows_no_zones_thinks_of_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "available_timezones", set)
    assert [reading.hour for reading in local_readings(WINTER, at(WINTER, 2))] == [13, 14]
