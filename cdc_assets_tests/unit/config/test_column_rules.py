"""Which columns rules hide, and what of their structure."""

from dataclasses import replace

import pytest

from cdc_assets.config.column_rules import without_hidden_defaults
from cdc_assets.config.settings import ColumnRule, EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column, TableSchema

TABLE = TableId("Sales", "dbo", "people")
COLUMNS = tuple(Column(name, "varchar", place, default=f"('{name}')") for place, name in enumerate("abc", 1))


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        (EventSettings("shop"), "abc"),
        (EventSettings("shop", column_rules=(ColumnRule("mask", (r"dbo\.people\.b",), 3),)), "ac"),
        (EventSettings("shop", column_rules=(ColumnRule("hash_v2", (r"sales\..*\.a",), 0, "SHA-256", "s"),)), "bc"),
        (EventSettings("shop", column_rules=(ColumnRule("truncate", (r"dbo\.people\.[ab]",), 1),)), "c"),
        (EventSettings("shop", column_exclude=(r"dbo\.people\.c",)), "ab"),
        (EventSettings("shop", column_include=(r"dbo\.people\.c",)), "c"),
        (EventSettings("shop", column_rules=(ColumnRule("mask", (r"dbo\.other\.b",), 3),)), "abc"),
    ],
)
def test_defaults_of_hidden_columns_are_left_out(settings: EventSettings, left: str) -> None:
    schema = TableSchema(TABLE, 7, COLUMNS, ("a",))
    found = without_hidden_defaults(schema, settings)
    assert "".join(column.name for column in found.columns if column.default) == left
    assert replace(found, columns=COLUMNS) == schema
