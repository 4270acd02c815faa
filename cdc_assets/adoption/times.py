"""A time with a zone as a server's local time, in which commits are recorded without their offset from UTC.

The offset that a server has now need not be the one that it had then: its clock may have been changed in between, for
summer or winter. It does not say which zone it is in. So all zones that have its present offset are tried; each reading
that one of them gives is possible. Mostly it is one.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones


def local_readings(time: datetime, server_now: datetime) -> list[datetime]:
    """What a server's clock may have shown at a time, without zone, the earliest first.

    Args:
        time: aware.
        server_now: the server's clock now, aware.
    """
    moment = time.astimezone(UTC)
    return sorted({(moment + offset).replace(tzinfo=None) for offset in _offsets(moment, server_now)})


def _offsets(moment: datetime, server_now: datetime) -> Iterator[timedelta]:
    now = server_now.astimezone(UTC)
    present = server_now.utcoffset() or timedelta()
    yield present
    zones = available_timezones()
    if not zones:  # this machine knows none
        yield present - timedelta(hours=1)
    for name in zones:
        if name.startswith("Antarctica/"):  # where clocks change by two hours, and no server is
            continue
        try:
            zone = ZoneInfo(name)
        except (ZoneInfoNotFoundError, OSError, ValueError):  # a file of another kind among them
            continue
        if now.astimezone(zone).utcoffset() == present:
            yield moment.astimezone(zone).utcoffset() or timedelta()
