"""What all activities of one capture share."""

from dataclasses import dataclass

from cdc_assets.capture.lake import Lake
from cdc_assets.capture.ledger import Ledger
from cdc_assets.capture.server import Server
from cdc_assets.config.settings import CaptureConfig


@dataclass(frozen=True)
class CaptureParts:
    """What all activities of one capture share.

    Args:
        server: what is captured.
        lake: where it is written.
        ledger: its recorded state.
    """

    config: CaptureConfig
    server: Server
    lake: Lake
    ledger: Ledger
