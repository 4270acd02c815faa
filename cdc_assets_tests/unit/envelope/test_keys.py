"""Keys of events tell rows apart exactly as the server does, or it is said that they do not."""

from decimal import Decimal
from typing import Any, get_args

import pytest

from cdc_assets.config.settings import EventSettings, FailureMode, TimeMode
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import Column
from cdc_assets.envelope.reads import ReadContext, build_reads
from cdc_assets.errors import InvalidValueError
from cdc_assets.typemap.exact import coarse_by, exact_setting
from cdc_assets_tests.unit.envelope.building import column, moment, plan_of, table_batch


def keys_of(key: Column, values: list[Any], **settings: Any) -> tuple[list[Any], str]:
    """Keys of rows, and the property that makes them coarser than the server's."""
    plan = plan_of("t", [key], ["id"], EventSettings("shop", **settings))
    [events] = build_reads(
        plan, iter([table_batch(plan, [[value] for value in values])]), ReadContext(1, Lsn.from_int(1), moment(0))
    )
    return events.column("key").to_pylist(), coarse_by(key, plan.columns[0].key_field)


@pytest.mark.parametrize("mode", get_args(FailureMode))
@pytest.mark.parametrize("time_mode", ["adaptive", "nanoseconds"])
def test_a_key_that_fits_no_event_is_never_null(mode: FailureMode, time_mode: TimeMode) -> None:
    columns = [column("id", "datetime2", nullable=False, scale=7), column("until", "datetime2", scale=7)]
    plan = plan_of("t", columns, ["id"], EventSettings("shop", conversion_failure=mode, time_mode=time_mode))
    rows = [["2020-01-01T00:00:00", None], ["9999-12-31T00:00:00", None]]
    with pytest.raises(
        InvalidValueError, match=r"key column TestDB\.dbo\.t\.id.*9999-12-31.*set time.precision.mode=isostring"
    ):
        list(build_reads(plan, iter([table_batch(plan, rows)]), ReadContext(1, Lsn.from_int(1), moment(0))))


def test_a_key_that_filters_leave_out_of_values_is_not_told() -> None:
    columns = [column("id", "datetime2", nullable=False, scale=7), column("n", "int")]
    plan = plan_of("t", columns, ["id"], EventSettings("shop", column_exclude=(r"dbo\.t\.id",)))
    with pytest.raises(InvalidValueError, match=r"key column TestDB\.dbo\.t\.id '\(masked\)'"):
        list(
            build_reads(
                plan,
                iter([table_batch(plan, [["9999-12-31T00:00:00", 1]])]),
                ReadContext(1, Lsn.from_int(1), moment(0)),
            )
        )


def test_a_message_key_is_no_exception() -> None:
    columns = [column("id", "int", nullable=False), column("until", "datetime2", scale=7)]
    plan = plan_of("t", columns, ["id"], EventSettings("shop", message_key_columns=("dbo.t:id,until",)))
    with pytest.raises(InvalidValueError, match="key column"):
        list(
            build_reads(
                plan,
                iter([table_batch(plan, [[1, "9999-12-31T00:00:00"]])]),
                ReadContext(1, Lsn.from_int(1), moment(0)),
            )
        )


PAIRS = [
    *((kind, scale) for kind in ("time", "datetime2", "datetimeoffset") for scale in range(8)),
    ("datetime", None),
    ("smalldatetime", None),
    ("date", None),
]


@pytest.mark.parametrize("mode", get_args(TimeMode))
@pytest.mark.parametrize(("kind", "scale"), PAIRS)
def test_moments_that_differ_in_their_last_digit_have_keys_of_their_own_or_it_is_said(
    mode: TimeMode, kind: str, scale: int | None
) -> None:
    key = column("id", kind, nullable=False, scale=scale)
    digits = {"datetime": 3}.get(kind, scale or 0)
    day = {"time": "", "datetimeoffset": "2020-02-03T"}.get(kind, "2020-02-03T")
    zone = "+01:30" if kind == "datetimeoffset" else ""
    clocks = [f"10:20:30.{number:0{digits}d}" if digits else f"10:20:3{number}" for number in (1, 2)]
    values: list[Any] = [f"{day}{clock}{zone}" for clock in clocks]
    if kind == "date":
        values = [moment(0).date(), moment(86_400_000_000).date()]
    found, setting = keys_of(key, values, time_mode=mode)
    assert (found[0] == found[1]) == (setting == "time.precision.mode")
    assert setting in ("", "time.precision.mode")
    if setting:
        name, _, value = exact_setting(key).partition("=")
        assert name == setting
        found, setting = keys_of(key, values, time_mode=value)
        assert found[0] != found[1]
        assert not setting


@pytest.mark.parametrize("mode", ["precise", "double", "string"])
@pytest.mark.parametrize("precision", [1, 15, 16, 17, 18, 38])
def test_numbers_that_differ_in_their_last_digit(mode: str, precision: int) -> None:
    key = column("id", "decimal", nullable=False, precision=precision, scale=0)
    greatest = 10**precision - 1
    found, setting = keys_of(key, [Decimal(greatest), Decimal(greatest - 1)], decimal_mode=mode)
    assert setting == ("decimal.handling.mode" if mode == "double" and precision > 15 else "")
    assert setting or found[0] != found[1]


def test_an_operator_is_warned_of_a_shortened_key() -> None:
    key = column("id", "time", nullable=False, scale=7)
    plan = plan_of("t", [key], ["id"], EventSettings("shop", time_mode="adaptive_time_microseconds"))
    assert any("every digit of column 'id'" in warning for warning in plan.warnings)
    assert not plan_of("t", [key], ["id"]).warnings
