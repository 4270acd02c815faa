"""A capture in a process of its own, so that it can be killed: `python -m … snapshot|stream`."""

import os
import sys

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.assembly.retention import make_retention
from cdc_assets.capture.capture import Capture, RunOptions
from cdc_assets.config.settings import (
    CaptureConfig,
    ConnectionSettings,
    EventSettings,
    LakeSettings,
    StreamingSettings,
)

DATABASE = "SalesDb"


def config_of(port: int, password: str, lake: str) -> CaptureConfig:
    """Small windows, and an end as soon as nothing is new."""
    return CaptureConfig(
        name="shop",
        connection=ConnectionSettings("127.0.0.1", "sa", password, (DATABASE,), port=port, encrypt="no"),
        events=EventSettings("shop"),
        lake=LakeSettings(lake),
        streaming=StreamingSettings(idle_timeout_s=0.05, poll_interval_s=0.02, max_iteration_transactions=2, slices=2),
    )


def run(config: CaptureConfig, what: str) -> None:
    """Snapshot or stream, as a Dagster run would."""
    with SqlServerSource(config.connection) as source:
        capture = Capture(
            config,
            source,
            MssqlBulkSource(config.connection),
            LocalRunner(2),
            SystemClock(),
            RunOptions(retention=make_retention),
        )
        if what == "snapshot":
            capture.snapshot()
        else:
            capture.stream()


if __name__ == "__main__":
    run(config_of(int(os.environ["CHILD_PORT"]), os.environ["CHILD_PASSWORD"], os.environ["CHILD_LAKE"]), sys.argv[1])
