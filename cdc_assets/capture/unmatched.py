"""Expressions and names in lists of the settings that match nothing, such as misspelt ones, whose effect nobody would miss.

Each is compared with what its list is about: tables, their columns, capture instances, topics. What matches later is no longer named. Of
transforms only those are compared that see the topics' own names: those up to the first that gives others.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from cdc_assets.config.column_rules import PROPERTY_OF_RULE
from cdc_assets.config.filters import Names, TableFilter
from cdc_assets.config.kinds import key_expressions
from cdc_assets.config.patterns import Patience, PatternError, matches
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.config.settings.transforms import LogicalRouteSettings, RouteSettings, Step, TimezoneSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.kept import kept
from cdc_assets.core.ports import Source
from cdc_assets.core.schema import TableSchema
from cdc_assets.envelope.naming import topic_name
from cdc_assets.envelope.rules import source_types
from cdc_assets.errors import ConfigurationError
from cdc_assets.lake.system_topics import system_topics


@dataclass(frozen=True, slots=True)
class Unmatched:
    """An expression or a name that matches nothing.

    Args:
        property_name: the list that holds it.
        what: what it should match.
    """

    property_name: str
    pattern: str
    what: str

    def __str__(self) -> str:
        return f"{self.property_name}: {self.pattern} matches no {self.what}. Next: {self.remedy}"

    @property
    def remedy(self) -> str:
        """What to do."""
        return f"correct it, or remove it from {self.property_name}"


_CLASSES = r"\w, \d, \s and letter case are those of ASCII in Java's expressions"

Missing = Callable[[str, Iterable[str], Iterable[str], str], Iterable[Unmatched]]
"""Reports the expressions of a list (its property, they themselves) that match none of some names, and what these names are of."""


@dataclass(frozen=True, slots=True)
class Existing:
    """What there is on the server.

    Args:
        tables: all user tables of all databases.
        instances: names of all capture instances; needed only if `lists_instances`.
        structures: of captured tables; iterated only for lists of columns.
    """

    tables: Sequence[TableId]
    instances: Sequence[str]
    structures: Iterable[TableSchema]


class Structures:
    """Structures of captured tables, iterated only as far as needed: as recorded, then as on the server, queried once.

    Args:
        recorded: returns the recorded ones.
        captured: tables about which the server is queried.
    """

    def __init__(
        self, recorded: Callable[[], Iterable[TableSchema]], source: Source, captured: Sequence[TableId]
    ) -> None:
        self._recorded, self._source, self._captured = recorded, source, captured

    def __iter__(self) -> Iterator[TableSchema]:
        yield from self._recorded()
        yield from self._present

    @kept
    def _present(self) -> Sequence[TableSchema]:
        return list(self._source.table_schemas(self._captured).values())


def find_unmatched(config: CaptureConfig, existing: Existing, patience: Patience | None = None) -> list[Unmatched]:
    """What matches nothing, list by list.

    Args:
        patience: limit after which no further expression is compared; None compares all.
    """
    missing = partial(_missing, patience)
    captured = TableFilter(config.filters).select(existing.tables)
    topics = [*_topics(captured, config), *system_topics(config).values()]
    return [
        *_of_filters(config, existing, missing),
        *_of_captured_tables(config, captured, missing),
        *_of_columns(config, existing.structures, missing),
        *_of_transforms(config.kafka.transforms, topics, {table.table for table in captured}),
    ]


def lists_instances(config: CaptureConfig) -> bool:
    """Whether a list of the settings names capture instances."""
    return bool(config.streaming.instance_include or config.streaming.instance_exclude)


def _topics(tables: Iterable[TableId], config: CaptureConfig) -> Iterator[str]:
    """Topics of tables; one that can have none is refused where tables are selected, and reported there."""
    for table in tables:
        with suppress(ConfigurationError):
            yield topic_name(table, config.events)


def _of_filters(config: CaptureConfig, existing: Existing, missing: Missing) -> Iterator[Unmatched]:
    filters, streaming = config.filters, config.streaming
    schemas = sorted({table.schema for table in existing.tables})
    yield from missing("schema.include.list", filters.schema_include, schemas, "schema that has a table")
    yield from missing("schema.exclude.list", filters.schema_exclude, schemas, "schema that has a table")
    in_schemas = TableFilter(dataclasses.replace(filters, table_include=(), table_exclude=()))
    tables = [table.within_database for table in existing.tables if in_schemas.accepts(table)]
    what = "table of these schemas" if filters.schema_include or filters.schema_exclude else "table"
    yield from missing("table.include.list", filters.table_include, tables, what)
    yield from missing("table.exclude.list", filters.table_exclude, tables, what)
    for name, patterns in (("include", streaming.instance_include), ("exclude", streaming.instance_exclude)):
        property_name = f"internal.capture.instance.{name}.list"
        yield from missing(property_name, patterns, existing.instances, "capture instance")
    known = {str(table).lower() for table in existing.tables}
    for table in config.signals.collections:
        if str(table).lower() not in known:
            yield Unmatched("signal.data.collection", str(table), "table")


def _of_captured_tables(config: CaptureConfig, captured: Sequence[TableId], missing: Missing) -> Iterator[Unmatched]:
    snapshot, what = config.snapshot, "captured table"
    names = [name for table in captured for name in (table.within_database, str(table))]
    yield from missing("snapshot.include.collection.list", snapshot.include, names, what)
    yield from missing("mirror.table.include.list", config.mirror.include, names, what)
    known = {name.lower() for name in names}
    for property_name, tables in (
        ("snapshot.select.statement.overrides", snapshot.overrides),
        ("snapshot.max.threads.multiplier", snapshot.multipliers),
    ):
        yield from (Unmatched(property_name, name, what) for name, _ in tables if name.lower() not in known)


def _of_columns(config: CaptureConfig, structures: Iterable[TableSchema], missing: Missing) -> Iterator[Unmatched]:
    events = config.events
    lists = [
        ("column.include.list", events.column_include),
        ("column.exclude.list", events.column_exclude),
        ("column.propagate.source.type", events.propagate_columns),
        *((PROPERTY_OF_RULE[rule.kind], rule.columns) for rule in events.column_rules),
    ]
    columns = _Parts(structures, lambda schema: (column.name for column in schema.columns))
    types = _Parts(structures, source_types)
    for property_name, patterns in lists:
        yield from missing(property_name, patterns, columns, "column of a captured table")
    yield from missing("datatype.propagate.source.type", events.propagate_types, types, "type of a captured column")
    for shown, expressions in key_expressions(events.message_key_columns):
        if len(list(missing("message.key.columns", expressions, columns, ""))) == len(expressions):
            yield Unmatched("message.key.columns", shown, "column of a captured table")


@dataclass(frozen=True, slots=True)
class _Parts:
    """Names of parts of tables, `schema.table.part` and `db.schema.table.part`, found again by each iteration."""

    structures: Iterable[TableSchema]
    of: Callable[[TableSchema], Iterable[str]]

    def __iter__(self) -> Iterator[str]:
        for schema in self.structures:
            for part in self.of(schema):
                yield f"{schema.table.within_database}.{part}"
                yield f"{schema.table}.{part}"


def _of_transforms(steps: Sequence[Step], topics: Sequence[str], tables: Set[str]) -> Iterator[Unmatched]:
    for step in steps:
        name, settings = f"transforms.{step.name}", step.settings
        if step.predicate is not None and step.predicate.pattern:
            yield from _without_topic(f"{name}.predicate", step.predicate.pattern, topics)
        if isinstance(settings, TimezoneSettings):
            known = {"topic": set(topics), "source": tables, "": {*topics, *tables}}
            for rule in settings.rules:
                if rule.name not in known[rule.kind]:
                    yield Unmatched(
                        f"{name}.{'exclude' if settings.excludes else 'include'}.list",
                        rule.name,
                        "topic or captured table",
                    )
        if isinstance(settings, RouteSettings | LogicalRouteSettings):
            route = settings if isinstance(settings, RouteSettings) else settings.topics
            yield from _without_topic(name, route.pattern, topics)
        if not isinstance(settings, TimezoneSettings):
            return


def _without_topic(property_name: str, pattern: str, topics: Sequence[str]) -> Iterator[Unmatched]:
    with suppress(PatternError):  # an error of the publisher
        if not any(matches(pattern, topic) for topic in topics):
            yield Unmatched(property_name, pattern, "topic")


def _missing(
    patience: Patience | None, property_name: str, patterns: Iterable[str], names: Iterable[str], what: str
) -> Iterator[Unmatched]:
    given = Names(property_name, tuple(patterns))
    for pattern in given.unmatched(names, patience):
        yield Unmatched(property_name, pattern, what)
    for pattern, name in given.narrower(names, patience):
        yield Unmatched(property_name, pattern, f"{name}, because {_CLASSES}")
