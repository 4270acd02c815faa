"""What is recorded about a capture, and when."""

from dataclasses import dataclass

from cdc_assets.core.notification import Aggregate, Notification
from cdc_assets.core.ports import Clock
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.state import CaptureState


@dataclass(frozen=True, slots=True)
class Ledger:
    """The manifest of one capture, with the clock that dates its rows."""

    manifest: Manifest
    clock: Clock

    @property
    def state(self) -> CaptureState:
        """What is recorded now."""
        return self.manifest.state

    def notice(self, aggregate: Aggregate, kind: str, signal: str = "", **data: str) -> Notification:
        """A notification, to be recorded with what it tells; `signal` is the id of the signal that asked for it."""
        return Notification(aggregate, kind, data, self.clock.now(), signal)
