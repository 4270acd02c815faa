"""Ranges become conditions that compare as the server does."""

from dataclasses import replace
from unittest.mock import Mock

import pytest

from cdc_assets.adapters.sqlserver.ranges import key_ranges
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import KeyRange
from cdc_assets.core.ranges import can_bound, fit, from_text, to_text, type_text, where
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.errors import InvalidValueError
from cdc_assets.reconcile.repair import Repair


def column(type_name: str, **more: object) -> Column:
    return Column("k]", type_name, 1, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given_column", "declared", "back"),
    [
        (column("int"), "int", "CONVERT(int, ?)"),
        (column("decimal", precision=18, scale=2), "decimal(18, 2)", "CONVERT(decimal(18, 2), ?)"),
        (column("datetime2", scale=7), "datetime2(7)", "CONVERT(datetime2(7), ?, 126)"),
        (column("nvarchar", length=40), "nvarchar(40)", "CONVERT(nvarchar(40), ?)"),
        (
            column("varchar", length=9, collation="Latin1_General_CI_AS"),
            "varchar(9)",
            "CONVERT(varchar(9), ? COLLATE Latin1_General_CI_AS)",
        ),
        (column("varbinary", length=16), "varbinary(16)", "CONVERT(varbinary(16), ?, 1)"),
        (column("timestamp"), "binary(8)", "CONVERT(binary(8), ?, 1)"),
        (column("float"), "float", "CONVERT(float, ?, 3)"),
        (column("money"), "money", "CONVERT(money, ?, 2)"),
        (column("uniqueidentifier"), "uniqueidentifier", "CONVERT(uniqueidentifier, ?)"),
    ],
)
def test_types(given_column: Column, declared: str, back: str) -> None:
    assert type_text(given_column) == declared
    assert from_text(given_column) == back
    assert can_bound(given_column)
    assert "k" in to_text(given_column, "k")


@pytest.mark.parametrize("type_name", ["xml", "sql_variant", "hierarchyid", "geography"])
def test_what_cannot_bound(type_name: str) -> None:
    assert not can_bound(column(type_name))


def test_a_collation_is_a_name() -> None:
    with pytest.raises(InvalidValueError, match="collation"):
        from_text(column("char", length=1, collation="x; DROP TABLE t"))


def schema_with(nullable: bool) -> TableSchema:
    return TableSchema(TableId("d", "dbo", "t"), 1, (column("int", nullable=nullable),), ("k]",))


@pytest.mark.parametrize(
    ("low", "high", "nullable", "condition", "parameters"),
    [
        (None, None, True, "", ()),
        (None, "5", False, "[k]]] < CONVERT(int, ?)", ("5",)),
        (None, "5", True, "([k]]] < CONVERT(int, ?) OR [k]]] IS NULL)", ("5",)),
        ("5", None, True, "[k]]] >= CONVERT(int, ?)", ("5",)),
        ("5", "9", True, "[k]]] >= CONVERT(int, ?) AND [k]]] < CONVERT(int, ?)", ("5", "9")),
    ],
)
def test_where(low: str | None, high: str | None, nullable: bool, condition: str, parameters: tuple[str, ...]) -> None:
    schema, span = schema_with(nullable), KeyRange("k]", low, high)
    assert where(schema, span) == (condition, parameters)
    # rows that were compared are those that a repair reads again
    repaired = Repair(schema, schema.columns, (), (span,)).condition
    assert repaired == (f"({condition.replace('?', 'N{!r}').format(*parameters)})" if condition else "")


@pytest.mark.parametrize(
    ("given_range", "fits"),
    [
        (KeyRange("k]", None, "5", "int"), True),
        (KeyRange("k]", None, "5", "varchar(9) Latin1_General_CI_AS"), False),
        (KeyRange("former", None, "5", "int"), False),
        (KeyRange(None, None, None), False),
    ],
)
def test_ranges_fit_the_key_for_which_they_were_made(given_range: KeyRange, fits: bool) -> None:
    assert fit([given_range], schema_with(False)) is fits
    assert not fit([], schema_with(False))


def test_ranges_of_a_table_without_a_key_fit_while_it_has_none() -> None:
    without = replace(schema_with(False), key=())
    assert fit([KeyRange(None, None, None)], without)
    assert not fit([KeyRange("k]", None, None, "int")], without)


def test_where_without_key_or_with_a_strange_one() -> None:
    assert where(schema_with(True), KeyRange(None, None, None)) == ("", ())
    with pytest.raises(InvalidValueError, match="other"):
        where(schema_with(True), KeyRange("other", "1", None))


def test_half_of_a_surrogate_pair_is_no_bound() -> None:
    """It comes as a sign with another place in the order, so the range behind it might begin before its own beginning."""
    session, key = Mock(), column("nvarchar", length=40)
    session.value.side_effect = ["a", "b\ufffd", "a\ufffd"]
    found = key_ranges(session, TableSchema(TableId("d", "dbo", "t"), 1, (key,), ("k]",)), 9000, 4)
    assert [(one.low, one.high) for one in found] == [(None, "a"), ("a", None)]
