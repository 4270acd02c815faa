"""Zones of time by name or offset."""

from datetime import timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo


def zone_of(text: str) -> tzinfo:
    """The zone of a name or an offset.

    Raises:
        ValueError: there is none.
        KeyError: there is none.
    """
    if text[:1] in ("+", "-"):
        hours, minutes, *rest = (int(part) for part in text[1:].split(":"))
        offset = timedelta(hours=hours, minutes=minutes, seconds=rest[0] if rest else 0)
        return timezone(-offset if text[0] == "-" else offset)
    return ZoneInfo(text)
