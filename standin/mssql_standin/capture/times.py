"""Python's datetime as a stored `datetime` (1/300 s ticks since 1900)."""

from datetime import datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1900, 1, 1)


def to_stored(moment: datetime) -> int:
    """Round to SQL Server's 1/300 s."""
    micros = (moment - _EPOCH) // timedelta(microseconds=1)
    return (micros * 3 + 5_000) // 10_000
