"""Structures as people and files tell them."""

import json

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column, TableSchema, declared_type


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (Column("c", "nvarchar", 1, length=-1), "nvarchar(max)"),
        (Column("c", "binary", 1, length=8), "binary(8)"),
        (Column("c", "numeric", 1, precision=38, scale=0), "numeric(38, 0)"),
        (Column("c", "datetime2", 1, scale=7), "datetime2(7)"),
        (Column("c", "int", 1), "int"),
    ],
)
def test_types_read_as_declared(column: Column, expected: str) -> None:
    assert declared_type(column) == expected


def test_structure_comes_back_from_json() -> None:
    columns = (Column("id", "int", 1, nullable=False), Column("d]b.x", "varchar", 2, length=9, default="('a')"))
    schema = TableSchema(TableId("Db", "dbo", "a.b"), 7, columns, ("id",))
    assert TableSchema.from_data(json.loads(json.dumps(schema.to_data()))) == schema
