"""Captures of the SQL Server in memory: their settings, and a capture as a new process would open it."""

from cdc_assets.assembly.retention import make_retention
from cdc_assets.capture.capture import Capture, RunOptions
from cdc_assets.config.settings import (
    CaptureConfig,
    ConnectionSettings,
    EventSettings,
    LakeSettings,
    SnapshotSettings,
    StreamingSettings,
)
from cdc_assets.lake.sink import DIRECT, Sink
from cdc_assets.lake.topics import TopicTables
from cdc_assets.shared.progress import OnProgress
from cdc_assets.system_topics.notifications import Listener
from cdc_assets_tests.unit.streaming.loop_runner import LoopRunner
from cdc_assets_tests.unit.streaming.simulation import DATABASE, SimulatedClock, SimulatedServer


def make_config(path: str, **changes: object) -> CaptureConfig:
    """Settings of a capture into `path`; keyword arguments replace fields of snapshot, streaming and lake settings."""

    def chosen(kind: type) -> dict[str, object]:
        return {name: value for name, value in changes.items() if name in kind.__dataclass_fields__}  # type: ignore[attr-defined]

    return CaptureConfig(
        name="shop",
        connection=ConnectionSettings("server", "user", "word", (DATABASE,)),
        events=EventSettings("shop", **chosen(EventSettings)),  # type: ignore[arg-type]
        lake=LakeSettings(path, **chosen(LakeSettings)),  # type: ignore[arg-type]
        snapshot=SnapshotSettings(**chosen(SnapshotSettings)),  # type: ignore[arg-type]
        streaming=StreamingSettings(**{"idle_timeout_s": 1.0, "retry_wait_s": 1.0} | chosen(StreamingSettings)),  # type: ignore[arg-type]
    )


def make_capture(
    server: SimulatedServer,
    config: CaptureConfig,
    runner: LoopRunner | None = None,
    listener: Listener | None = None,
    on_progress: OnProgress = lambda _: None,
    sink: Sink = DIRECT,
) -> Capture:
    """A capture as a new process would open it."""
    clock, tables = SimulatedClock(server), TopicTables.of(config, sink)
    bulk, runner = server.bulk, runner or LoopRunner()
    return Capture(
        config,
        server,
        bulk,
        runner,
        clock,
        RunOptions("run", (), listener, tables, on_progress, retention=make_retention),
    )
