"""Puts what drops old events together with the mirrors that read them."""

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.ports import Clock, TaskRunner
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.mirror.needs import NeedsOfMirrors
from cdc_assets.retention.drop import Retention


def make_retention(
    tables: TopicTables, manifest: Manifest, config: CaptureConfig, clock: Clock, runner: TaskRunner
) -> Retention:
    """What drops old events from the topics of a capture, for its only writer.

    Args:
        tables: the lake's Delta tables.
        manifest: claimed.
    """
    return Retention(tables, manifest, config, clock, runner, NeedsOfMirrors(config, runner, clock))
