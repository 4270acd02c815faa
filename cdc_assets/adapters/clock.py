"""The machine's clock."""

from datetime import UTC, datetime

from cdc_assets.core import interruption


class SystemClock:
    """`core.ports.Clock` on the real time."""

    def now(self) -> datetime:
        """Aware, UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Wait; a run that is asked to end waits no longer."""
        interruption.sleep(seconds)
