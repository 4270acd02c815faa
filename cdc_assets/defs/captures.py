"""One capture as a Dagster resource: its configuration file and the adapters that serve it."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import dagster as dg
from pydantic import Field

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.kafka import kafka_channels
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource, quick_source
from cdc_assets.config.load import configuration_files, load_config
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.schema import TableSchema
from cdc_assets.defs.spark import SparkResource
from cdc_assets.errors import InvariantError
from cdc_assets.history.drift import Drift
from cdc_assets.notifications import Listener
from cdc_assets.run.capture import Capture
from cdc_assets.run.drift import drifts
from cdc_assets.run.overview import Glance

T = TypeVar("T")
R = TypeVar("R")

CONFIGURATION_VARIABLE = "CDC_CONFIG"
"""Names a configuration file, or a folder with one file per capture."""
DEFAULT_CONFIGURATION = "resources/captures"


def configured_captures() -> list[Path]:
    """The configuration files of all captures: those of `CDC_CONFIG`, or of the folder `resources/captures`.

    Raises:
        ConfigurationError: the place is missing or holds no configuration file.
    """
    return configuration_files(Path(os.environ.get(CONFIGURATION_VARIABLE) or DEFAULT_CONFIGURATION))


class CaptureResource(dg.ConfigurableResource):  # type: ignore[type-arg] # hands out itself
    """Opens a capture for one run, with Spark as the runner of its tasks.

    Holds the place of the configuration and not its content, so that no secret reaches Dagster's pages.
    """

    config_file: str = Field(description="Debezium connector properties: JSON, properties or YAML.")
    spark: dg.ResourceDependency[SparkResource]

    def config(self) -> CaptureConfig:
        """The settings, read now.

        Raises:
            ConfigurationError: the file cannot be read, or something in it is wrong.
        """
        return load_config(self.config_file)

    @contextmanager
    def open(
        self,
        run_id: str,
        listener: Listener | None = None,
        *,
        idle_timeout_s: float | None = None,
        max_duration_s: float | None = None,
    ) -> Iterator[Capture]:
        """The facade, closed at the end of the block. No JVM is started until there are rows to read.

        Args:
            run_id: goes into the context headers of events.
            listener: told of every notification.
            idle_timeout_s: instead of the configured one, if given; 0 is for ever.
            max_duration_s: the same.
        """
        config = self.config()
        if idle_timeout_s is not None:
            config = replace(config, streaming=replace(config.streaming, idle_timeout_s=idle_timeout_s))
        if max_duration_s is not None:
            config = replace(config, streaming=replace(config.streaming, max_duration_s=max_duration_s))
        bulk = MssqlBulkSource.of(config)
        with SqlServerSource.of(config) as source, kafka_channels(config) as channels:
            yield Capture(config, source, bulk, self.spark.runner(), SystemClock(), run_id, channels, listener)

    @contextmanager
    def glance(self, *, at_signals: bool = False) -> Iterator[Glance]:
        """A look from outside, for sensors and checks; waits a few seconds at most.

        Args:
            at_signals: whether channels of signals are looked at, too.
        """
        config = self.config()
        with ExitStack() as stack:
            source = stack.enter_context(quick_source(config))
            channels = stack.enter_context(kafka_channels(config)) if at_signals else []
            yield Glance(config, source, channels)

    def drifts(self) -> Sequence[Drift]:
        """How the tables on the server differ from the structure of their events, asked now."""
        config = self.config()
        with quick_source(config) as source:
            return drifts(source, config)


def discovered_tables(config: CaptureConfig) -> Sequence[TableSchema]:
    """Structures of the captured tables, asked now.

    Raises:
        CdcError: the server cannot be asked, or no table matches the filters.
    """
    with quick_source(config) as source:
        return Capture(config, source, MssqlBulkSource(config.connection), _NoRunner(), SystemClock()).discover()


class _NoRunner:
    """For a facade that only answers questions."""

    parallelism = 1

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        raise InvariantError("No tasks can be run here. Next: report this.")
