"""Rows of a slice by key range, counted while they are read."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.core.ports import KeyRange
from cdc_assets.snapshot.range_count import RangeCount

RANGES = [KeyRange("id", None, "-5"), KeyRange("id", "-5", "0"), KeyRange("id", "0", "10"), KeyRange("id", "10", None)]


def batch(keys: list[int | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"note": ["x"] * len(keys), "id": pa.array(keys, pa.int32())})


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(-20, 20)), max_size=20), max_size=4))
def test_counts_are_those_of_the_ranges(batches: list[list[int | None]]) -> None:
    counted = RangeCount(RANGES, 0, 3)
    rows = sum(part.num_rows for part in counted.of(iter([batch(keys) for keys in batches])))
    keys = [-100 if value is None else value for keys in batches for value in keys]
    within = [(-1000, -5), (-5, 0), (0, 10), (10, 1000)]
    assert counted.by_range(rows) == tuple(sum(low <= value < high for value in keys) for low, high in within)


def test_one_range_has_all_rows_whatever_its_key_is() -> None:
    counted = RangeCount([KeyRange("name", None, "b"), KeyRange("name", "b", None)], 1, 1)
    assert list(counted.of(iter([batch([1])])))
    assert counted.by_range(7) == (7,)


def test_other_keys_are_not_compared() -> None:
    assert RangeCount([KeyRange("name", None, "b"), KeyRange("name", "b", None)], 0, 1).by_range(7) is None
    digits = RangeCount([KeyRange("name", None, "5"), KeyRange("name", "5", None)], 0, 1)
    texts = pa.RecordBatch.from_pydict({"name": ["10", "9"]})
    assert list(digits.of(iter([texts])))
    assert digits.by_range(2) is None, "'10' is below '5'"
