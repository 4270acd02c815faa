"""Events about a leaf that are too many for a task: folded range after range, with the same result, in little memory."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from cdc_assets.config.settings import LakeSettings
from cdc_assets.errors import MirrorError
from cdc_assets.lake import pieces
from cdc_assets.lake.location import Location
from cdc_assets.lake.row_shape import AT, CHANGED_AT, OPERATION, POSITION
from cdc_assets.mirror import ranges, tasks
from cdc_assets.mirror.files import read_rows
from cdc_assets.mirror.fold import Void
from cdc_assets.mirror.leaves import Leaf, new_attempt
from cdc_assets.mirror.shape import Shape
from cdc_assets.mirror.staged import stage_numbered
from cdc_assets.mirror.tasks import FoldResult, FoldTask, fold_leaf
from cdc_assets_tests.unit.mirror.histories import KEYED, KEYLESS, Step, events, histories, lsn

TEXT = replace(KEYED, columns=(replace(KEYED.columns[0], type=pa.string()), *KEYED.columns[1:]))
SHAPES = {"number": KEYED, "text": TEXT, "none": KEYLESS}


@contextmanager
def holding(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "EVENT_BYTES", size)
        patch.setattr(pieces, "PORTION_BYTES", size)
        yield


class LeafWorld:
    """One leaf and its history."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        self.location, self.shape = Location.of(LakeSettings(str(folder))), shape
        self.leaf, self.versions, self.step = Leaf((), b""), list[str](), 0

    def fold(self, table: pa.Table, void: Void | None = None, *, at_once: int = 3) -> FoldResult:
        self.step += 1
        table = table.cast(self.shape.events)
        slices = (table.slice(start, at_once) for start in range(0, table.num_rows, at_once))
        staged = stage_numbered(self.location, "staging", ((one, np.zeros(len(one), dtype=int)) for one in slices))
        result = fold_leaf(
            FoldTask(
                self.location, self.shape, self.leaf, "current", "history", "staging", tuple(staged), void, self.step, new_attempt(),
                self.shape.history,
            )
        )  # fmt: skip
        if result.leaves or result.removed:
            files = result.leaves
            size, rows = sum(file.size for file in files), sum(file.rows for file in files)
            self.leaf = Leaf(tuple(file.path for file in files), b"", size, rows)
        self.versions += [file.path for file in result.versions]
        return result

    def content(self) -> tuple[list[str], list[str]]:
        rows = read_rows(self.location, "current", self.leaf.paths, self.shape.rows)
        if self.shape.keyed:
            keys = self.shape.keys(rows.combine_chunks()).to_pylist()
            assert keys == sorted(set(keys))
        ended = read_rows(self.location, "history", self.versions, self.shape.history)
        return sorted(map(repr, rows.to_pylist())), sorted(map(repr, ended.to_pylist()))


@pytest.mark.long
@pytest.mark.parametrize("kind", SHAPES)
@given(data=some.data())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ranges_make_the_same_rows_and_versions(
    kind: str, data: some.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shape = SHAPES[kind]
    steps = data.draw(histories(keyed=shape.keyed))
    cut = data.draw(some.integers(0, 20))
    size = data.draw(some.sampled_from([200, 500, 1000]))
    lost = data.draw(some.sets(some.integers(1, 5)))
    last = max((step.commit for step in steps), default=0)
    rows = {step.row["id"]: step.row for step in steps}
    reading = [Step(last + 20, "r", row) for key, row in rows.items() if key not in lost]
    void = Void(lsn(last + 10), lsn(last + 20))
    parts = [([one for one in steps if one.commit <= cut], None), ([one for one in steps if one.commit > cut], None)]
    found = []
    for held in (size, 1 << 30):
        world = LeafWorld(tmp_path_factory.mktemp("leaf"), shape)
        with holding(held):
            results = [world.fold(in_form(shape, part), gone) for part, gone in [*parts, (reading, void)]]
        found.append((world.content(), [(one.events, one.newest, one.ended, bool(one.leaves)) for one in results]))
    assert found[0] == found[1]


def in_form(shape: Shape, steps: list[Step]) -> pa.Table:
    table = events(KEYLESS if not shape.keyed else KEYED, steps)
    return table if shape is not TEXT else table.set_column(0, "id", table["id"].cast(pa.string()))


def large(commits: list[int], keys: list[int], size: int) -> pa.Table:
    """Rows of one column of so many bytes; a key that comes again is updated."""
    values = [f"{number:09d}" * (size // 9) for number in range(len(keys))]
    seen = set[int]()
    operations = ["u" if key in seen or seen.add(key) else "c" for key in keys]  # type: ignore[func-returns-value]
    return pa.table(
        {
            "id": pa.array(keys, pa.int32()),
            "a": pa.nulls(len(keys), pa.string()),
            "big": values,
            POSITION: [f"{lsn(commit)}/{number:08x}/{lsn(number)}/0" for number, commit in enumerate(commits)],
            OPERATION: operations,
            CHANGED_AT: pa.nulls(len(keys), AT),
            KEYED.event_names[-1]: pa.repeat(pa.scalar(False), len(keys)),
        }
    )


@pytest.mark.long
@pytest.mark.parametrize("what", ["one transaction", "one row"])
def test_a_task_holds_few_of_many_large_events(tmp_path: Path, what: str) -> None:
    count, size = 400, 100_000
    at_once = what == "one transaction"
    table = large(
        [1 if at_once else 1 + number for number in range(count)], list(range(count)) if at_once else [7] * count, size
    )
    world = LeafWorld(tmp_path, KEYED)
    pool, former = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))  # arrays of it may stay in caches, to the end of the process
    pa.set_memory_pool(pool)
    try:
        with holding(1_000_000):
            result = world.fold(table)
    finally:
        pa.set_memory_pool(former)
    assert result.events == count
    assert world.leaf.rows == (count if at_once else 1)
    assert result.ended == (0 if at_once else count - 1)
    assert pool.max_memory() < count * size // 4


def test_rows_without_a_key_that_no_array_holds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MAX_BYTES", 100)
    world = LeafWorld(tmp_path, KEYLESS)
    world.fold(events(KEYLESS, [Step(number, "c", {"id": number, "a": "text"}) for number in range(1, 40)]))
    with pytest.raises(MirrorError, match=r"a key, its own or by message\.key\.columns"):
        world.fold(events(KEYLESS, [Step(99, "c", {"id": 1, "a": "b"})]))
