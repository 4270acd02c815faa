"""The machine's clock."""

import time
from datetime import UTC, datetime, timedelta

from cdc_assets.core import interruption


class SystemClock:
    """`core.ports.Clock` with real time."""

    def now(self) -> datetime:
        """Aware, UTC."""
        return datetime.now(UTC)

    def elapsed(self) -> timedelta:
        """Time since some moment, never set back."""
        return timedelta(seconds=time.monotonic())

    def sleep(self, seconds: float) -> None:
        """Wait; ends early if the run is to end."""
        interruption.sleep(seconds)
