"""Configurations of captures that another Debezium connector than SQL Server's makes, in the embedded engine.

Such a file is known by its `connector.class`. A few properties are ours; all others are the connector's own and are
handed to it as they are: it checks them itself.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from cdc_assets.config.formats import flat
from cdc_assets.config.load import overrides, read_properties, substitute
from cdc_assets.config.masks import Masks
from cdc_assets.config.patterns import expression_for
from cdc_assets.config.properties import PROPERTIES, property_of
from cdc_assets.config.reader import FILES, KAFKA
from cdc_assets.config.settings import LakeSettings, MetricsSettings
from cdc_assets.errors import ConfigurationError

SQL_SERVER: Final = "SqlServerConnector"
_HEAP: Final = re.compile(r"[1-9][0-9]*[kKmMgG]?")
_OWN: Final = ("engine.", "lake.", "metrics.", "sensor.", "stream.")
_OFFERED: Final[Mapping[str, tuple[str, int, int]]] = {
    "engine.heap": ("1g", 0, 0),
    "engine.batch.rows": ("200000", 1, 100_000_000),
    "engine.batch.ms": ("2000", 1, 3_600_000),
    "engine.log.level": ("WARN", 0, 0),
    "engine.watchdog.ms": ("300000", 0, 86_400_000),
}
_RETRIES: Final[Mapping[str, tuple[str, int, int]]] = {
    "retriable.restart.connector.wait.ms": ("10000", 0, 3_600_000),
    "errors.max.retries": ("-1", -1, 2**31 - 1),
}
"""The connector's own properties, which are obeyed by the run: see `connectors.debezium.engine.handed`."""
_POLL_S: Final = 0.5
"""Debezium's default."""
_WITH_ROWS: Final = ("always", "initial", "initial_only", "when_needed")
READ_LIST: Final = "snapshot.include.collection.list"
OVERRIDES: Final = "snapshot.select.statement.overrides"
_LIST: Final = re.compile(r"(database|schema|table)\.(include|exclude)\.list")
_KEPT_BY_US: Final = ("offset.", "schema.history.internal", "tasks.max")
"""Where Debezium would keep what is kept in the lake; but what of the history is stored may be said."""
_HISTORY_FILTERS: Final = (
    "schema.history.internal.skip.unparseable.ddl",
    "schema.history.internal.store.only.captured.databases.ddl",
    "schema.history.internal.store.only.captured.tables.ddl",
)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """One capture by an embedded connector.

    Args:
        name: `name`, or the topic prefix; offsets are recorded under it.
        topic_prefix: `topic.prefix`.
        lake: where the tables lie.
        properties: what the connector is given; may hold secrets, so not part of `repr`.
        heap: of its Java machine, as `-Xmx` takes it.
        log_level: of Debezium's own log.
        batch_rows: events at which a batch is committed.
        batch_s: age at which it is.
        watchdog_s: an engine that does not answer for so long is killed; 0 never.
        idle_timeout_s: a run ends after so long without an event; 0 never.
        max_duration_s: a run ends after so long; 0 never. Not hours, since it makes no way for a snapshot that waits.
        sensor_wait_s: `sensor.wait.ms` in seconds: how long a tick of Dagster's sensor waits for a change.
        retry_wait_s: `retriable.restart.connector.wait.ms` in seconds.
        max_retries: `errors.max.retries`; -1 retries for ever.
        metrics: where metrics are exported.
        ignored: properties that were given and have no effect here, with the reason.
    """

    name: str
    topic_prefix: str
    lake: LakeSettings
    properties: Mapping[str, str] = field(repr=False)
    heap: str = "1g"
    log_level: str = "WARN"
    batch_rows: int = 200_000
    batch_s: float = 2.0
    watchdog_s: float = 300.0
    idle_timeout_s: float = 10.0
    max_duration_s: float = 600.0
    sensor_wait_s: float = 4.0
    retry_wait_s: float = 10.0
    max_retries: int = -1
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    ignored: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> str:
        """The database by the connector's class: `mysql`, `mariadb`, `postgresql`, `oracle`, or another word."""
        name = self.properties.get("connector.class", "").rpartition(".")[2].removesuffix("Connector").lower()
        return {"postgres": "postgresql"}.get(name, name)

    @property
    def is_reader(self) -> bool:
        """Whether it reads events that others wrote, to topics or files: then there is no database to query."""
        return self.properties.get("connector.class", "").strip() in (FILES, KAFKA)

    @property
    def streams(self) -> bool:
        """Whether the connector reads the log once tables are read."""
        return self.properties.get("snapshot.mode") != "initial_only"

    @property
    def reads_rows(self) -> bool:
        """Whether the connector's own snapshot reads the rows of all tables, for sure."""
        return self.properties.get("snapshot.mode", "initial") in _WITH_ROWS

    @property
    def lists(self) -> Mapping[str, str]:
        """The lists of databases, schemas and tables that the connector captures, or leaves out."""
        return {name: text for name, text in self.properties.items() if _LIST.fullmatch(name)}

    @property
    def read_lists(self) -> Mapping[str, str]:
        """The lists of tables whose rows the connector's own snapshot reads."""
        return {**self.lists, **self.row_lists}

    @property
    def row_lists(self) -> Mapping[str, str]:
        """Those that matter to rows only: of tables that its own snapshot reads, and of those of which a statement chooses the rows."""
        read, overridden = (self.properties.get(name, "") for name in (READ_LIST, OVERRIDES))
        names = ",".join(expression_for(name.strip()) for name in overridden.split(",") if name.strip())
        return {name: text for name, text in ((READ_LIST, read), (OVERRIDES, names)) if text.strip()}

    @property
    def poll_interval_s(self) -> float:
        """How often the connector asks its database (`poll.interval.ms`), in seconds; so often its sensor does, too."""
        text = self.properties.get("poll.interval.ms", "").strip()
        return int(text) / 1000 if text.isdecimal() else _POLL_S

    @property
    def delimiter(self) -> str:
        """What is between the parts of a topic's name."""
        return self.properties.get("topic.delimiter") or "."

    @property
    def heartbeat_topic(self) -> str:
        """Where the connector's heartbeats go."""
        given = self.properties
        parts = (given.get("topic.heartbeat.prefix") or "__debezium-heartbeat", self.topic_prefix)
        return given.get("topic.heartbeat.name") or self.delimiter.join(parts)


def is_engine_file(path: Path) -> bool:
    """Whether a configuration file names another connector than SQL Server's.

    Raises:
        ConfigurationError: it cannot be read.
    """
    name = read_properties(path).get("connector.class", "").strip()
    return bool(name) and not name.endswith(SQL_SERVER)


def is_engine(properties: Mapping[str, Any]) -> bool:
    """Whether properties given in Python or YAML name another connector than SQL Server's."""
    name = flat(dict(properties)).get("connector.class", "").strip()
    return bool(name) and not name.endswith(SQL_SERVER)


def load_engine_config(path: Path, environment: Mapping[str, str] | None = None) -> EngineConfig:
    """Read a file, replace placeholders, take what the environment gives (`config.load`).

    Raises:
        ConfigurationError: it cannot be read, or a property of ours is wrong.
    """
    return _resolved(read_properties(path), environment)


def engine_config_of(properties: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> EngineConfig:
    """The same for properties given in Python or YAML.

    Raises:
        ConfigurationError: a property of ours is wrong.
    """
    return _resolved(flat(dict(properties)), environment)


def load_engine_lake_config(
    path: Path, environment: Mapping[str, str] | None = None
) -> tuple[EngineConfig, ConfigurationError | None]:
    """As `load_engine_config`, for code that only reads the lake: what the connector is given may lack secrets.

    Returns:
        The settings, and the error of the first placeholder that could not be replaced, if any.

    Raises:
        ConfigurationError: it cannot be read, or a property of ours is wrong.
    """
    variables = os.environ if environment is None else environment
    unresolved: ConfigurationError | None = None
    texts = read_properties(path)
    for name, text in list(texts.items()):
        try:
            substitute(name, text, variables)
        except ConfigurationError as error:
            if name.startswith(_OWN) or name == "topic.prefix":
                raise
            unresolved = unresolved or error
            del texts[name]
    return _resolved(texts, environment), unresolved


def _resolved(given: Mapping[str, str], environment: Mapping[str, str] | None) -> EngineConfig:
    variables = os.environ if environment is None else environment
    texts = {name: substitute(name, text, variables) for name, text in given.items()}
    shared = ("database.hostname", "database.port", "database.user", "database.password", "topic.prefix", "name")
    own = {name: text for name, text in overrides(variables) if name in shared or name.startswith(_OWN)}
    return engine_config(texts | own)


def engine_config(texts: Mapping[str, str]) -> EngineConfig:
    """Settings from property texts.

    Raises:
        ConfigurationError: a property of ours is missing or wrong.
    """
    try:
        return _engine_config(texts)
    except ConfigurationError as error:
        raise Masks(texts).mask(error) from None


def _engine_config(texts: Mapping[str, str]) -> EngineConfig:
    prefix = texts.get("topic.prefix", "").strip()
    if not prefix:
        raise ConfigurationError("topic.prefix", prefix or None, "a name", "add topic.prefix to the configuration")
    name = texts.get("name", "").strip() or prefix
    ignored = [key for key in texts if key.startswith(_KEPT_BY_US) and key not in _HISTORY_FILTERS]
    own = {key: text for key, text in texts.items() if key.startswith(_OWN)}
    handed = {key: text for key, text in texts.items() if key not in own and key not in ignored}
    engine = {key: own.get(key, default).strip() for key, (default, _, _) in _OFFERED.items()}
    for key in own:
        if key.startswith("engine.") and key not in _OFFERED:
            raise ConfigurationError("property", key, "one of " + ", ".join(_OFFERED), "correct its name")
    if not _HEAP.fullmatch(engine["engine.heap"]):
        raise ConfigurationError("engine.heap", engine["engine.heap"], "a size such as 512m or 2g", "correct it")
    parsed = _parsed(own)
    if hours := parsed["lake"].get("topic_hours"):
        raise ConfigurationError(
            "lake.topic.retention.hours", hours, "0: only topics of SQL Server have mirrors", "remove the property"
        )
    reason = "offsets and schema history are recorded in the lake, and there is one task"
    return EngineConfig(
        name,
        prefix,
        LakeSettings(**{"path": "lake"} | parsed["lake"]),
        {**handed, "name": name},
        engine["engine.heap"],
        engine["engine.log.level"],
        _number("engine.batch.rows", engine),
        _number("engine.batch.ms", engine) / 1000,
        _number("engine.watchdog.ms", engine) / 1000,
        **parsed["streaming"],
        retry_wait_s=_number("retriable.restart.connector.wait.ms", texts) / 1000,
        max_retries=_number("errors.max.retries", texts),
        metrics=MetricsSettings(**parsed["metrics"]),
        ignored=tuple((key, reason) for key in ignored),
    )


def with_defaults(config: EngineConfig, defaults: Mapping[str, str]) -> EngineConfig:
    """The settings with properties of the connector for which nothing was given."""
    return replace(config, properties={**defaults, **config.properties})


def _parsed(own: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Values of the properties that every capture has, by section and field."""
    known = {row.name for row in PROPERTIES if row.name.startswith(("lake.", "metrics."))}
    known |= {"stream.idle.timeout.ms", "stream.max.duration.ms", "sensor.wait.ms"}
    found: dict[str, dict[str, Any]] = {"lake": {}, "streaming": {}, "metrics": {}}
    options: list[tuple[str, str]] = []
    for name, text in own.items():
        if name.startswith("engine."):
            continue
        row = property_of(name)
        if row.name not in known:
            raise ConfigurationError("property", name, "one of " + ", ".join(sorted(known)), "remove it")
        if row.target:
            section, place = row.target.split(".")
            found[section][place] = row.parse(text)
        else:
            options.append(((row.holes(name) or {})["option"], text))
    found["lake"]["storage_options"] = tuple(options)
    return found


def _number(name: str, texts: Mapping[str, str]) -> int:
    default, minimum, maximum = {**_OFFERED, **_RETRIES}[name]
    text = texts.get(name, default)
    try:
        value = int(text)
    except ValueError:
        value = minimum - 1
    if not minimum <= value <= maximum:
        raise ConfigurationError(name, text, f"a whole number from {minimum} to {maximum}", "correct it")
    return value
