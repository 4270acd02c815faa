"""What all activities of one capture share."""

from dataclasses import dataclass

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.shared.lake import Lake
from cdc_assets.shared.server import Server


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
