"""The IO managers that captures get, those of the library or somebody's own, and by which their runs write."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from cdc_assets.defs.envelope_io import Committed, EnvelopeIOManager
from cdc_assets.defs.names import Names
from cdc_assets.defs.schema_history_io import SchemaHistoryIOManager
from cdc_assets.defs.spark import SparkResource


@dataclass(frozen=True, slots=True)
class IOManagers:
    """Makes the IO managers of each capture.

    Args:
        spark: their Spark session.
        envelope: a subclass of `EnvelopeIOManager`, or a function with its arguments.
        history: a subclass of `SchemaHistoryIOManager`, or a function with its arguments.
    """

    spark: SparkResource
    envelope: Callable[..., EnvelopeIOManager] = EnvelopeIOManager
    history: Callable[..., SchemaHistoryIOManager] = SchemaHistoryIOManager

    def of(self, names: Names, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Those of a capture, and their Spark session, by resource key.

        Args:
            fields: what names the capture's configuration.
        """
        return {
            names.spark: self.spark,
            names.envelope_io: self.envelope(**fields, spark=self.spark),
            names.history_io: self.history(**fields, spark=self.spark),
        }


class Writers:
    """The IO managers by which a run writes."""

    def __init__(self, names: Names, context: dg.AssetExecutionContext) -> None:
        self._envelope: EnvelopeIOManager = getattr(context.resources, names.envelope_io)
        self._history: SchemaHistoryIOManager = getattr(context.resources, names.history_io)
        self.topics = self._envelope.topics({self._history.directory(): self._history})
        """The tables that the run commits to, by these IO managers."""

    def account(self, committed: Committed) -> dict[str, Any]:
        """Metadata of what a run has committed to a topic; see `LakeIOManager.account`."""
        is_history = committed.topic == self._history.directory()
        return (self._history if is_history else self._envelope).account(committed)
