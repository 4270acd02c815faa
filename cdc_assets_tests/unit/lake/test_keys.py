"""Keys compare like the values, and as the server's collation says."""

import itertools
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from cdc_assets.core.schema import Column
from cdc_assets.lake.keys import BOUND_BYTES, KeyPart, bound_bytes, bound_key, encode, key_part, places_of
from cdc_assets.mirror.leaves import Leaf, cut, groups

INTEGERS = some.integers(-(2**63), 2**63 - 1)
DECIMALS = some.decimals(-(10**9), 10**9, places=3).map(lambda value: Decimal(value).quantize(Decimal("0.001")))


def keys(rows: list[tuple[Any, ...]], *types: pa.DataType) -> list[bytes]:
    names = [f"c{at}" for at in range(len(types))]
    table = pa.table({name: pa.array([row[at] for row in rows], types[at]) for at, name in enumerate(names)})
    return encode(table, [KeyPart(name) for name in names], pa.binary()).to_pylist()


@given(
    some.lists(
        some.tuples(some.none() | INTEGERS, some.none() | some.binary(max_size=5), some.none() | DECIMALS), max_size=20
    )
)
def test_bytes_have_the_order_of_the_values(rows: list[tuple[Any, ...]]) -> None:
    found = keys(rows, pa.int64(), pa.binary(), pa.decimal128(20, 3))
    wanted = sorted(
        range(len(rows)),
        key=lambda at: [
            (value is not None, value or type(value)()) if value is not None else (False,) for value in rows[at]
        ],
    )
    assert [rows[at] for at in sorted(range(len(rows)), key=lambda at: found[at])] == [rows[at] for at in wanted]
    assert len(set(found)) == len(set(rows))


def test_floats_and_flags() -> None:
    values = [None, float("-inf"), -1.5, -0.0, 0.0, 1e-300, 2.0, float("inf")]
    found = keys([(value,) for value in values], pa.float64())
    assert found == sorted(found)
    assert found[3] == found[4]
    assert keys([(False,), (True,)], pa.bool_()) == sorted(keys([(True,), (False,)], pa.bool_()))


@pytest.mark.parametrize(
    ("collation", "one", "other", "equal"),
    [
        ("SQL_Latin1_General_CP1_CI_AS", "Abc", "aBC  ", True),
        ("Latin1_General_100_CI_AS", "ÄÖ", "äö", True),
        ("Latin1_General_100_CS_AS", "A", "a", False),
        ("Latin1_General_BIN2", "a ", "a", True),
        ("Turkish_CI_AS", "I", "i", False),
        ("Latin1_General_100_CI_AS", "Ა", "ა", False),
        ("Latin1_General_100_CI_AS", "e", "é", False),
    ],
)
def test_texts_compare_as_far_as_the_collation_is_known(collation: str, one: str, other: str, equal: bool) -> None:
    part = key_part("c", Column("c", "nvarchar", 1, collation=collation))
    first, second = encode(pa.table({"c": [one, other]}), [part], pa.binary()).to_pylist()
    assert (first == second) is equal


@given(some.lists(INTEGERS, min_size=1, max_size=50), some.lists(INTEGERS, max_size=5))
def test_sorted_keys_are_parted_at_bounds(values: list[int], bounds: list[int]) -> None:
    ordered, limits = pa.array(sorted(values)), [None, *sorted(set(bounds))]
    places = places_of(ordered, limits)
    for part, (start, end) in enumerate(itertools.pairwise(places)):
        assert all(part == 0 or value >= limits[part] for value in ordered[start:end].to_pylist())  # type: ignore[operator]
        assert all(part + 1 == len(limits) or value < limits[part + 1] for value in ordered[start:end].to_pylist())  # type: ignore[operator]


@given(INTEGERS, INTEGERS)
def test_a_bound_is_the_key_again(one: int, other: int) -> None:
    assert bound_key(bound_bytes(one), pa.int64()) == one
    assert (bound_bytes(one) < bound_bytes(other)) is (one < other)


def test_keys_with_one_bound_are_never_parted() -> None:
    same = [b"x" * BOUND_BYTES + bytes([at]) for at in range(9)]
    assert cut(pa.array([*same, b"y"]), 2**30) in ([0, 9, 10], [0, 10])


def test_leaves_of_a_new_mirror_are_made_by_tasks_of_their_own() -> None:
    found = groups([Leaf((), bound) for bound in (b"", b"b", b"c")], [0, 1, 2])
    assert [members for _, members in found] == [[0], [1], [2]]
    small = [Leaf(("one",), b"", 10, 1), Leaf(("two",), b"b", 10, 1)]
    assert [members for _, members in groups(small, [0])] == [[0, 1]]
