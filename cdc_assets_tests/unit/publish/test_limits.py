"""A record is refused before it is sent if it is too large for the client, or for its topic and not compressed."""

import pyarrow as pa
import pytest

from cdc_assets.adapters.kafka.sizes import Limits, record_sizes
from cdc_assets.publish.records import Headers, RecordSlice


def slice_of(*values: bytes | None, headers: list[Headers] | None = None) -> RecordSlice:
    side = pa.array(values, pa.large_binary())
    return RecordSlice(
        1, pa.array(map(str, range(len(values)))), pa.nulls(len(values), pa.large_binary()), side, headers
    )


@pytest.mark.parametrize(
    ("size", "compressed", "most", "told"),
    [
        (9_000, False, 10**6, ""),
        (20_000, False, 10**6, "the topic takes 10,000 (max.message.bytes)"),
        (20_000, True, 10**6, ""),
        (20_000, True, 15_000, "the topic takes 10,000 (max.message.bytes)"),
        (9_000, True, 5_000, "producer.max.request.size"),
    ],
)
def test_the_first_record_that_is_too_large_is_told(size: int, compressed: bool, most: int, told: str) -> None:
    records = slice_of(b"before", b"x" * size, b"behind")
    limits = Limits({"t": 10_000}, most, 10**6, compressed=compressed)
    taken, reason = limits.too_large("t", record_sizes(records))
    assert (taken, told in reason, bool(reason)) == ((1, True, True) if told else (3, True, False))


def test_a_limit_that_cannot_be_asked_for_is_kafkas_default_and_the_right_is_named() -> None:
    limits = Limits({}, 2 * 10**6, 10**6, compressed=False)
    taken, reason = limits.too_large("t", record_sizes(slice_of(b"x" * 1_100_000)))
    assert (taken, "DESCRIBE_CONFIGS" in reason) == (0, True)


def test_headers_and_nulls_count() -> None:
    shared: Headers = [("name", b"value"), ("other", None)]
    bare = record_sizes(slice_of(b"abc", None)).tolist()
    assert bare[0] - bare[1] == 3
    found = record_sizes(slice_of(b"abc", None, headers=[shared, shared])).tolist()
    assert [one - other for one, other in zip(found, bare, strict=True)] == [34, 34]
