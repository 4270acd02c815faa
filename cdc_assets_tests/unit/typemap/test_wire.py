"""What arrives from the bulk reader is read exactly."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.core.schema import Column
from cdc_assets.kernels import as_type
from cdc_assets.typemap.wire import read_datetime2, read_datetimeoffset, wire_of
from cdc_assets_tests.unit.envelope.building import arriving, column, datetime2_bytes, datetimeoffset_bytes

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - SQL Server's local types have no zone

MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001


def ticks_of(moment: datetime, last_digit: int) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1) * 10 + last_digit


@given(st.lists(st.none() | st.tuples(MOMENTS, st.integers(0, 9)), min_size=1))
def test_datetime2_of_seven_digits(values: list[tuple[datetime, int] | None]) -> None:
    texts = [value and f"{value[0].strftime('%H:%M:%S.%f')}{value[1]}" for value in values]
    raw = [value and datetime2_bytes(f"{value[0].date()}T{text}") for value, text in zip(values, texts, strict=True)]
    expected = [value and ticks_of(*value) for value in values]
    assert read_datetime2(pa.array(raw, pa.large_binary())).to_pylist() == expected


@given(st.lists(st.none() | st.tuples(MOMENTS, st.integers(-840, 840)), min_size=1))
def test_datetimeoffset_keeps_its_offset(values: list[tuple[datetime, int] | None]) -> None:
    raw, expected = [], []
    for value in values:
        if value is None:
            raw.append(None)
            expected.append(None)
            continue
        zone = timezone(timedelta(minutes=value[1]))
        sign, size = "-" if value[1] < 0 else "+", abs(value[1])
        text = f"{value[0].date()}T{value[0].strftime('%H:%M:%S.%f')}{sign}{size // 60:02}:{size % 60:02}"
        utc = (value[0].replace(tzinfo=zone) - EPOCH.replace(tzinfo=UTC)) // timedelta(microseconds=1)
        raw.append(datetimeoffset_bytes(text))
        expected.append({"ticks": utc * 10, "minutes": value[1]})
    assert read_datetimeoffset(pa.array(raw, pa.large_binary())).to_pylist() == expected


def test_a_value_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="9 bytes"):
        read_datetime2(pa.array([b"\x07" * 8], pa.binary()))


@pytest.mark.parametrize(
    ("source", "values"),
    [
        (column("c", "tinyint"), [0, 255, None]),
        (column("c", "bit"), [True, False, None]),
        (column("c", "bigint"), [-(2**63), 2**63 - 1, None]),
        (column("c", "decimal", precision=38, scale=10), [Decimal("9" * 28 + ".9999999999"), None]),
        (column("c", "numeric"), [Decimal(10**18 - 1), None]),
        (column("c", "money"), [Decimal("-922337203685477.5808"), Decimal("922337203685477.5807")]),
        (column("c", "nvarchar", length=-1), ["\U0001f600 żółć", "", None]),
        (column("c", "uniqueidentifier"), ["0E984725-C51C-4BF4-9960-E1C80E27ABA0", None]),
        (column("c", "varbinary", length=-1), [b"\0\xff", b"", None]),
    ],
)
def test_plain_forms_keep_their_values(source: Column, values: list[Any]) -> None:
    wire = wire_of(source)
    assert wire is not None
    assert wire.read(arriving(source, values)).to_pylist() == values


@pytest.mark.parametrize("name", ["sql_variant", "geometry", "geography", "vector", "cursor"])
def test_types_that_events_cannot_hold(name: str) -> None:
    assert wire_of(column("c", name)) is None


@pytest.mark.parametrize(
    ("source", "alias", "expected"),
    [
        (column("a]b", "int"), "t", "[t].[a]]b]"),
        (column("c", "datetime2", scale=7), "", "CAST([c] AS binary(9))"),
        (column("c", "datetime2", scale=6), "", "[c]"),
        (column("c", "datetimeoffset", scale=0), "t", "CAST(CAST([t].[c] AS datetimeoffset(7)) AS binary(11))"),
    ],
)
def test_expressions(source: Column, alias: str, expected: str) -> None:
    wire = wire_of(source)
    assert wire is not None
    assert wire.expression(source.name, alias) == expected


def test_a_slice_behind_two_gigabytes_is_read() -> None:
    """The buffer is never touched before the slice, so it takes no memory."""
    offsets = np.arange(2301, dtype=np.int64) * 1_000_000
    data = np.zeros(2_300_000_000, dtype=np.uint8)
    whole = pa.Array.from_buffers(pa.large_binary(), 2300, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    assert as_type(whole.slice(2299), pa.binary()).to_pylist() == [bytes(1_000_000)]
