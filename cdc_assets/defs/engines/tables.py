"""Finds the tables of a capture, by topic, even while its database is away.

Three sources, and the union of them: the database itself, queried through its driver (or the answer that it gave last, see
`defs.discovery`); the lake, which holds the topics that were written; and names in `table.include.list` that are no
expressions. If a transform renames topics, only the lake has their names.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from cdc_assets.config.engine import EngineConfig
from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.connectors.engine.topics import routes, table_of, topic_of
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema
from cdc_assets.defs.discovery import discover
from cdc_assets.defs.engines.resource import ConnectorResource
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
        return {**EngineOverview(config).structures, **found}, problem
    except CdcError as error:
        return found, problem or describe_error(error)


def _named(config: EngineConfig) -> list[TableId]:
    """Tables that `table.include.list` names without an expression."""
    texts = [text.strip() for text in config.properties.get("table.include.list", "").split(",")]
    names = [text.replace("\\", "") for text in texts if _NAME.fullmatch(text)]
    return [table_of(f"{config.topic_prefix}.{name}", config) for name in names]
