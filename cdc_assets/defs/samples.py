"""A sample of rows on the pages of a table's events and of its mirror, as a Markdown table.

*What may be seen.* Only columns that events hold by the settings of now, and in rows only: message keys, and a mirror's columns of
keys, hold values that rows show masked. A column with a rule that masks, hashes or truncates is shown as masked, whatever is
stored, since older rows may be from before the rule.

*Cost.* A few rows of one file (`lake.sample`); values and columns are cut, so that an event of Dagster's storage stays small.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import dagster as dg

from cdc_assets.config.settings import CaptureConfig, EventSettings
from cdc_assets.core.schema import TableSchema
from cdc_assets.defs.keys import Role
from cdc_assets.defs.markdown import markdown_table
from cdc_assets.envelope.plan import ConnectorIdentity, plan_events
from cdc_assets.envelope.rules import MASKED
from cdc_assets.errors import CdcError, ConfigurationError
from cdc_assets.lake.sample import newest_rows
from cdc_assets.lake.tables import DeltaTables
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror.delta import current_directory

SAMPLE = "sample"
"""Metadata key."""
_MAX_COLUMNS, _MAX_CHARACTERS = 20, 40
_ABSENT = "…"
_OPERATIONS: Mapping[Role, frozenset[str]] = {"snapshot": frozenset("r"), "changes": frozenset("cudt")}


def sample_of_events(
    config: CaptureConfig, tables: TopicTables, topic: str, schema: TableSchema, role: Role
) -> dict[str, Any]:
    """Metadata with the first events of a topic's newest file; empty if it is off, or there are none of that role."""
    columns = _shown(schema, config.events)
    paths = [
        "value.op",
        *(f"value.{image}.{name}" for image in ("after", "before") for _, name, hide in columns if not hide),
    ]

    def wanted(row: Mapping[str, Any]) -> bool:
        return bool(row["value"]) and row["value"]["op"] in _OPERATIONS[role]

    try:
        newest = (tables.generations(topic) or [topic])[-1]
        events = [row["value"] for row in newest_rows(tables, newest, paths, config.lake.sample_rows, wanted)]
    except CdcError:
        return {}
    rows = [event.get("after") or event.get("before") or {} for event in events]
    heads = [event["op"] for event in events]
    return _metadata(["op", *(shown for shown, _, _ in columns)], [
        [op, *(MASKED if hide else _text(row, name) for _, name, hide in columns)]
        for op, row in zip(heads, rows, strict=True)
    ])  # fmt: skip


def sample_of_mirror(config: CaptureConfig, tables: DeltaTables, topic: str, schema: TableSchema) -> dict[str, Any]:
    """Metadata with the first rows of a mirror's newest file; empty if it is off, or there are none."""
    columns = _shown(schema, config.events)
    names = [shown for shown, _, hide in columns if not hide]
    try:
        rows = newest_rows(tables, current_directory(topic), names, config.lake.sample_rows)
    except CdcError:
        return {}
    return _metadata([shown for shown, _, _ in columns], [
        [MASKED if hide else _text(row, shown) for shown, _, hide in columns] for row in rows
    ])  # fmt: skip


@lru_cache(maxsize=4096)
def _shown(schema: TableSchema, settings: EventSettings) -> tuple[tuple[str, str, bool], ...]:
    """Name of each column that is shown, name of its field in events, and whether its values are hidden."""
    try:
        plan = plan_events(schema, None, settings, connector=ConnectorIdentity())
    except ConfigurationError:
        return ()
    columns = [plan.columns[index] for index in plan.value_columns]
    return tuple(
        (column.mapped.column.name, column.field.name, column.shape is not None) for column in columns[:_MAX_COLUMNS]
    )


def _text(row: Mapping[str, Any], name: str) -> str:
    if name not in row:
        return _ABSENT
    value = row[name]
    if value is None:
        return ""
    text = "0x" + value[:_MAX_CHARACTERS].hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + _ABSENT


def _metadata(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, Any]:
    return {SAMPLE: dg.MetadataValue.md(markdown_table(heads, rows))} if rows else {}
