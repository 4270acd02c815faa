"""Finds the tables of a capture, by topic, even while its database is away.

Three sources, and the union of them: the database itself, queried through its driver (or the answer that it gave last, see
`defs.discovery`); the lake, which holds the topics that were written; and names in `table.include.list` that are no
expressions. If a transform renames topics, only the lake has their names.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from cdc_assets.config.engine import EngineConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.defs.discovery import discover
from cdc_assets.defs.engines.resource import ConnectorResource
from cdc_assets.engine.overview import EngineOverview
from cdc_assets.engine.topics import routes, table_of, topic_of
from cdc_assets.errors import CdcError, describe_error

_NAME = re.compile(r"[\w$-]+\\?\.[\w$-]+", re.ASCII)


def find_tables(resource: ConnectorResource, remembered: Path) -> tuple[dict[str, TableSchema], str]:
    """Structures by topic, and why the database could not be queried; empty if it could.

    Args:
        remembered: path of the file with the last answer.
    """
    config = resource.settings()
    found: dict[str, TableSchema] = {}
    problem = ""
    if not routes(config):

        def ask() -> Sequence[TableSchema]:
            with resource.probe() as probe:
                return probe.tables()

        discovery = discover(ask, remembered)
        problem = discovery.problem
        named = [TableSchema(table, 0, ()) for table in _named(config)] if problem else []
        found = {topic_of(schema.table, config): schema for schema in [*named, *discovery.tables]}
    try:
        return {**_in_lake(EngineOverview(config)), **found}, problem
    except CdcError as error:
        return found, problem or describe_error(error)


def _named(config: EngineConfig) -> list[TableId]:
    """Tables that `table.include.list` names without an expression."""
    texts = [text.strip() for text in config.properties.get("table.include.list", "").split(",")]
    names = [text.replace("\\", "") for text in texts if _NAME.fullmatch(text)]
    return [table_of(f"{config.topic_prefix}.{name}", config) for name in names]


def _in_lake(overview: EngineOverview) -> Mapping[str, TableSchema]:
    """Tables of the topics in the lake, with the columns of their events."""
    found = {}
    for topic in overview.topics:
        if not overview.lake.generations(topic.topic):
            continue
        handle = overview.lake.open(overview.lake.generations(topic.topic)[-1])
        schema = pa.schema(handle.schema().to_arrow()) if handle else pa.schema([])
        found[topic.topic] = TableSchema(topic.table, 0, _columns(schema), _fields(schema, "key"))
    return found


def _columns(schema: pa.Schema) -> tuple[Column, ...]:
    if schema.get_field_index("value") < 0 or not pa.types.is_struct(schema.field("value").type):
        return ()
    value = schema.field("value").type
    if value.get_field_index("after") < 0 or not pa.types.is_struct(value.field("after").type):
        return ()
    return tuple(
        Column(field.name, str(field.type), number, field.nullable)
        for number, field in enumerate(value.field("after").type, 1)
    )


def _fields(schema: pa.Schema, name: str) -> tuple[str, ...]:
    if schema.get_field_index(name) < 0 or not pa.types.is_struct(schema.field(name).type):
        return ()
    return tuple(field.name for field in schema.field(name).type)
