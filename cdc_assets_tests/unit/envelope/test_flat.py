"""FlinkX records of events, paved and not, split and not."""

import json
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.envelope.flat import flat_json, flat_records
from cdc_assets_tests.unit.envelope.building import change, change_batch, changed, column, plan_of

PLAN = plan_of("tb1", [column("id", "int", nullable=False), column("before_tax", "varchar", length=9)])
LSN = "00000032:00002038:0005"
ROWS = [
    (change(LSN, "00000032:00002038:0001", 2), [1, "a"]),
    (change(LSN, "00000032:00002038:0002", 3), [1, "a"]),
    (change(LSN, "00000032:00002038:0002", 4), [1, None]),
    (change(LSN, "00000032:00002038:0003", 1), [1, None]),
]


def records(*, paved: bool, split: bool) -> list[dict[str, Any]]:
    (batch,) = changed(PLAN, change_batch(PLAN, ROWS)).combine_chunks().to_batches()
    return [json.loads(text) for text in flat_json(flat_records(batch, paved=paved, split=split)).to_pylist()]


def head(kind: str, number: int) -> dict[str, Any]:
    return {"type": kind, "schema": "dbo", "table": "tb1", "lsn": LSN, "ts": number}


OLD, NEW = {"id": 1, "before_tax": "a"}, {"id": 1, "before_tax": None}


def paved(image: str, values: dict[str, Any]) -> dict[str, Any]:
    return {f"{image}_{name}": value for name, value in values.items()}


def test_paved() -> None:
    assert records(paved=True, split=False) == [
        {**head("insert", 0), **paved("after", OLD)},
        {**head("update", 1), **paved("before", OLD), **paved("after", NEW)},
        {**head("delete", 2), **paved("before", NEW)},
    ]


def test_not_paved() -> None:
    assert records(paved=False, split=False) == [
        {**head("insert", 0), "after": OLD},
        {**head("update", 1), "before": OLD, "after": NEW},
        {**head("delete", 2), "before": NEW},
    ]


@pytest.mark.parametrize("is_paved", [True, False])
def test_split(is_paved: bool) -> None:
    shape = paved if is_paved else lambda image, values: {image: values}
    assert records(paved=is_paved, split=True) == [
        {**head("insert", 0), **shape("after", OLD)},
        {**head("update_before", 1), **shape("before", OLD)},
        {**head("update_after", 2), **shape("after", NEW)},
        {**head("delete", 3), **shape("before", NEW)},
    ]


def test_numbers_carry_milliseconds() -> None:
    from cdc_assets.envelope.changes import ChangeContext, build_changes

    (batch,) = build_changes(
        PLAN, iter([change_batch(PLAN, ROWS)]), ChangeContext(1, 0, lambda: 1_611_834_861_198_000_000)
    )
    numbers = flat_records(batch, last_number=(1_611_834_861_198 << 22) + 4).column("ts").to_pylist()
    assert [number >> 22 for number in numbers] == [1_611_834_861_198] * 3
    assert numbers == sorted(set(numbers))
    assert numbers[0] & 0x3FFFFF == 5


def test_numbers_grow_where_processing_times_do_not() -> None:
    (batch,) = changed(PLAN, change_batch(PLAN, ROWS)).combine_chunks().to_batches()
    assert flat_records(batch, split=True, last_number=40).column("ts").to_pylist() == [41, 42, 43, 44]


def test_no_events() -> None:
    batch = pa.RecordBatch.from_pylist([], schema=PLAN.topic_schema)
    assert len(flat_json(flat_records(batch))) == 0
