"""LSN and position: order, printed forms, bad input."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.errors import InvalidValueError

lsns = st.binary(min_size=10, max_size=10).map(Lsn)
positions = st.builds(Position, lsns, st.integers(0, 2**31 - 1), lsns, st.integers(1, 4))


@given(lsns)
def test_printed_form_reads_back(lsn: Lsn) -> None:
    assert Lsn.parse(str(lsn)) == lsn
    assert Lsn.parse(str(lsn).upper()) == lsn


@given(lsns, lsns)
def test_text_order_number_order_and_byte_order_agree(one: Lsn, other: Lsn) -> None:
    assert (one < other) == (str(one) < str(other)) == (int(one) < int(other))


@given(st.integers(0, 2**80 - 2))
def test_next_is_the_least_greater(value: int) -> None:
    assert int(Lsn.from_int(value).next()) == value + 1


@given(positions, positions)
def test_position_text_sorts_as_the_position(one: Position, other: Position) -> None:
    assert (one < other) == (str(one) < str(other))
    assert Position.parse(str(one)) == one


@pytest.mark.parametrize(
    "text", ["", "NULL", "0000002d:00000a18:003", "0000002d:00000a18:0003:1", "zzzzzzzz:00000a18:0003"]
)
def test_bad_text_says_what_is_expected(text: str) -> None:
    with pytest.raises(InvalidValueError, match="xxxxxxxx:xxxxxxxx:xxxx"):
        Lsn.parse(text)


def test_wrong_length_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="10 bytes"):
        Lsn(b"\0" * 9)
