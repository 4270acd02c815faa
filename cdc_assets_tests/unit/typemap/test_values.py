"""Decimals and bytes as Connect writes them, against Python's own."""

import base64 as reference
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.config.settings import DecimalMode, EventSettings
from cdc_assets.typemap.decimals import nearest_double, plain_text, unscaled_bytes
from cdc_assets.typemap.mapping import map_column
from cdc_assets.typemap.textforms import base64, hexadecimal
from cdc_assets_tests.unit.envelope.building import arriving, column

WIDE = Context(prec=80)


def minimal(value: int) -> bytes:
    """Big-endian two's complement in as few bytes as hold it, as Java's BigInteger gives it."""
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return value.to_bytes(size, "big", signed=True)


DECIMALS = st.integers(0, 38).flatmap(
    lambda scale: st.tuples(
        st.just(scale), st.lists(st.none() | st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=20)
    )
)


@given(DECIMALS)
def test_unscaled_bytes_are_java_s(case: tuple[int, list[int | None]]) -> None:
    scale, values = case
    array = pa.array([v if v is None else Decimal(v).scaleb(-scale, WIDE) for v in values], pa.decimal128(38, scale))
    assert unscaled_bytes(array).to_pylist() == [None if value is None else minimal(value) for value in values]
    assert unscaled_bytes(array.slice(1)).equals(unscaled_bytes(array).slice(1))


@given(DECIMALS)
def test_plain_text_never_has_an_exponent(case: tuple[int, list[int | None]]) -> None:
    scale, values = case
    decimals = [v if v is None else Decimal(v).scaleb(-scale, WIDE) for v in values]
    array = pa.array(decimals, pa.decimal128(38, scale))
    assert plain_text(array).to_pylist() == [None if one is None else f"{one:f}" for one in decimals]


@given(DECIMALS)
def test_doubles_are_the_nearest(case: tuple[int, list[int | None]]) -> None:
    scale, values = case
    decimals = [v if v is None else Decimal(v).scaleb(-scale, WIDE) for v in values]
    array = pa.array(decimals, pa.decimal128(38, scale))
    assert nearest_double(array).to_pylist() == [None if one is None else float(one) for one in decimals]


@pytest.mark.parametrize(
    ("number", "expected"), [("123.45", "MDk="), ("-1.00", "nA=="), ("0", "AA=="), ("1.28", "AIA="), ("-1.28", "gA==")]
)
def test_check_vectors(number: str, expected: str) -> None:
    assert base64(unscaled_bytes(pa.array([Decimal(number)], pa.decimal128(10, 2)))).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("mode", "expected"), [("precise", Decimal("5.3230")), ("double", 5.323), ("string", "5.3230")]
)
def test_money_in_each_mode(mode: DecimalMode, expected: object) -> None:
    source = column("c", "smallmoney")
    mapped = map_column(source, EventSettings("shop", decimal_mode=mode))
    assert mapped is not None
    value = mapped.convert(mapped.wire.read(arriving(source, [Decimal("5.3230"), None])))
    assert value.to_pylist() == [expected, None]
    assert value.type == mapped.connect.data_type()


BINARIES = st.lists(st.none() | st.binary(max_size=40), max_size=20)


@pytest.mark.long
@given(BINARIES, st.integers(0, 3))
def test_base64_and_hexadecimal_are_the_library_s(values: list[bytes | None], start: int) -> None:
    array = pa.array(values, pa.large_binary()).slice(start)
    values = values[start:]
    encoded = [None if one is None else reference.b64encode(one).decode() for one in values]
    safe = [None if one is None else reference.urlsafe_b64encode(one).decode() for one in values]
    assert base64(array).to_pylist() == encoded
    assert base64(array, url_safe=True).to_pylist() == safe
    assert hexadecimal(array).to_pylist() == [None if one is None else one.hex() for one in values]
