"""Typed settings, one frozen class per concern; `build` fills them. The modules are those of `config.table`, whose rows name the fields."""

from cdc_assets.config.settings.capture import CaptureConfig
from cdc_assets.config.settings.connection import ConnectionSettings, FilterSettings
from cdc_assets.config.settings.events import (
    AdjustmentMode,
    BinaryMode,
    ColumnRule,
    DecimalMode,
    EventSettings,
    FailureMode,
    HeartbeatSettings,
    HistorySettings,
    NotificationSettings,
    TimeMode,
)
from cdc_assets.config.settings.kafka import KafkaSettings, TopicRule
from cdc_assets.config.settings.reading import (
    CleanupPolicy,
    GapPolicy,
    IsolationMode,
    LakeSettings,
    MetricsSettings,
    MirrorSettings,
    SnapshotMode,
    SnapshotSettings,
    StreamingSettings,
)
from cdc_assets.config.settings.signals import SignalSettings
from cdc_assets.config.settings.text import TextFormat, TextSettings

__all__ = [
    "AdjustmentMode",
    "BinaryMode",
    "CaptureConfig",
    "CleanupPolicy",
    "ColumnRule",
    "ConnectionSettings",
    "DecimalMode",
    "EventSettings",
    "FailureMode",
    "FilterSettings",
    "GapPolicy",
    "HeartbeatSettings",
    "HistorySettings",
    "IsolationMode",
    "KafkaSettings",
    "LakeSettings",
    "MetricsSettings",
    "MirrorSettings",
    "NotificationSettings",
    "SignalSettings",
    "SnapshotMode",
    "SnapshotSettings",
    "StreamingSettings",
    "TextFormat",
    "TextSettings",
    "TimeMode",
    "TopicRule",
]
