"""The machine's clock."""

import time
from datetime import UTC, datetime


class SystemClock:
    """`core.ports.Clock` on the real time."""

    def now(self) -> datetime:
        """Aware, UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
