"""Columns of the topic tables for asset pages: what is stored, and from which column of the source each comes.

The source's asset shows the table's columns as the server declares them; those of its events are shown as readers of
the lake find them: fields of structs by their path, such as `value.after.name`, with the stored type, and the declared
one in the description.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import dagster as dg
import pyarrow as pa

from cdc_assets.config.settings import EventSettings
from cdc_assets.core.schema import TableSchema, declared_type
from cdc_assets.envelope.columns import EventColumn
from cdc_assets.envelope.plan import ConnectorIdentity, EventPlan, plan_events
from cdc_assets.errors import ConfigurationError

COLUMNS, LINEAGE = "dagster/column_schema", "dagster/column_lineage"
_FIXED = {
    "position": "order of the events: commit LSN, change LSN, and place among the events of a change",
    "headers": "headers of the event",
    "window_id": "number of the window or round that committed the event",
    "value.before": "the row before the change, with the fields of `value.after`",
    "value.source": "where the event comes from: table, LSNs, commit time, kind of snapshot",
    "value.op": "r, c, u, d or t",
    "value.transaction": "the event's place in its transaction",
}


def stored_columns(schema: TableSchema, settings: EventSettings, source: dg.AssetKey) -> Mapping[str, Any]:
    """Metadata of a topic table's columns and their origin; empty if the settings do not fit the table, which a run reports.

    Args:
        source: key of the asset that is the table on the server.
    """
    return _stored_columns(schema, schema.descriptions, settings, source)


@lru_cache(maxsize=4096)
def _stored_columns(
    schema: TableSchema, descriptions: tuple[str | None, ...], settings: EventSettings, source: dg.AssetKey
) -> Mapping[str, Any]:
    del descriptions  # part of the key: structures that differ only in them are equal
    try:
        plan = plan_events(schema, None, settings, connector=ConnectorIdentity())
    except ConfigurationError:
        return {}
    origins = dict(_origins(plan))
    lineage = {path: [dg.TableColumnDep(source, column.name)] for path, column in origins.items()}
    columns = [_column(path, field, origins.get(path), plan) for path, field in _paths(plan.topic_schema)]
    return {COLUMNS: dg.TableSchema(columns=columns), LINEAGE: dg.TableColumnLineage(deps_by_column=lineage)}


def _paths(schema: pa.Schema) -> Iterator[tuple[str, pa.Field]]:
    """Fields with their paths; those of the row itself one by one, others as a whole."""
    for field in schema:
        open_up = field.name in ("key", "value", "value.after") and pa.types.is_struct(field.type)
        if not open_up:
            yield field.name, field
            continue
        children = [part.with_name(f"{field.name}.{part.name}") for part in field.type]
        yield from _paths(pa.schema(children))


def _origins(plan: EventPlan) -> Iterator[tuple[str, EventColumn]]:
    """Paths of the fields that hold a column's value."""
    for index in plan.key_columns:
        yield f"key.{plan.columns[index].key_field.name}", plan.columns[index]
    for index in plan.value_columns:
        yield f"value.after.{plan.columns[index].field.name}", plan.columns[index]


def _column(path: str, field: pa.Field, origin: EventColumn | None, plan: EventPlan) -> dg.TableColumn:
    about = _FIXED.get(path)
    if origin is not None:
        shaped = origin.shape is not None and path.startswith("value.")
        column = origin.mapped.column
        about = declared_type(column) + (", masked or truncated" if shaped else "")
        about += f": {column.description}" if column.description else ""
    is_key = origin is not None and path.startswith("key.")
    constraints = dg.TableColumnConstraints(
        nullable=field.nullable, unique=False, other=["message key"] if is_key else []
    )
    kind = "struct" if pa.types.is_struct(field.type) else str(field.type)
    return dg.TableColumn(name=path, type=kind, description=about, constraints=constraints)
