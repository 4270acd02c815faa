"""`TimezoneConverter`: times of rows in another zone.

Times without a zone are taken for wall-clock times of that zone, and become the moment; texts with an offset show the same
moment with the zone's offset. As in Java's class, the offset is that of the wall-clock time as written in the event, in
a gap or an overlap of clocks the one before it; and null becomes a column's default.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.config.settings.transforms import TimezoneRule, TimezoneSettings
from cdc_assets.config.zones import zone_of
from cdc_assets.errors import InvalidValueError
from cdc_assets.publish.transforms.part import Column, Part, child, children, filled, is_envelope, is_valid, struct_of
from cdc_assets.typemap.connect import described

_UNITS: Final[Mapping[str, int]] = {
    "io.debezium.time.Timestamp": 1_000,
    "io.debezium.time.MicroTimestamp": 1_000_000,
    "io.debezium.time.NanoTimestamp": 1_000_000_000,
    "org.apache.kafka.connect.data.Timestamp": 1_000_000,  # as the lake holds it
}
"""Parts of a second, by semantic type."""
_EPOCHS: Final[Mapping[str, int]] = {"ts_ms": 1_000, "ts_us": 1_000_000, "ts_ns": 1_000_000_000}
_ZONED: Final = "io.debezium.time.ZonedTimestamp"
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall-clock time
_ROWS: Final = ("before", "after")
_Choice = Callable[[str], bool]


class Timezone:
    """See the module."""

    def __init__(self, settings: TimezoneSettings) -> None:
        self._settings, self._zone = settings, zone_of(settings.zone)

    def apply(self, part: Part) -> Sequence[Part]:
        """See `Transform`."""
        if not is_envelope(part.value.field) or not is_valid(part.value.array).any():
            return [part]
        choices = self._choices(part)
        if not choices:
            return [part]
        columns = [
            self._struct(column, choices[column.field.name]) if column.field.name in choices else column
            for column in children(part.value)
        ]
        value = struct_of("value", described(part.value.field), columns, ~is_valid(part.value.array))
        return [replace(part, value=value)]

    def _choices(self, part: Part) -> dict[str, _Choice]:
        """Which fields of which structs are converted."""
        rule = _rule(self._settings.rules, part.topic, _table(part.value))
        if rule is None:
            chosen = not self._settings.rules or self._settings.excludes
            return dict.fromkeys(_ROWS, _all) if chosen else {}
        if not rule.fields:
            return {} if self._settings.excludes else dict.fromkeys(_ROWS, _all)
        named: dict[str, set[str]] = {"before": set(), "after": set(), "source": set()}
        for field in rule.fields:
            struct, _, name = field.partition(".")
            for own in (struct,) if struct in named and name else _ROWS:
                named[own].add(name if struct in named and name else field)
        if not named["source"]:
            del named["source"]
        return {struct: self._named(names) for struct, names in named.items()}

    def _named(self, names: set[str]) -> _Choice:
        return lambda field: (field in names) != self._settings.excludes

    def _struct(self, struct: Column, choice: _Choice) -> Column:
        if not pa.types.is_struct(struct.field.type):
            return struct
        is_source = struct.field.name == "source"
        columns = [
            column
            if not choice(column.field.name)
            else self._moved(column)
            if is_source and column.field.name in _EPOCHS
            else self._converted(column)
            for column in children(struct)
        ]
        return struct_of(struct.field.name, described(struct.field), columns, ~is_valid(struct.array))

    def _converted(self, column: Column) -> Column:
        name = described(column.field).name
        array = filled(column).array if name == _ZONED or name in _UNITS else column.array
        if array.null_count == len(array):
            return column
        if name == _ZONED:
            return Column(
                column.field, pa.array([text and self._zoned(text) for text in array.to_pylist()], array.type)
            )
        if name in _UNITS:
            return Column(column.field, self._shifted(array, _UNITS[name]))
        return column

    def _shifted(self, array: pa.Array, unit: int) -> pa.Array:
        numbers = array.cast(pa.int64()).fill_null(0).to_numpy()
        seconds, places = np.unique(np.floor_divide(numbers, unit), return_inverse=True)
        offsets = np.array([self._offset(second) for second in seconds.tolist()], np.int64)
        made = pa.array(numbers - offsets[places] * unit, mask=~is_valid(array))
        return made.cast(array.type)

    def _moved(self, column: Column) -> Column:
        """Times of the source block, as if they were wall-clock times of the zone."""
        unit, array = _EPOCHS[column.field.name], column.array
        numbers = array.fill_null(0).to_numpy()
        seconds, places = np.unique(np.floor_divide(numbers, unit), return_inverse=True)
        walls = (datetime.fromtimestamp(second, self._zone) for second in seconds.tolist())
        offsets = np.array([_seconds_of(wall) for wall in walls], np.int64)
        return Column(column.field, pa.array(numbers + offsets[places] * unit, array.type, mask=~is_valid(array)))

    def _offset(self, second: int) -> int:
        """Seconds that the zone is ahead at a wall-clock time."""
        return _seconds(self._zone, _EPOCH + timedelta(seconds=second))

    def _zoned(self, text: str) -> str:
        whole, digits, sign = _pieces_of(text)
        try:
            moment = datetime.fromisoformat(whole + sign)
            offset = _seconds(self._zone, moment.replace(tzinfo=None))
            shown = (moment.astimezone(UTC).replace(tzinfo=None) + timedelta(seconds=offset)).isoformat()
        except (ValueError, OverflowError) as error:
            raise InvalidValueError(
                "time with offset", text, f"a time between the years 1 and 9999 ({error})", "correct it"
            ) from None
        fraction = digits.rstrip("0")
        return shown + ("." + fraction if fraction else "") + _shown_offset(offset)


def _all(field: str) -> bool:
    del field
    return True


def _rule(rules: Sequence[TimezoneRule], topic: str, table: str) -> TimezoneRule | None:
    """The rule for events of a table; rules for topics come before those for tables, and those for either come last."""
    for kind, name in (("topic", topic), ("source", table), ("", topic), ("", table)):
        for rule in rules:
            if (rule.kind, rule.name) == (kind, name):
                return rule
    return None


def _table(value: Column) -> str:
    source = child(value, "source")
    names = child(source, "table") if source is not None else None
    found = [] if names is None else pc.unique(names.array.drop_null()).to_pylist()
    return str(found[0]) if found else ""


def _seconds(zone: tzinfo, wall: datetime) -> int:
    return _seconds_of(wall.replace(tzinfo=zone))


def _seconds_of(moment: datetime) -> int:
    found = moment.utcoffset()
    return 0 if found is None else round(found.total_seconds())


def _pieces_of(text: str) -> tuple[str, str, str]:
    """Date and time to the second, digits of its fraction, and its offset."""
    start = 19
    end = start
    if text[start : start + 1] == ".":
        end += 1
        while text[end : end + 1].isdigit():
            end += 1
    return text[:start], text[start + 1 : end], "+00:00" if text[end:] == "Z" else text[end:]


def _shown_offset(seconds: int) -> str:
    if not seconds:
        return "Z"
    minutes, rest = divmod(abs(seconds), 60)
    shown = f"{'-' if seconds < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"
    return f"{shown}:{rest:02}" if rest else shown
