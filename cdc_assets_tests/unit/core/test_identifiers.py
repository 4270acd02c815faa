"""Quoting and table names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.core.identifiers import TableId, quote
from cdc_assets.errors import InvalidValueError

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=128)


@given(names)
def test_a_quoted_name_cannot_be_left(name: str) -> None:
    inner = quote(name)[1:-1]
    assert "]" not in inner.replace("]]", "")
    assert inner.replace("]]", "]") == name


@pytest.mark.parametrize("name", ["", "a" * 129, "a\0b"])
def test_impossible_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidValueError, match="identifier"):
        quote(name)


def test_three_parts() -> None:
    table = TableId("Sales]Db", "dbo", "Order Lines")
    assert table.quoted == "[Sales]]Db].[dbo].[Order Lines]"
    assert str(TableId.of("SalesDb", "dbo.orders")) == "SalesDb.dbo.orders"


def test_a_table_name_needs_its_schema() -> None:
    with pytest.raises(InvalidValueError, match=r"schema\.table"):
        TableId.of("SalesDb", "orders")
