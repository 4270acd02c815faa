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
from cdc_assets.config.settings.lake import CleanupPolicy, LakeSettings
from cdc_assets.config.settings.metrics import MetricsSettings
from cdc_assets.config.settings.mirror import MirrorSettings
from cdc_assets.config.settings.signals import SignalSettings
from cdc_assets.config.settings.snapshot import IsolationMode, SnapshotMode, SnapshotSettings
from cdc_assets.config.settings.streaming import GapPolicy, StreamingSettings
from cdc_assets.config.settings.text import DecimalFormat, TextFormat, TextSettings

__all__ = [
    "AdjustmentMode",
    "BinaryMode",
    "CaptureConfig",
    "CleanupPolicy",
    "ColumnRule",
    "ConnectionSettings",
    "DecimalFormat",
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
