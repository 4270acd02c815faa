"""The machine's clock."""

from datetime import UTC, datetime

from cdc_assets.core import interruption


class SystemClock:
    """`core.ports.Clock` with real time."""

    def now(self) -> datetime:
        """Aware, UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Wait; ends early if the run is asked to end."""
        interruption.sleep(seconds)
