"""Quoting and table names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.core.identifiers import TableId, parts_of, quote
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


@given(st.lists(names.filter(str.strip), min_size=1, max_size=3))
def test_parts_of_a_dotted_name_come_back(parts: list[str]) -> None:
    assert parts_of(".".join(map(quote, parts))) == tuple(parts)
    doubled = [part.replace('"', '""') for part in parts]
    assert parts_of(" . ".join(f'"{part}"' for part in doubled)) == tuple(parts)


@pytest.mark.parametrize("name", ["", "a..b", ".a", "a.", "[a", 'a"b', "[]", "a b]", "a." + " " * 100_000 + "["])
def test_what_is_no_dotted_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidValueError, match="table name"):
        parts_of(name)
