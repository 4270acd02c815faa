"""Columns on the pages of a table's events: as they are stored, with what each comes from."""

from dataclasses import replace

import dagster as dg

from cdc_assets.config.load import config_of
from cdc_assets.config.settings import EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.defs.columns import COLUMNS, LINEAGE, stored_columns
from cdc_assets.defs.translator import CdcTranslator, column_schema

SOURCE = dg.AssetKey(["shop", "D", "dbo", "people.source"])
PEOPLE = TableSchema(
    TableId("D", "dbo", "people"),
    7,
    (Column("id", "int", 1, nullable=False), Column("name", "nvarchar", 2, length=80), Column("born", "date", 3)),
    ("id",),
)


def settings(**properties: str) -> EventSettings:
    """Settings of events with these properties."""
    server = {"database.hostname": "h", "database.user": "u", "database.names": "D", "lake.path": "lake"}
    return config_of(server | {"topic.prefix": "shop"} | properties).events


def test_stored_columns_are_told_with_their_paths_types_and_origins() -> None:
    facts = stored_columns(PEOPLE, settings(), SOURCE)
    columns = {column.name: column for column in facts[COLUMNS].columns}
    assert columns["value.after.born"].type == "int32"
    assert columns["value.after.born"].description == "date"
    assert columns["value.op"].type == "string"
    assert columns["key.id"].constraints.other == ["message key"]
    assert {path: [dep.column_name for dep in deps] for path, deps in facts[LINEAGE].deps_by_column.items()} == {
        "key.id": ["id"],
        "value.after.id": ["id"],
        "value.after.name": ["name"],
        "value.after.born": ["born"],
    }
    assert set(facts[LINEAGE].deps_by_column) < set(columns)


def test_descriptions_of_the_source_are_told_of_both() -> None:
    stored_columns(PEOPLE, settings(), SOURCE)
    described = PEOPLE.described({0: "Who orders", 3: "Day of birth"})
    stored = {
        column.name: column.description for column in stored_columns(described, settings(), SOURCE)[COLUMNS].columns
    }
    assert stored["value.after.born"] == "date: Day of birth"
    assert [column.description for column in column_schema(described).columns] == [None, None, "Day of birth"]
    assert column_schema(PEOPLE).columns[2].description is None
    assert "Who orders" in CdcTranslator().description(described, "changes")


def test_columns_that_are_left_out_or_masked_are_told_so() -> None:
    facts = stored_columns(
        PEOPLE,
        settings(**{"column.exclude.list": "dbo.people.born", "column.mask.with.5.chars": "dbo.people.name"}),
        SOURCE,
    )
    columns = {column.name: column.description for column in facts[COLUMNS].columns}
    assert columns["value.after.name"] == "nvarchar(80), masked or truncated"
    assert "value.after.born" not in columns


def test_settings_that_do_not_fit_the_table_are_left_to_the_run() -> None:
    twice = replace(PEOPLE, columns=(*PEOPLE.columns, Column("NAME", "int", 4)))
    assert stored_columns(twice, settings(), SOURCE) == {}
