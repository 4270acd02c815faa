"""The settings of one capture."""

from dataclasses import dataclass, field

from cdc_assets.config.settings.connection import ConnectionSettings, FilterSettings
from cdc_assets.config.settings.events import EventSettings, HeartbeatSettings, HistorySettings, NotificationSettings
from cdc_assets.config.settings.kafka import KafkaSettings
from cdc_assets.config.settings.lake import LakeSettings
from cdc_assets.config.settings.metrics import MetricsSettings
from cdc_assets.config.settings.mirror import MirrorSettings
from cdc_assets.config.settings.signals import SignalSettings
from cdc_assets.config.settings.snapshot import SnapshotSettings
from cdc_assets.config.settings.streaming import StreamingSettings
from cdc_assets.config.settings.text import TextSettings


@dataclass(frozen=True, slots=True)
class CaptureConfig:
    """One capture: everything a configuration file says.

    Args:
        name: `name`, or the topic prefix.
        ignored: properties that were given and have no effect here, with the reason.
    """

    name: str
    connection: ConnectionSettings
    events: EventSettings
    lake: LakeSettings
    filters: FilterSettings = field(default_factory=FilterSettings)
    text: TextSettings = field(default_factory=TextSettings)
    snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)
    streaming: StreamingSettings = field(default_factory=StreamingSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings)
    notifications: NotificationSettings = field(default_factory=NotificationSettings)
    signals: SignalSettings = field(default_factory=SignalSettings)
    mirror: MirrorSettings = field(default_factory=MirrorSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    ignored: tuple[tuple[str, str], ...] = ()
