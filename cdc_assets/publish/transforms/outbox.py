"""`EventRouter`: rows that were inserted into an outbox table as messages of their own.

| row | what comes out |
|---|---|
| inserted | a record: key, payload, topic and headers from its columns |
| updated | nothing, or the end of its topic (`table.op.invalid.behavior`) |
| deleted, and tombstones | nothing |
| what is no change event | itself |

Getters of Connect's structs put the default of a column in place of null, so this does, too. The name of a structure with
fields of the envelope has the row's own topic in it; Java's class keeps the one that it came upon first.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.config.settings.transforms import OutboxField, OutboxSettings
from cdc_assets.errors import InvalidValueError
from cdc_assets.publish.transforms.part import (
    Column,
    Mask,
    Numbers,
    Part,
    child,
    filled,
    is_envelope,
    is_equal,
    is_valid,
    struct_of,
)
from cdc_assets.publish.transforms.route import Route
from cdc_assets.typemap.connect import ConnectType, described

log = logging.getLogger(__name__)

_BLANK = "".join(map(chr, range(0x21)))
"""What Java trims from a text."""
_UNITS = {
    "io.debezium.time.Timestamp": 1,
    "io.debezium.time.MicroTimestamp": 1_000,
    "io.debezium.time.NanoTimestamp": 1_000_000,
}
_IN_ENVELOPE, _IN_HEADERS, _AS_PARTITION = "envelope", "header", "partition"


class Outbox:
    """See the module."""

    def __init__(self, settings: OutboxSettings) -> None:
        self._settings = settings
        self._route = Route(settings.route)

    def apply(self, part: Part) -> Sequence[Part]:
        """See `Transform`."""
        present = is_valid(part.value.array)
        if not present.any():
            return []
        events = part.where(present)
        if not is_envelope(part.value.field):
            return [events]
        operations = _column(part.topic, events.value, "op").array
        self._check_updates(events, is_equal(operations, "u"))
        rows = events.where(~is_equal(operations, "u") & ~is_equal(operations, "d"))
        return list(self._messages(rows)) if len(rows) else []

    def _check_updates(self, part: Part, updates: Mask) -> None:
        if not updates.any():
            return
        if self._settings.invalid == "fatal":
            raise InvalidValueError(
                "outbox", part.topic, "only inserts and deletes", "set table.op.invalid.behavior=warn"
            )
        level = logging.ERROR if self._settings.invalid == "error" else logging.WARNING
        log.log(level, "%d updates in the outbox %s are not published.", int(updates.sum()), part.topic)

    def _messages(self, part: Part) -> Iterator[Part]:
        row = _column(part.topic, part.value, "after")
        if row.array.null_count:
            raise InvalidValueError("outbox", part.topic, "rows", "truncate it while nothing is captured")
        routes = _column(part.topic, row, self._settings.route_by)
        if described(routes.field).kind != "string" or routes.array.null_count:
            raise InvalidValueError("route.by.field", self._settings.route_by, "a text in every row", "correct it")
        names = pc.unique(routes.array).to_pylist()
        for name in names:
            chosen = is_equal(routes.array, name)
            routed = replace(part.where(chosen), topic=self._route.new_name(name) or name)
            yield from self._of_topic(routed, part.topic, name)

    def _of_topic(self, part: Part, outbox: str, name: str) -> Iterator[Part]:
        row = _column(outbox, part.value, "after")
        placed = [(field, column) for field in self._settings.fields if (column := self._placed(outbox, row, field))]
        own = _column(outbox, row, self._settings.event_id)
        headers = [own, *(Column(*column) for field, column in placed if field.placement == _IN_HEADERS)]
        headers[0] = Column(own.field.with_name("id"), own.array)
        partitions = [column.array for field, column in placed if field.placement == _AS_PARTITION]
        key = _column(outbox, row, self._settings.event_key)
        made = replace(
            part,
            key=Column(key.field.with_name("key"), key.array),
            added=(*part.added, *headers),
            partition=partitions[-1].cast(pa.int32()) if partitions else part.partition,
            timestamp=self._timestamps(outbox, part.value, row),
            key_nulls_described=True,
            value_nulls_described=True,
        )
        payload = _column(outbox, row, self._settings.payload)
        empty = _is_empty(payload.array)
        in_envelope = [column for field, column in placed if field.placement == _IN_ENVELOPE]
        if in_envelope or any(field.placement == _IN_ENVELOPE for field in self._settings.fields):
            columns = [Column(payload.field.with_name("payload"), payload.array), *in_envelope]
            yield from self._structures(made, columns, row, name, empty)
            return
        value = Column(payload.field.with_name("value"), payload.array)
        yield from self._without_empty(replace(made, value=value), empty)

    def _structures(self, part: Part, columns: Sequence[Column], row: Column, name: str, empty: Mask) -> Iterator[Part]:
        space, dot, last = described(row.field).name.rpartition(".")
        about = ConnectType("struct", f"{space}{dot}{name}.{last}", optional=False)
        versions = self._versions(part.topic, row)
        for version in np.unique(versions).tolist():
            chosen = versions == version
            rows = pa.array(np.flatnonzero(chosen))
            own = [Column(column.field, column.array.take(rows)) for column in columns]
            value = struct_of("value", replace(about, version=version), own)
            yield from self._without_empty(replace(part.where(chosen), value=value), empty[chosen])

    def _versions(self, topic: str, row: Column) -> Numbers:
        if not self._settings.schema_version:
            return np.zeros(len(row.array), dtype=np.int64)
        column = _column(topic, row, self._settings.schema_version)
        if column.field.type != pa.int32() or column.array.null_count:
            raise InvalidValueError("schema version", column.field.name, "an int in every row", "correct it")
        found: Numbers = column.array.to_numpy().astype(np.int64)
        return found

    def _without_empty(self, part: Part, empty: Mask) -> Iterator[Part]:
        """Tombstones in place of empty payloads, if they are wanted."""
        if not self._settings.tombstones or not empty.any():
            yield part
            return
        gone = part.where(empty)
        nothing = Column(gone.value.field, pa.nulls(len(gone), gone.value.field.type))
        yield replace(gone, value=nothing, value_nulls_described=False)
        if not empty.all():
            yield part.where(~empty)

    def _placed(self, outbox: str, row: Column, field: OutboxField) -> Column | None:
        if self._settings.ignores_missing and child(row, field.field) is None:
            return None
        column = _column(outbox, row, field.field)
        if field.placement == _AS_PARTITION and column.field.type != pa.int32():
            raise InvalidValueError("partition", field.field, "a column of type int", "correct it")
        return Column(column.field.with_name(field.name), column.array)

    def _timestamps(self, outbox: str, value: Column, row: Column) -> pa.Array:
        own = _column(outbox, value, "ts_ms").array
        if not self._settings.timestamp:
            return own
        column = _column(outbox, row, self._settings.timestamp)
        unit = _UNITS.get(described(column.field).name)
        if unit is None:
            raise InvalidValueError("timestamp", column.field.name, f"a column of {' or '.join(_UNITS)}", "correct it")
        return pc.coalesce(pc.divide(column.array, unit), own)


def _column(topic: str, structs: Column, name: str) -> Column:
    found = child(structs, name)
    if found is None:
        raise InvalidValueError(
            "outbox", topic, f"a field {name}", "correct the option that names it, or add a predicate"
        )
    return filled(found)


def _is_empty(payload: pa.Array) -> Mask:
    if not pa.types.is_string(payload.type):
        return ~is_valid(payload)
    return is_equal(pc.utf8_trim(payload.fill_null(""), _BLANK), "")
