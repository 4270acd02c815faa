"""Rows of a topic as Kafka's records, byte for byte as Kafka Connect's converters write them.

Keys and values are rendered column by column (`forms`), and stay columns (`records`). The simple header converter prints texts as they are, and structs as JSON
(Connect's, too, but for decimals and times in them) without escapes of control characters; a changed key in a header is JSON in the lake already.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.config.settings import KafkaSettings
from cdc_assets.config.settings.kafka import JSON
from cdc_assets.envelope.flat import flat_json, flat_records, is_of_table, origins
from cdc_assets.envelope.json import KEY_HEADERS, described_key, same_headers
from cdc_assets.envelope.json_schema import schema_text
from cdc_assets.errors import InvalidValueError
from cdc_assets.publish.forms import Form, JsonForm, escape_pairs_of, form_of
from cdc_assets.publish.records import (
    Headers,
    RecordSlice,
    TransformedRows,
    binary,
    merge_parts,
    problem_record,
    split_by_target,
)
from cdc_assets.publish.tombstones import end_of
from cdc_assets.publish.transforms.chain import Chain
from cdc_assets.publish.transforms.part import Column, Part
from cdc_assets.typemap.connect import described

_ROWS, _ROWS_WITH_SCHEMA = 16384, 512
"""Rows that are rendered at once."""
_BYTES = 8_000_000
"""Bytes of rows that are rendered at once, about, and at least one row: what is rendered of wide rows waits in memory several times."""


class Renderer:
    """Makes records of rows.

    Args:
        settings: converters.
        rename: gives another name to topics, after the transforms; None if they keep it.
    """

    def __init__(self, settings: KafkaSettings, rename: Callable[[str], str] | None = None) -> None:
        self._settings, self._rename = settings, rename
        self._last: dict[str, int] = {}
        """Number of the newest flat record by topic."""
        self._key, self._value = form_of(settings.key, "key"), form_of(settings.value, "value")
        with_schema = any(side.format == "json" and side.schema for side in (settings.key, settings.value))
        self._max_rows = _ROWS_WITH_SCHEMA if with_schema else _ROWS
        self._chain = Chain(settings.transforms)
        is_json = all(side.format == "json" for side in (settings.key, settings.value))
        self.takes_dictionaries = is_json and not (settings.flat or self._chain or rename)
        """Whether texts in rows may be numbers of their distinct values."""
        self.needs_deletes = self._chain.needs_deletes
        """Whether a tombstone must come in one batch with its delete."""

    def slices(self, topic: str, batch: pa.RecordBatch) -> Iterator[RecordSlice]:
        """Records of the rows of a topic, in their order; one with a problem in place of those that cannot be rendered.

        Raises:
            ConnectionLostError: a schema registry does not answer.
        """
        max_rows = max(1, min(self._max_rows, _BYTES * batch.num_rows // max(1, batch.nbytes)))
        first = 0
        while first < batch.num_rows:
            stop = end_of(batch, first + max_rows) if self.needs_deletes else first + max_rows
            part, first = batch.slice(first, stop - first), stop
            try:
                yield from self._slices(topic, part)
            except InvalidValueError as error:
                yield problem_record(part["window_id"][0].as_py(), part["position"][0].as_py(), str(error))
                return

    def _slices(self, topic: str, batch: pa.RecordBatch) -> Iterator[RecordSlice]:
        if self._settings.flat and is_of_table(batch.schema):
            slices = self._flat(topic, batch)
            rename = self._rename
            return slices if rename is None else (replace(one, topic=rename(topic)) for one in slices)
        if self._chain or self._rename:
            return self._transformed(topic, batch)
        key, value = batch.schema.field("key"), batch.schema.field("value")
        keys = binary(self._key.render(topic, key, batch.column("key")))
        values = binary(self._value.render(topic, value, batch.column("value")))
        headers = self._headers(key, batch.column("headers"))
        return split_by_target(
            RecordSlice(-1, batch.column("position"), keys, values, headers), batch.column("window_id")
        )

    def _transformed(self, topic: str, batch: pa.RecordBatch) -> Iterator[RecordSlice]:
        """What the transforms make of rows, in the order of the rows; of those that they drop, only the place."""
        sent: list[TransformedRows] = []
        for part in self._chain.apply(topic, batch):
            name = self._rename(part.topic) if self._rename else part.topic
            sent.append(
                TransformedRows(
                    name,
                    part.rows,
                    _side(self._key, name, part.key, nulls_described=part.key_nulls_described),
                    _side(self._value, name, part.value, nulls_described=part.value_nulls_described),
                    self._all_headers(part),
                    part.partition,
                    part.timestamp,
                )
            )
        return merge_parts(sent, batch.column("window_id"), batch.column("position"))

    def _all_headers(self, part: Part) -> Sequence[Headers] | None:
        """The lake's headers, and those that transforms have added; None if there are none."""
        found = self._headers(part.header_key, part.headers)
        if not part.added:
            return found
        found = [[]] * len(part) if found is None else found
        texts = [self._added(column) for column in part.added]
        names = [column.field.name for column in part.added]
        return [[*own, *zip(names, row, strict=True)] for own, *row in zip(found, *texts, strict=True)]

    def _added(self, column: Column) -> list[bytes | None]:
        """A header's values: with the simple converter or as JSON."""
        if self._settings.headers == JSON:
            form = JsonForm(schema=self._settings.header_schema, defaults=True)
            null = form.null(column.field)
            texts = form.render("", *column)
            return [null if text is None else text for text in binary(texts).to_pylist()]
        return [None if text is None else text.encode() for text in simple_texts(*column)]

    def _flat(self, topic: str, batch: pa.RecordBatch) -> Iterator[RecordSlice]:
        """FlinkX records: none of a tombstone, two of an update if it is split; they have no headers."""
        paved, split = self._settings.paved, self._settings.split
        records = flat_records(batch, paved=paved, split=split, last_number=self._last.get(topic, -1))
        if len(records):
            self._last[topic] = records.column("ts")[-1].as_py()
        counts = np.bincount(origins(batch, split=split), minlength=len(batch))
        rows = pa.array(np.repeat(np.arange(len(batch)), np.maximum(counts, 1)))
        is_sent = np.repeat(counts > 0, np.maximum(counts, 1))
        keys = binary(self._key.render(topic, batch.schema.field("key"), batch.column("key"))).take(rows)
        at = pa.array(np.cumsum(is_sent) - 1, mask=~is_sent)
        values = binary(flat_json(records)).take(at)
        whole = RecordSlice(-1, batch.column("position").take(rows), keys, values)
        return split_by_target(whole, batch.column("window_id").take(rows), is_sent - 1, ("",))

    def _headers(self, key: pa.Field, headers: pa.Array) -> Sequence[Headers] | None:
        """Those of the lake; None if no row has any."""
        if headers.offsets[0] == headers.offsets[-1]:
            return None
        if same_headers(headers):
            return [self._one(key, headers[0].as_py())] * len(headers)
        return [self._one(key, row) for row in headers.to_pylist()]

    def _one(self, key: pa.Field, row: Sequence[tuple[str, str | None]] | None) -> Headers:
        return [(name, self._header(key, name, text)) for name, text in row or ()]

    def _header(self, key: pa.Field, name: str, text: str | None) -> bytes | None:
        if text is None:
            return None
        is_key = name in KEY_HEADERS
        if self._settings.headers != JSON:
            return text.encode()
        shown = text if is_key else json.dumps(text, ensure_ascii=False)
        if self._settings.header_schema:
            schema = (schema_text(key) if described_key(key) else "null") if is_key else _STRING
            shown = f'{{"schema":{schema},"payload":{shown}}}'
        return escape_pairs_of(shown).encode()


_STRING = '{"type":"string","optional":false}'
_TIME = "org.apache.kafka.connect.data.Time"
_EPOCH, _DAY_MS = datetime(1970, 1, 1), 86_400_000  # noqa: DTZ001 - without zone, as the values are


def simple_texts(field: pa.Field, array: pa.Array) -> list[str | None]:
    """Values as the simple header converter prints them: texts, numbers and times plainly, the rest as JSON."""
    kind = array.type
    if pa.types.is_string(kind):
        found: list[str | None] = array.to_pylist()
        return found
    if pa.types.is_decimal(kind):
        return [None if value is None else str(value) for value in array.to_pylist()]
    if pa.types.is_date32(kind):
        return [_moment(days if days is None else days * _DAY_MS) for days in array.cast(pa.int32()).to_pylist()]
    if pa.types.is_timestamp(kind):
        floored = pc.floor_temporal(array, unit="millisecond").cast(pa.timestamp("ms"))
        return [_moment(ms) for ms in floored.cast(pa.int64()).to_pylist()]
    if pa.types.is_integer(kind) and described(field).name == _TIME:
        return [_moment(ms) for ms in array.to_pylist()]
    if pa.types.is_binary(kind):
        return [None if value is None else b64encode(value).decode() for value in array.to_pylist()]
    texts = JsonForm(schema=False, defaults=False).render("", field, array)
    return [None if data is None else data.decode() for data in binary(texts).to_pylist()]


def _moment(ms: int | None) -> str | None:
    """Milliseconds since 1970 as Connect prints dates, times and timestamps alike (measured): it takes what is before the second day
    for a time, and a midnight for a date."""
    if ms is None:
        return None
    text = (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds") + "Z"
    if ms < _DAY_MS:
        return text[11:]
    return text[:10] if ms % _DAY_MS == 0 else text


def _side(form: Form, topic: str, column: Column, *, nulls_described: bool) -> pa.Array:
    """Keys or values of a topic."""
    found = binary(form.render(topic, *column))
    null = form.null(column.field) if nulls_described and column.array.null_count else None
    return found if null is None else found.fill_null(null)
