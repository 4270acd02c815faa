"""Mirrors kept in a process of its own, so that it can be killed: `python -m … <lake> <rows before a fold>`."""

import sys

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.mirror import ledger
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets_tests.unit.streaming.child import config_of


def mirrors_of(lake: str) -> CaptureMirrors:
    """The mirrors in a lake; no server is asked."""
    return CaptureMirrors(config_of(1, "", lake), LocalRunner(2), SystemClock())


if __name__ == "__main__":
    ledger._FOLD_EVERY = int(sys.argv[2])
    mirrors_of(sys.argv[1]).catch_up()
