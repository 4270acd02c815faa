"""Every form in which events hold a value gives the same natural value."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, get_args

import pyarrow as pa
import pytest

from cdc_assets.config.settings import BinaryMode, DecimalMode, EventSettings, TimeMode
from cdc_assets.core.schema import Column
from cdc_assets.mirror.natural import cast, converter, target_of
from cdc_assets.typemap.bytesforms import from_base64, from_hexadecimal
from cdc_assets.typemap.mapping import map_column
from cdc_assets.typemap.textforms import base64, hexadecimal

OFFSET = pa.struct([pa.field("ticks", pa.int64()), pa.field("minutes", pa.int32())])


def natural(column: Column, canonical: pa.Array, settings: EventSettings) -> pa.Array:
    """Values on their way through an event."""
    mapped = map_column(column, settings)
    assert mapped is not None
    field = mapped.connect.to_field(column.name)
    return converter(field, target_of(field, column))(mapped.convert(canonical))


def column(kind: str, **facts: Any) -> Column:
    return Column("c", kind, 1, **facts)


MOMENT = datetime(1969, 7, 20, 20, 17, 40, 123456)  # noqa: DTZ001 - without zone, as the column
TICKS = (MOMENT - datetime(1970, 1, 1)).days * 864_000_000_000 + (20 * 3600 + 17 * 60 + 40) * 10**7 + 1_234_567  # noqa: DTZ001


@pytest.mark.parametrize("mode", get_args(TimeMode))
def test_times(mode: TimeMode) -> None:
    settings = EventSettings("shop", time_mode=mode)
    days = pa.array([date(1969, 7, 20), None, date(9999, 12, 31)])
    assert natural(column("date"), days, settings).to_pylist() == days.to_pylist()
    ticks = pa.array([TICKS, None])
    kept = {"connect": MOMENT.replace(microsecond=123000)}.get(mode, MOMENT)
    assert natural(column("datetime2", scale=7), ticks, settings).to_pylist() == [kept, None]
    nanos = pa.array([73_060_123_456_700, None])
    shown = {
        "connect": "20:17:40.1230000",
        "adaptive_time_microseconds": "20:17:40.1234560",
        "microseconds": "20:17:40.1234560",
    }
    assert natural(column("time", scale=7), nanos, settings).to_pylist() == [shown.get(mode, "20:17:40.1234567"), None]
    zoned = pa.array([{"ticks": TICKS, "minutes": 330}, None], OFFSET)
    assert natural(column("datetimeoffset", scale=7), zoned, settings).to_pylist() == [MOMENT.replace(tzinfo=UTC), None]


def test_short_times_show_the_column_s_digits() -> None:
    nanos = pa.array([1_500_000_000, 0])
    for mode in get_args(TimeMode):
        found = natural(column("time", scale=1), nanos, EventSettings("shop", time_mode=mode))
        assert found.to_pylist() == ["00:00:01.5", "00:00:00.0"]
        assert (
            natural(column("time", scale=0), nanos, EventSettings("shop", time_mode=mode)).to_pylist()[1] == "00:00:00"
        )


@pytest.mark.parametrize("mode", get_args(DecimalMode))
def test_decimals(mode: DecimalMode) -> None:
    settings = EventSettings("shop", decimal_mode=mode)
    values = [Decimal("-1.05"), None, Decimal("99999999.99")]
    decimal = column("decimal", precision=10, scale=2)
    assert natural(decimal, pa.array(values, pa.decimal128(10, 2)), settings).to_pylist() == values
    money = [Decimal("922337203.4775"), Decimal("-0.0001")]
    assert natural(column("money"), pa.array(money, pa.decimal128(19, 4)), settings).to_pylist() == money


@pytest.mark.parametrize("mode", get_args(BinaryMode))
def test_binaries(mode: BinaryMode) -> None:
    values = [b"", b"\x00", None, b"\xfb\xff", b"abc", bytes(range(256))]
    found = natural(
        column("varbinary", length=300), pa.array(values, pa.binary()), EventSettings("shop", binary_mode=mode)
    )
    assert found.to_pylist() == values


def test_bytes_of_slices() -> None:
    values = pa.array([b"left out", b"a", None, b"ab", b"", b"abc"], pa.binary())
    for there, back in ((base64, from_base64), (hexadecimal, from_hexadecimal)):
        assert back(there(values).slice(1)).to_pylist() == values.to_pylist()[1:]
    with pytest.raises(ValueError, match="padded"):
        from_base64(pa.array(["abc"]))


def test_a_masked_or_truncated_text_stays_text() -> None:
    field = pa.field(
        "c", pa.string(), metadata={"connect.type": "string", "connect.parameters": '{"truncateLength":"4"}'}
    )
    target = target_of(field, column("decimal", precision=10, scale=2))
    assert converter(field, target)(pa.array(["1234"])).to_pylist() == ["1234"]


def test_without_a_structure_the_event_s_meaning_decides() -> None:
    micros = pa.field(
        "c", pa.int64(), metadata={"connect.type": "int64", "connect.name": "io.debezium.time.MicroTimestamp"}
    )
    assert target_of(micros, None).type == pa.timestamp("us")
    assert target_of(pa.field("c", pa.int32()), None).type == pa.int32()


def test_a_value_that_does_not_fit_another_type_is_null_alone() -> None:
    field = pa.field("c", pa.string(), metadata={"connect.type": "string"})
    assert converter(field, target_of(field, column("int")))(pa.array(["7", "seven", None])).to_pylist() == [
        7,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.array([73], pa.int32()), "date"),
        (pa.array([73], pa.int64()), "datetime2"),
        (pa.array([date(1970, 3, 15)]), "int"),
    ],
)
def test_a_number_is_no_moment(old: pa.Array, new: str) -> None:
    """Of a column that was dropped and added again."""
    assert cast(old, target_of(pa.field("c", old.type), column(new)).type).to_pylist() == [None]


@pytest.mark.parametrize(("precision", "scale"), [(38, 0), (38, 37), (20, 2), (17, 2), (9, 4), (18, 0)])
def test_a_decimal_that_a_double_rounds_up_is_none_the_less_there(precision: int, scale: int) -> None:
    """The greatest value of a column has more digits than a double; what is left of it is right to fifteen."""
    greatest = Decimal((0, (9,) * precision, -scale))
    values = pa.array([greatest, greatest.copy_negate(), None, Decimal(0)], pa.decimal128(precision, scale))
    settings = EventSettings("shop", decimal_mode="double")
    found = natural(column("decimal", precision=precision, scale=scale), values, settings).to_pylist()
    assert found[2:] == [None, 0]
    assert found[0] == found[1].copy_negate()
    assert 0 <= greatest - found[0] <= greatest * Decimal("1e-15") or precision < 15
