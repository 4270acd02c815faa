"""Dates and times in every mode, against Python's own and the check vectors of spec debezium-sqlserver §5.4."""

from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.config.settings import EventSettings, TimeMode
from cdc_assets.core.schema import Column
from cdc_assets.typemap.mapping import map_column
from cdc_assets.typemap.moments import OutOfRangeError, iso_timestamp, nano_timestamp, zoned_timestamp
from cdc_assets.typemap.wire import OFFSET_STRUCT
from cdc_assets_tests.unit.envelope.building import arriving, column

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - SQL Server's local types have no zone
FIRST, LAST = -621_355_968_000_000_000, 2_534_023_007_999_999_999
"""Ticks of 0001-01-01 and of the last one of 9999-12-31."""


def event_value(source: Column, literal: Any, mode: TimeMode = "adaptive") -> tuple[str, str, Any]:
    """Connect type, semantic name and event value of one literal."""
    mapped = map_column(source, EventSettings("shop", time_mode=mode))
    assert mapped is not None
    converted = mapped.convert(mapped.wire.read(arriving(source, [literal, None])))
    assert converted.type == mapped.connect.data_type()
    assert converted[1].as_py() is None
    return mapped.connect.kind, mapped.connect.name.rpartition(".")[2], converted[0].as_py()


DATE = column("c", "date")
TIMES = {p: column("c", "time", scale=p) for p in (2, 4, 7)}
DATETIME2 = {p: column("c", "datetime2", scale=p) for p in (0, 3, 6, 7)}
ZONED = column("c", "datetimeoffset", scale=7)


@pytest.mark.parametrize(
    ("source", "literal", "expected"),
    [
        (DATE, date(2018, 7, 13), ("int32", "Date", 17725)),
        (TIMES[2], "10:23:45.68", ("int32", "Time", 37425680)),
        (TIMES[4], "10:23:45.6789", ("int64", "MicroTime", 37425678900)),
        (TIMES[7], "10:23:45.6789012", ("int64", "NanoTime", 37425678901200)),
        (DATETIME2[7], "2018-07-13T11:23:45.34", ("int64", "NanoTimestamp", 1531481025340000000)),
        (DATETIME2[3], "2018-07-13T11:23:45.340", ("int64", "Timestamp", 1531481025340)),
        (column("c", "datetime"), "2018-07-13T13:23:45.780", ("int64", "Timestamp", 1531488225780)),
        (column("c", "smalldatetime"), "2018-07-13T14:24:00", ("int64", "Timestamp", 1531491840000)),
        (ZONED, "2018-07-13T12:23:45.456+11:00", ("string", "ZonedTimestamp", "2018-07-13T12:23:45.456+11:00")),
        (DATETIME2[0], "0001-01-01T00:00:00", ("int64", "Timestamp", -62135596800000)),
        (DATETIME2[3], "1969-12-31T23:59:59.999", ("int64", "Timestamp", -1)),
        (ZONED, "1969-12-31T23:59:59.9999999-05:30", ("string", "ZonedTimestamp", "1969-12-31T23:59:59.9999999-05:30")),
        (ZONED, "0001-01-01T00:00:00.0+00:00", ("string", "ZonedTimestamp", "0001-01-01T00:00:00Z")),
    ],
)
def test_check_vectors(source: Column, literal: Any, expected: tuple[str, str, Any]) -> None:
    assert event_value(source, literal) == expected


@pytest.mark.parametrize(
    ("mode", "source", "literal", "expected"),
    [
        ("adaptive_time_microseconds", TIMES[2], "10:23:45.68", ("int64", "MicroTime", 37425680000)),
        ("adaptive_time_microseconds", TIMES[7], "10:23:45.6789012", ("int64", "MicroTime", 37425678901)),
        ("adaptive_time_microseconds", DATETIME2[7], "2018-07-13T11:23:45.34", ("int64", "NanoTimestamp", 1531481025340000000)),
        ("microseconds", TIMES[2], "10:23:45.68", ("int64", "MicroTime", 37425680000)),
        ("microseconds", DATETIME2[7], "1969-12-31T23:59:59.9999999", ("int64", "MicroTimestamp", -1)),
        ("nanoseconds", TIMES[2], "10:23:45.68", ("int64", "NanoTime", 37425680000000)),
        ("nanoseconds", DATETIME2[3], "2018-07-13T11:23:45.340", ("int64", "NanoTimestamp", 1531481025340000000)),
        ("connect", DATE, date(1, 1, 1), ("int32", "Date", date(1, 1, 1))),
        ("connect", TIMES[7], "23:59:59.9999999", ("int32", "Time", 86399999)),
        ("connect", DATETIME2[7], "1969-12-31T23:59:59.9999999", ("int64", "Timestamp", EPOCH - timedelta(milliseconds=1))),
        ("isostring", DATE, date(2018, 7, 13), ("string", "IsoDate", "2018-07-13Z")),
        ("isostring", TIMES[2], "10:23:45.68", ("string", "IsoTime", "10:23:45.68Z")),
        ("isostring", TIMES[7], "00:00:00.0", ("string", "IsoTime", "00:00:00Z")),
        ("isostring", DATETIME2[7], "0001-01-01T00:00:00.0000001", ("string", "IsoTimestamp", "0001-01-01T00:00:00.0000001Z")),
        ("structured", DATE, date(9999, 12, 31), ("struct", "StructuredDate", {"year": 9999, "month": 12, "day": 31, "specialValue": None})),
        ("structured", TIMES[2], "10:23:45.68", ("struct", "StructuredTime", {"hour": 10, "minute": 23, "second": 45, "nanos": 680000000, "precision": 2})),
    ],
)  # fmt: skip
def test_other_modes(mode: TimeMode, source: Column, literal: Any, expected: tuple[str, str, Any]) -> None:
    assert event_value(source, literal, mode) == expected


def test_structured_times_with_offset_are_local_times() -> None:
    _, name, value = event_value(ZONED, "2018-07-13T12:23:45.456+11:00", "structured")
    assert name == "StructuredZonedTimestamp"
    assert value == {
        "year": 2018, "month": 7, "day": 13, "hour": 12, "minute": 23, "second": 45, "nanos": 456000000,
        "offsetSeconds": 39600, "zoneId": None, "specialValue": None, "precision": 7,
    }  # fmt: skip


TICKS = st.lists(st.none() | st.integers(FIRST, LAST), min_size=1, max_size=20)


def iso(ticks: int, zone: str) -> str:
    """What Java prints of local ticks, by Python."""
    whole, fraction = divmod(ticks, 10_000_000)
    moment = (EPOCH + timedelta(seconds=whole)).isoformat()
    return moment + (f".{fraction:07}".rstrip("0") if fraction else "") + zone


@given(TICKS)
def test_iso_text_of_any_tick(ticks: list[int | None]) -> None:
    expected = [None if tick is None else iso(tick, "Z") for tick in ticks]
    assert iso_timestamp(pa.array(ticks, pa.int64())).to_pylist() == expected


@given(TICKS, st.integers(-14 * 60, 14 * 60))
def test_zoned_text_of_any_tick_and_offset(ticks: list[int | None], minutes: int) -> None:
    day = 864_000_000_000
    inside = [None if tick is None else min(max(tick, FIRST + day), LAST - day) for tick in ticks]
    sign, size = "-" if minutes < 0 else "+", abs(minutes)
    zone = f"{sign}{size // 60:02}:{size % 60:02}" if minutes else "Z"
    values = [None if tick is None else {"ticks": tick, "minutes": minutes} for tick in inside]
    expected = [None if tick is None else iso(tick + minutes * 600_000_000, zone) for tick in inside]
    assert zoned_timestamp(pa.array(values, OFFSET_STRUCT)).to_pylist() == expected


@given(TICKS)
def test_values_that_nanoseconds_cannot_hold_are_reported(ticks: list[int | None]) -> None:
    fits = [tick if tick is not None and abs(tick) <= (2**63 - 1) // 100 else None for tick in ticks]
    nanos = [None if tick is None else tick * 100 for tick in fits]
    array = pa.array(ticks, pa.int64())
    if fits == ticks:
        assert nano_timestamp(array).to_pylist() == nanos
    else:
        with pytest.raises(OutOfRangeError) as caught:
            nano_timestamp(array)
        assert caught.value.converted.to_pylist() == nanos
        assert caught.value.count == sum(one is not None for one in ticks) - sum(one is not None for one in fits)


@given(TICKS, st.integers(0, 5))
def test_slices_are_read_from_their_own_start(ticks: list[int | None], start: int) -> None:
    array = pa.array(ticks, pa.int64())
    assert iso_timestamp(array.slice(start)).equals(iso_timestamp(array).slice(start))
