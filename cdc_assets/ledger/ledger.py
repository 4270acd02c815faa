"""The recorded state of a capture, and the clock of its records."""

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
        """The state recorded now."""
        return self.manifest.state

    def notice(self, aggregate: Aggregate, kind: str, signal: str = "", **data: str) -> Notification:
        """Make a notification, to be recorded with what it reports; `signal` is the id of the signal that requested it."""
        return Notification(aggregate, kind, data, self.clock.now(), signal)
