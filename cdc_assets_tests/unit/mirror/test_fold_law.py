"""The law of folding: whatever the portions, rows and versions are those that the events tell of, one after the other.

`CDC_LAW_EXAMPLES` plays more histories.
"""

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from cdc_assets.lake.row_shape import MISSING, POSITION
from cdc_assets.mirror import multiset, rewrite
from cdc_assets.mirror.fold import Folded, Void
from cdc_assets.mirror.multiset import fold_multiset
from cdc_assets.mirror.shape import Shape, ShapeColumn
from cdc_assets.mirror.texts import TEXTS, in_form, plain
from cdc_assets_tests.unit.mirror.histories import (
    KEYED,
    KEYLESS,
    Step,
    copies_after,
    events,
    histories,
    lsn,
    rows_after,
)

EXAMPLES = settings(max_examples=5 * int(os.environ.get("CDC_LAW_EXAMPLES", "20")), deadline=None)


@pytest.fixture(autouse=True, scope="module")
def _small_portions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewrite, "GROUP_ROWS", 2)
        yield


def fold_in_portions(shape: Shape, rows: pa.Table, events: pa.Table, void: Void | None = None) -> Folded:
    """What comes of a leaf that is read two rows at a time; every other time texts come by number."""
    portions = (in_some_form(rows.slice(start, 2), start % 4) for start in range(0, rows.num_rows, 2))
    found = list(rewrite.folded_portions(shape, portions, rewrite.by_key(shape, events), void))
    rows = pa.concat_tables([shape.no_rows(), *(plain(part.rows) for part in found)])
    keys = shape.keys(rows.combine_chunks()).to_pylist()
    assert keys == sorted(set(keys))
    ended = pa.concat_tables([shape.versions.empty_table(), *(plain(part.ended) for part in found)])
    return Folded(rows, ended, any(part.changed for part in found))


def in_some_form(rows: pa.Table, form: int) -> pa.Table:
    """Rows whose texts are dictionary arrays, or not."""
    kinds = [TEXTS if form and field.type == pa.string() else field.type for field in rows.schema]
    columns = [in_form(column, kind) for column, kind in zip(rows.columns, kinds, strict=True)]
    return pa.Table.from_arrays(columns, names=rows.column_names)


def folded(shape: Shape, table: pa.Table, cuts: list[int]) -> tuple[pa.Table, pa.Table]:
    """Rows and ended versions after events that were folded in portions, which end between commits."""
    fold_one = fold_in_portions if shape.keyed else fold_multiset
    rows, ended = shape.no_rows(), [shape.versions.empty_table()]
    commits = [int(position[:22].replace(":", ""), 16) for position in table[POSITION].to_pylist()]
    for low, high in zip([0, *sorted(cuts)], [*sorted(cuts), 10**6], strict=True):
        portion = table.filter(pa.array([low < commit <= high for commit in commits], pa.bool_()))
        if portion.num_rows:
            done = fold_one(shape, rows, portion)
            rows, ended = done.rows, [*ended, done.ended]
    return rows, pa.concat_tables(ended)


def as_of(rows: pa.Table, ended: pa.Table, commit: int) -> list[dict[str, Any]]:
    """Versions that are valid right after a commit."""
    text = lsn(commit)
    now = [row for row in rows.to_pylist() if row["_lsn"] <= text]
    return now + [row for row in ended.to_pylist() if row["_valid_from_lsn"] <= text < row["_valid_to_lsn"]]


CUTS = some.lists(some.integers(1, 40), max_size=4, unique=True)


@pytest.mark.long
@EXAMPLES
@given(histories(), CUTS)
def test_rows_and_versions_of_a_table_with_a_key(steps: list[Step], cuts: list[int]) -> None:
    rows, ended = folded(KEYED, events(KEYED, steps), cuts)
    last = max((step.commit for step in steps), default=0)
    for commit in range(last + 1):
        found = {row["id"]: {name: row[name] for name in ("id", "a", "big")} for row in as_of(rows, ended, commit)}
        assert found == rows_after(steps, commit)
    assert len(rows) == len(rows_after(steps, last))
    intervals = sorted((row["id"], row["_valid_from_lsn"], row["_valid_to_lsn"]) for row in ended.to_pylist())
    for (key, start, end), (other, following, _) in itertools.pairwise(intervals):
        assert start < end
        assert key != other or end <= following


@pytest.mark.long
@EXAMPLES
@given(histories(keyed=False), CUTS)
def test_rows_and_versions_of_a_table_without_a_key(steps: list[Step], cuts: list[int]) -> None:
    rows, ended = folded(KEYLESS, events(KEYLESS, steps), cuts)
    for commit in range(max((step.commit for step in steps), default=0) + 1):
        assert Counter((row["id"], row["a"]) for row in as_of(rows, ended, commit)) == copies_after(steps, commit)


@pytest.mark.long
@EXAMPLES
@given(histories(), some.sets(some.integers(1, 5)))
def test_rows_that_a_new_reading_does_not_find_are_gone(steps: list[Step], lost: set[int]) -> None:
    rows, _ = folded(KEYED, events(KEYED, steps), [])
    last = max((step.commit for step in steps), default=0)
    there = rows_after(steps, last)
    left = {key: row for key, row in there.items() if key not in lost}
    reading = events(KEYED, [Step(last + 20, "r", row) for row in left.values()])
    void = Void(lsn(last + 10), lsn(last + 20))
    done = fold_in_portions(KEYED, rows, reading, void)
    assert {row["id"] for row in done.rows.to_pylist()} == left.keys()
    assert {row["id"] for row in done.ended.to_pylist()} == there.keys() - left.keys()
    assert all(row["_valid_to_lsn"] == void.lsn for row in done.ended.to_pylist())
    assert done.changed is bool(there.keys() - left.keys())


@pytest.mark.long
@EXAMPLES
@given(histories(keyed=False), some.lists(some.tuples(some.integers(1, 3), some.sampled_from("xy"))), some.booleans())
def test_a_new_reading_names_all_copies(steps: list[Step], read: list[tuple[int, str]], whole: bool) -> None:
    rows, _ = folded(KEYLESS, events(KEYLESS, steps), [])
    last = max((step.commit for step in steps), default=0)
    reading = events(KEYLESS, [Step(last + 20, "r", {"id": key, "a": value}) for key, value in read])
    reading = one_reading(reading)
    void = Void(lsn(last + 10), lsn(last + 20)) if whole else None
    found = Counter((row["id"], row["a"]) for row in fold_multiset(KEYLESS, rows, reading, void).rows.to_pylist())
    before, seen = copies_after(steps, last), Counter(read)
    expected = seen if whole else Counter({row: seen.get(row, before[row]) for row in {*before, *seen}})
    assert found == +expected


LARGE = replace(KEYLESS, columns=(*KEYLESS.columns, ShapeColumn("big", pa.string(), large=True)))
COPIES = some.lists(
    some.tuples(some.integers(1, 2), some.sampled_from("xy"), some.sampled_from(["B", "C", None])), max_size=12
)


def reading_of(read: list[tuple[int, str, str | None]], commit: int) -> pa.Table:
    steps = [Step(commit, "r", dict(zip(("id", "a", "big"), row, strict=True))) for row in read]
    said = events(LARGE, steps)
    none_omitted = pa.array([False] * len(read), pa.bool_())
    return one_reading(said.set_column(said.schema.get_field_index(MISSING + "big"), MISSING + "big", none_omitted))


@EXAMPLES
@given(COPIES, COPIES, some.booleans())
def test_a_new_reading_says_which_large_values_there_are(
    before: list[tuple[int, str, str | None]], read: list[tuple[int, str, str | None]], whole: bool
) -> None:
    rows = fold_multiset(LARGE, LARGE.no_rows(), reading_of(before, 10)).rows
    void = Void(lsn(20), lsn(30)) if whole else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiset, "_COMPARED", 2)
        done = fold_multiset(LARGE, rows, reading_of(read, 30), void)
    named, there = {row[:2] for row in read}, Counter(before)
    kept = Counter(row for row in before if not whole and row[:2] not in named)
    assert Counter((row["id"], row["a"], row["big"]) for row in done.rows.to_pylist()) == Counter(read) + kept
    ended = Counter((row["id"], row["a"], row["big"]) for row in done.ended.to_pylist())
    assert ended == there - Counter(read) - kept, "what is there as it was read goes on"
    assert done.changed is (Counter(read) + kept != there)


def one_reading(table: pa.Table) -> pa.Table:
    """READs of one reading have one LSN and one window."""
    positions = [
        f"{text[:22]}/ffffffff/00000007:{number:08x}:0000/0" for number, text in enumerate(table[POSITION].to_pylist())
    ]
    return table.set_column(table.schema.get_field_index(POSITION), POSITION, pa.array(positions, pa.string()))


def test_a_value_that_the_log_omits_is_the_last_one_known() -> None:
    first = {"id": 1, "a": "x", "big": "B"}
    rows, _ = folded(
        KEYED, events(KEYED, [Step(1, "c", first), Step(2, "u", {**first, "a": "y"}, first, omitted=True)]), [1]
    )
    assert [(row["a"], row["big"]) for row in rows.to_pylist()] == [("y", "B")]


def test_a_reading_that_finds_what_is_there_changes_nothing() -> None:
    row = {"id": 1, "a": "x", "big": None}
    rows, _ = folded(KEYED, events(KEYED, [Step(1, "c", row)]), [])
    done = fold_in_portions(KEYED, rows, events(KEYED, [Step(5, "r", row)]))
    assert not done.changed
    assert done.rows.to_pylist() == rows.to_pylist()
