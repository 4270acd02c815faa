"""Ranges, partitions, slices and bundles cover a table exactly."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.partitions import partition_of, ranges_of, ranges_wanted
from cdc_assets.core.ports import KeyRange
from cdc_assets.snapshot.slices import bundles, slices_of

TABLE = TableId("SalesDb", "dbo", "orders")


def ranges(count: int) -> list[KeyRange]:
    bounds = [None, *(str(place) for place in range(1, count)), None]
    return [KeyRange("id", low, high) for low, high in pairwise(bounds)]


@given(st.integers(1, 200), st.integers(1, 16))
def test_partitions_divide_the_ranges(count: int, partitions: int) -> None:
    parts = [ranges_of([number], count, partitions) for number in range(partitions)]
    assert [index for part in parts for index in part] == list(range(count))
    assert all(0 <= partition_of(index, count, partitions) < partitions for index in range(count))
    if count >= partitions:
        assert all(parts)


@given(st.integers(1, 60), st.sets(st.integers(0, 59), min_size=1), st.integers(0, 100_000), st.integers(1, 10_000))
def test_slices_read_each_chosen_range_once(count: int, picks: set[int], rows: int, target: int) -> None:
    chosen = sorted(pick for pick in picks if pick < count)
    found = slices_of(TABLE, ranges(count), chosen, rows, target, 5)
    assert [index for entry in found for index in range(entry.partition[0], entry.partition[1] + 1)] == chosen
    assert [entry.number for entry in found] == list(range(5, 5 + len(found)))
    for entry in found:
        own = ranges(count)[entry.partition[0] : entry.partition[1] + 1]
        assert (entry.range.low, entry.range.high) == (own[0].low, own[-1].high)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50), st.integers(1, 12))
def test_bundles_keep_order_and_number(sizes: list[int], tasks: int) -> None:
    table = ranges(len(sizes))
    slices = [slices_of(TABLE, table, [place], size * len(sizes), 1, place)[0] for place, size in enumerate(sizes)]
    found = bundles(slices, tasks)
    assert [entry for bundle in found for entry in bundle] == slices
    assert len(found) <= tasks
    assert all(found)


def test_large_tables_get_finer_ranges_in_multiples_of_the_partitions() -> None:
    assert ranges_wanted(10, 8) == 8
    assert ranges_wanted(8_000_000, 8) == 8
    assert ranges_wanted(8_000_001, 8) == 16
