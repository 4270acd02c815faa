"""A capture that drops old events, days later, in a process of its own: `python -m … <port> <password> <lake> <days> <policy>`."""

import sys
from dataclasses import replace
from datetime import datetime, timedelta

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.assembly.retention import make_retention
from cdc_assets.capture.capture import Capture, RunOptions
from cdc_assets.config.settings import CaptureConfig, CleanupPolicy, MirrorSettings
from cdc_assets_tests.unit.streaming.child import config_of


class Later(SystemClock):
    """Some days ahead."""

    def __init__(self, days: int) -> None:
        self._days = days

    def now(self) -> datetime:
        return super().now() + timedelta(days=self._days)


def retaining(port: int, password: str, lake: str, policy: CleanupPolicy = "delete") -> CaptureConfig:
    """Settings with mirrors, that keep events for some hours."""
    config = config_of(port, password, lake)
    return replace(
        config, lake=replace(config.lake, topic_hours=10, topic_policy=policy), mirror=MirrorSettings(enabled=True)
    )


def run_later(config: CaptureConfig, days: int) -> None:
    """Stream."""
    with SqlServerSource(config.connection) as source:
        Capture(
            config,
            source,
            MssqlBulkSource(config.connection),
            LocalRunner(2),
            Later(days),
            RunOptions(retention=make_retention),
        ).stream()


if __name__ == "__main__":
    policy: CleanupPolicy = "compact" if sys.argv[5] == "compact" else "delete"
    run_later(retaining(int(sys.argv[1]), sys.argv[2], sys.argv[3], policy), int(sys.argv[4]))
