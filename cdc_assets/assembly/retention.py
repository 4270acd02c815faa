"""Puts what drops old events together with the mirrors that read them."""

from cdc_assets.core.ports import TaskRunner
from cdc_assets.mirror.needs import NeedsOfMirrors
from cdc_assets.retention.drop import Retention
from cdc_assets.shared.parts import CaptureParts


def make_retention(parts: CaptureParts, runner: TaskRunner) -> Retention:
    """What drops old events from the topics of a capture, for its only writer.

    Args:
        parts: of the capture, whose manifest is claimed.
    """
    config, clock = parts.config, parts.ledger.clock
    mirrors = NeedsOfMirrors(config, runner, clock)
    return Retention(parts.lake.tables, parts.ledger.manifest, config, clock, runner, mirrors)
