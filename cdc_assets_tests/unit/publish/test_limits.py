"""A record is refused if it is too large before compression for the client, or after it for its topic."""

import random

import pyarrow as pa
import pytest

from cdc_assets.adapters.kafka.columns import Columns
from cdc_assets.adapters.kafka.limits import Limits
from cdc_assets.publish.run import Run

RANDOM = random.Random("limits").randbytes(20_000)  # noqa: S311 - bytes that no codec makes fewer


@pytest.mark.parametrize(
    ("value", "compression", "most", "told"),
    [
        (b"x" * 9_000, "", 10**6, ""),
        (b"x" * 20_000, "", 10**6, "the topic takes 10,000 (max.message.bytes)"),
        (b"x" * 20_000, "lz4", 10**6, ""),
        (b"x" * 20_000, "lz4", 15_000, "the topic takes 10,000 (max.message.bytes)"),
        (b"x" * 9_000, "lz4", 5_000, "producer.max.request.size"),
        (RANDOM, "lz4", 10**6, "the topic takes 10,000 (max.message.bytes)"),
    ],
)
def test_the_first_record_that_is_too_large_is_told(value: bytes, compression: str, most: int, told: str) -> None:
    values = pa.array([b"before", value, b"behind"], pa.large_binary())
    records = Columns.of(Run(1, pa.array(["1", "2", "3"]), pa.nulls(3, pa.large_binary()), values))
    taken, reason = Limits({"t": 10_000}, most, (compression, None)).too_large("t", records)
    assert (taken, told in reason, bool(reason)) == ((1, True, True) if told else (3, True, False))


def test_a_limit_that_cannot_be_asked_for_is_kafkas_default_and_the_right_is_named() -> None:
    values = pa.array([b"x" * 1_100_000], pa.large_binary())
    records = Columns.of(Run(1, pa.array(["1"]), pa.nulls(1, pa.large_binary()), values))
    taken, reason = Limits({}, 2 * 10**6, ("", None)).too_large("t", records)
    assert (taken, "DESCRIBE_CONFIGS" in reason) == (0, True)
