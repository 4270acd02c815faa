"""A capture as commands read it that change nothing, whichever connector makes it: its report, its topics, its lake.

`status`, `summary`, `tail` and exported metrics exist once; what differs is here, in a class for each kind of capture.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from cdc_assets.adapters.sqlserver.source import SqlServerSource, quick_source
from cdc_assets.assembly.engine import ask_unread
from cdc_assets.assembly.publishing import ask_marker
from cdc_assets.cli.console import configuration_file, read_engine_config, read_lake_config
from cdc_assets.cli.topic_events import OPERATIONS, rows_by_operation
from cdc_assets.config.engine import EngineConfig, is_engine_file
from cdc_assets.config.settings import CaptureConfig, TextSettings
from cdc_assets.connectors.databases.probe import open_probe
from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.errors import CdcError, ConfigurationError, LakeError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.overview import CaptureOverview, DatabaseOverview
from cdc_assets.overview.checks.check import Inspection
from cdc_assets.overview.checks.connector import CHECKS, ConnectorFacts
from cdc_assets.overview.engine import answers_of
from cdc_assets.overview.report_builder import inspect_server

Topics = Mapping[str, tuple[str, Sequence[str]]]
"""Topics of tables by name: the table, and the directories of the topic's generations."""


class ReadCapture(ABC):
    """A capture that a command reads.

    Args:
        unresolved: why the server or the database cannot be reached with these settings.
        lake: where the topics of its tables are.
        text: how events are printed.
    """

    operations: ClassVar[Mapping[str | None, str]] = OPERATIONS

    def __init__(
        self, config: CaptureConfig | EngineConfig, unresolved: CdcError | None, lake: TopicTables, text: TextSettings
    ) -> None:
        self._config, self._unresolved, self.lake, self.text = config, unresolved, lake, text

    @property
    def root(self) -> str:
        """Location of the lake."""
        return self.lake.location.root

    @property
    @abstractmethod
    def known(self) -> bool:
        """Whether anything was captured yet."""

    def inspect(self) -> Inspection:
        """The state of the capture, with all that can be read, and what its checks say."""
        return inspect_capture(self._config, self._unresolved)

    @abstractmethod
    def topics(self) -> Topics:
        """Topics of tables; of nothing that was captured none."""

    @abstractmethod
    def has_topic(self, name: str) -> bool:
        """Whether there is a topic of no table with this name."""

    def databases(self) -> Sequence[DatabaseOverview] | None:
        """How far each database is complete; None if the capture knows no databases."""
        return None

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Number of events by operation, by topic."""
        found = {name: rows_by_operation(self.lake, directories) for name, (_, directories) in self.topics().items()}
        return {
            topic: {self.operations.get(name, name): count for name, count in counts.items()}
            for topic, counts in found.items()
        }

    def find(self, wanted: str) -> str:
        """The topic with this name, or with a name that ends so; or one of no table, by its whole name.

        Raises:
            ConfigurationError: no topic matches, or several do.
            LakeError: nothing was captured yet.
        """
        names = {name: table for name, (table, directories) in self.topics().items() if directories}
        end = f".{wanted.lower()}"
        found = [name for name, table in names.items() if any(f".{it}".lower().endswith(end) for it in (name, table))]
        if wanted in names:
            return wanted
        if not found and self.has_topic(wanted):
            return wanted
        if not names:
            raise LakeError(
                f"Nothing captured yet in {self.root}. Next: run `cdc-assets capture`, or turn on the sensor."
            )
        if len(found) != 1:
            raise ConfigurationError("topic", wanted, "one of " + ", ".join(names), "name one of them")
        return found[0]


def read_capture(config: Path) -> ReadCapture:
    """The capture of a configuration file, or of a folder that holds one.

    Raises:
        ConfigurationError: there is none, there are several, or it is invalid.
    """
    place = configuration_file(config)
    return _OfConnector(*read_engine_config(place)) if is_engine_file(place) else _OfServer(*read_lake_config(config))


class _OfServer(ReadCapture):
    """A capture from SQL Server."""

    def __init__(self, config: CaptureConfig, unresolved: CdcError | None) -> None:
        self._overview = CaptureOverview(config)
        super().__init__(config, unresolved, self._overview.lake, config.text)

    @property
    def known(self) -> bool:
        return bool(self._overview.known)

    def topics(self) -> Topics:
        overview = self._overview
        tables = overview.tables if overview.known else ()
        return {found.topic: (str(found.table), overview.directories(found.topic)) for found in tables}

    def databases(self) -> Sequence[DatabaseOverview]:
        return self._overview.databases if self.known else ()

    def has_topic(self, name: str) -> bool:
        """Transactions, notifications, schema changes; no table that the capture uses itself."""
        can_be = name.isprintable() and not set("/\\") & set(name) and "__" not in name
        return can_be and self.lake.open(name) is not None


class _OfConnector(ReadCapture):
    """A capture by another connector, or of events that others wrote."""

    operations: ClassVar[Mapping[str | None, str]] = {**OPERATIONS, "t": "truncate", "m": "message"}

    def __init__(self, config: EngineConfig, unresolved: CdcError | None) -> None:
        self._overview = EngineOverview(config)
        super().__init__(config, unresolved, self._overview.lake, TextSettings())

    @property
    def known(self) -> bool:
        return self._overview.known

    def topics(self) -> Topics:
        return {found.topic: (str(found.table), found.directories) for found in self._overview.topics}

    def has_topic(self, name: str) -> bool:
        return ".__" not in name and name in self._overview.state.tables


def inspect_capture(config: CaptureConfig | EngineConfig, unresolved: CdcError | None = None) -> Inspection:
    """The state of a capture, with all that can be read now, and what its checks say.

    Args:
        unresolved: why the server or the database cannot be reached with these settings.
    """
    if isinstance(config, CaptureConfig):
        return inspect_server(config, lambda: _reached(config, unresolved), marker=ask_marker(config))
    overview = EngineOverview(config)
    asked = unresolved or answers_of(overview, lambda: open_probe(config), ask_unread(config))
    return Inspection.of(CHECKS, ConnectorFacts(overview, asked, datetime.now(UTC)), once=True)


@contextmanager
def _reached(config: CaptureConfig, unresolved: CdcError | None) -> Iterator[SqlServerSource]:
    """The server, with short time-outs."""
    if unresolved is not None:
        raise unresolved
    with quick_source(config) as source:
        yield source
