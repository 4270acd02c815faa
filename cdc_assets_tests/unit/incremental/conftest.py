"""As tests of signals, which ask for these snapshots."""

from cdc_assets_tests.unit.signals.conftest import server, small_rounds

__all__ = ["server", "small_rounds"]
