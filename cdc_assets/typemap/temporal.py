"""Event types of dates and times, by `time.precision.mode` (spec debezium-sqlserver §5.4).

| SQL type | adaptive | adaptive_time_microseconds | connect | microseconds | nanoseconds | isostring | structured |
|---|---|---|---|---|---|---|---|
| date | Date | Date | C Date | Date | Date | IsoDate | StructuredDate |
| time(0–3) | Time ms | MicroTime | C Time | MicroTime | NanoTime | IsoTime | StructuredTime |
| time(4–6) | MicroTime | MicroTime | C Time | MicroTime | NanoTime | IsoTime | StructuredTime |
| time(7) | NanoTime | MicroTime | C Time | MicroTime | NanoTime | IsoTime | StructuredTime |
| smalldatetime, datetime, datetime2(0–3) | Timestamp ms | same | C Timestamp | MicroTimestamp | NanoTimestamp | IsoTimestamp | StructuredTimestamp |
| datetime2(4–6) | MicroTimestamp | same | C Timestamp | MicroTimestamp | NanoTimestamp | IsoTimestamp | StructuredTimestamp |
| datetime2(7) | NanoTimestamp | same | C Timestamp | MicroTimestamp | NanoTimestamp | IsoTimestamp | StructuredTimestamp |
| datetimeoffset | ZonedTimestamp | = | = | = | = | = | StructuredZonedTimestamp |
"""

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from cdc_assets.config.settings import TimeMode
from cdc_assets.typemap.connect import ConnectType, semantic
from cdc_assets.typemap.moments import (
    connect_timestamp,
    days,
    floor_divide,
    iso_date,
    iso_time,
    iso_timestamp,
    multiply,
    nano_timestamp,
    zoned_timestamp,
)
from cdc_assets.typemap.structured import structured, structured_type

Convert = Callable[[pa.Array], pa.Array]

DATETIMES = ("smalldatetime", "datetime", "datetime2")
TEMPORAL = ("date", "time", *DATETIMES, "datetimeoffset")

_DEBEZIUM = "io.debezium.time."
_CONNECT = "org.apache.kafka.connect.data."

DATE = (semantic("int32", _DEBEZIUM + "Date"), days)
TIME: dict[int, tuple[ConnectType, Convert]] = {
    3: (semantic("int32", _DEBEZIUM + "Time"), partial(floor_divide, divisor=1_000_000, target=pa.int32())),
    6: (semantic("int64", _DEBEZIUM + "MicroTime"), partial(floor_divide, divisor=1000, target=pa.int64())),
    7: (semantic("int64", _DEBEZIUM + "NanoTime"), partial(multiply, factor=1)),
}
TIMESTAMP: dict[int, tuple[ConnectType, Convert]] = {
    3: (semantic("int64", _DEBEZIUM + "Timestamp"), partial(floor_divide, divisor=10_000, target=pa.int64())),
    6: (semantic("int64", _DEBEZIUM + "MicroTimestamp"), partial(floor_divide, divisor=10, target=pa.int64())),
    7: (semantic("int64", _DEBEZIUM + "NanoTimestamp"), nano_timestamp),
}
ZONED = (semantic("string", _DEBEZIUM + "ZonedTimestamp"), zoned_timestamp)

_CONNECT_FORMS: dict[str, tuple[ConnectType, Convert]] = {
    "date": (
        ConnectType("int32", _CONNECT + "Date", 1, arrow=pa.date32()),
        partial(pa.Array.cast, target_type=pa.date32()),
    ),
    "time": (ConnectType("int32", _CONNECT + "Time", 1), TIME[3][1]),
    "timestamp": (ConnectType("int64", _CONNECT + "Timestamp", 1, arrow=pa.timestamp("us")), connect_timestamp),
}
_ISO_FORMS: dict[str, tuple[ConnectType, Convert]] = {
    "date": (semantic("string", _DEBEZIUM + "IsoDate"), iso_date),
    "time": (semantic("string", _DEBEZIUM + "IsoTime"), iso_time),
    "timestamp": (semantic("string", _DEBEZIUM + "IsoTimestamp"), iso_timestamp),
}
_FIXED_STEP = {"microseconds": 6, "nanoseconds": 7}


def temporal_form(type_name: str, fraction: int, mode: TimeMode) -> tuple[ConnectType, Convert]:
    """Event type of a date or time column and the kernel that fills it.

    Args:
        type_name: one of `TEMPORAL`.
        fraction: digits of fractional seconds in the column.
        mode: `time.precision.mode`.
    """
    kind = "timestamp" if type_name in DATETIMES else type_name
    if mode == "structured":
        return _structured_form(kind, fraction)
    if kind == "datetimeoffset":
        return ZONED
    if mode == "connect":
        return _CONNECT_FORMS[kind]
    if mode == "isostring":
        return _ISO_FORMS[kind]
    if kind == "date":
        return DATE
    step = _FIXED_STEP.get(mode, 3 if fraction <= 3 else 6 if fraction <= 6 else 7)
    if kind == "time":
        return TIME[6 if mode == "adaptive_time_microseconds" else step]
    return TIMESTAMP[step]


def _structured_form(kind: str, fraction: int) -> tuple[ConnectType, Convert]:
    name = {
        "date": "StructuredDate",
        "time": "StructuredTime",
        "timestamp": "StructuredTimestamp",
        "datetimeoffset": "StructuredZonedTimestamp",
    }[kind]
    return structured_type(name), partial(structured, name=name, precision=fraction)
