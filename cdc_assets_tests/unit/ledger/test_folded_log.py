"""A state that is the fold of rows, with a number as the state."""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction
from pyarrow import fs

from cdc_assets.config.settings import LakeSettings
from cdc_assets.core.steps import listening
from cdc_assets.errors import FencedError, LakeFullError
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.lake.upkeep import Upkeep
from cdc_assets.ledger.fenced_log import FencedLog, Row
from cdc_assets.ledger.folded_log import FoldedLog, Folding
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.e2e.chains import CHECKPOINT

NOW = datetime(2026, 10, 1, tzinfo=UTC)


def after(state: int, row: Row) -> int:
    number = int(json.loads(row["detail"])["number"])
    return number if row["event"] == "state" else state + number


class Sum(FoldedLog[int]):
    def __init__(self, path: Path, every: int = 3, size: int = 1000) -> None:
        self.done: list[int] = []
        """Rows that were folded."""

        def counted(state: int, row: Row) -> int:
            self.done.append(row["sequence"])
            return after(state, row)

        folding = Folding(0, counted, lambda state: {"number": state})
        self.tables = TopicTables(Location(str(path)), "sum")
        super().__init__(self.tables, "sum", folding, every=every, keep=10, size=size)

    def claim(self) -> "Sum":
        self._take_over()
        return self

    def add(self, number: int) -> None:
        self._append(NOW, "added", {"number": number})
        self._fold_if_due(NOW)


def counting(opened: list[str]) -> Callable[[FencedLog, fs.FileSystem, str], Sequence[Row]]:
    """Reads files as the log does, and notes which."""
    read = FencedLog._read

    def counted(log: FencedLog, files: fs.FileSystem, path: str) -> Sequence[Row]:
        opened.append(path)
        return read(log, files, path)

    return counted


def test_the_fold_is_what_its_rows_were(tmp_path: Path) -> None:
    total = Sum(tmp_path).claim()
    for number in range(1, 9):
        total.add(number)
        assert Sum(tmp_path).read() == total.state == sum(range(number + 1))
    assert [row["event"] for row in total.rows()].count("state") == 2
    assert Sum(tmp_path).claim().state == 36


def test_rows_kept_for_people_are_not_folded_at_every_claim(tmp_path: Path) -> None:
    for number in range(1, 13):
        total = Sum(tmp_path).claim()
        total.add(number)
        assert total.folded == (number % 3 == 0)


@pytest.mark.parametrize("more", range(5))
def test_a_writer_that_has_read_before_reads_only_what_came_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """Also if others have replaced the rows by their fold meanwhile; and its own fold is due when theirs would be."""
    for number in range(4):
        total = Sum(tmp_path).claim()
        total.add(number)
    later, opened = Sum(tmp_path), list[str]()
    later.read()
    for _ in range(more):
        total.add(1)
    monkeypatch.setattr(FencedLog, "_read", counting(opened))
    assert later.claim().state == total.state == 6 + more
    assert (len(opened) == 0) == (more == 0)
    afresh = Sum(tmp_path)
    assert afresh.claim()._since_fold == later._since_fold


def test_a_sleeper_is_told_though_the_log_behind_its_last_row_is_gone(tmp_path: Path) -> None:
    sleeper = Sum(tmp_path).claim()
    sleeper.add(1)
    sleeper.require_writer()
    other = Sum(tmp_path).claim()
    for _ in range(2):
        other.add(1)
    handle = DeltaTable(str(tmp_path / "sum"))
    handle.create_checkpoint()
    for version in range(handle.version()):
        (tmp_path / "sum" / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(FencedError):
        sleeper.require_writer()


@pytest.mark.parametrize("step", CHECKPOINT)
def test_a_writer_may_die_when_it_folds(tmp_path: Path, step: str) -> None:
    total = 0
    for number in range(1, 20):
        writer = Sum(tmp_path).claim()
        assert writer.state == total
        with cut_at(step), suppress(PowerCutError):
            writer.add(number)
        total += number
        assert Sum(tmp_path).read() == total
    folds = [row["event"] for row in Sum(tmp_path).rows()].count("state")
    assert (folds > 0) == (step == "checkpoint-written"), "nobody lived to fold them"
    Sum(tmp_path).claim().add(20)
    assert Sum(tmp_path).read() == Sum(tmp_path).claim().state == 210
    assert Sum(tmp_path).rows()[-1]["event"] == "state" or step == "checkpoint-written"


@pytest.mark.parametrize("step", ["checkpoint-begun", "checkpoint-prepared"])
def test_a_writer_that_was_believed_dead_does_not_replace_rows_of_the_next_one(tmp_path: Path, step: str) -> None:
    late = Sum(tmp_path).claim()
    late.add(1)
    late.add(2)

    def overtake(name: str) -> None:
        if name == step and Sum(tmp_path).read() == 6:
            Sum(tmp_path).claim().add(4)

    with listening(overtake), pytest.raises(FencedError):
        late.add(3)
    assert Sum(tmp_path).read() == 10


def test_what_a_fold_replaced_is_removed_from_disk(tmp_path: Path) -> None:
    total = Sum(tmp_path).claim()
    for number in range(1, 4):
        total.add(number)
    files = set((tmp_path / "sum").glob("*.parquet"))
    for file in files:
        os.utime(file, (0, 0))
    total.vacuum_if_folded(Upkeep(total.tables, LakeSettings(str(tmp_path), retention_hours=0)))
    left = set((tmp_path / "sum").glob("*.parquet"))
    assert left < files
    assert (total.folded, Sum(tmp_path).read()) == (False, 6)


def test_a_full_disk_leaves_the_rows_for_a_later_fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: FencedLog, row: Row, keep: int) -> None:
        raise LakeFullError("No space is left. Next: remove something.")

    total = Sum(tmp_path).claim()
    with monkeypatch.context() as full:
        full.setattr(FencedLog, "replace", refuse)
        for number in range(4):
            total.add(number)
    assert (total.folded, Sum(tmp_path).read()) == (False, 6)
    total.add(4)
    assert (total.folded, Sum(tmp_path).read()) == (True, 10)


@pytest.mark.long
def test_a_reader_reads_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    total, reader = Sum(tmp_path).claim(), Sum(tmp_path)
    for number in range(1, 20):
        total.add(number)
        opened.clear()
        with monkeypatch.context() as patched:
            patched.setattr(FencedLog, "_read", counting(opened))
            assert reader.read() == total.state == sum(range(number + 1))
        assert len(opened) == 1
        assert len(reader.rows()) == len(Sum(tmp_path).rows())
    assert reader.read() == Sum(tmp_path).read()


def test_a_reader_folds_each_row_once(tmp_path: Path) -> None:
    total, reader = Sum(tmp_path, every=5).claim(), Sum(tmp_path, every=5)
    for number in range(1, 20):
        total.add(number)
        assert reader.read() == total.state == sum(range(number + 1))
        assert reader.done[-1] == total.rows()[-1]["sequence"]
    assert len(reader.done) == len(set(reader.done))
    reader.claim()
    assert (reader.state, len(reader.done)) == (total.state, len(set(reader.done))), (
        "nor does it when it becomes the writer"
    )
    reader.add(20)
    assert total.read() == reader.read() == reader.state == 210


def test_a_reader_folds_anew_what_a_restored_copy_holds(tmp_path: Path) -> None:
    """Rows of the same numbers that are others."""
    total = Sum(tmp_path / "lake", every=100).claim()
    total.add(1)
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    total.add(2)
    total.add(3)
    reader = Sum(tmp_path / "lake", every=100)
    assert reader.read() == 6
    shutil.rmtree(tmp_path / "lake")
    shutil.copytree(tmp_path / "copy", tmp_path / "lake")
    assert reader.read() == 1
    later = Sum(tmp_path / "lake", every=100).claim()
    for number in (10, 20, 30):
        later.add(number)
    assert reader.read() == 61
    assert reader.claim().state == 61


def test_large_rows_are_folded_before_there_are_many(tmp_path: Path) -> None:
    size = len('{"number":1}')
    total = Sum(tmp_path, every=100, size=3 * size).claim()
    folded = []
    for number in range(1, 9):
        total.folded = False
        total = total if number % 2 else Sum(tmp_path, every=100, size=3 * size).claim()
        total.add(1)
        folded.append(total.folded)
    assert folded == [False, False, True] * 2 + [False, False]
    assert Sum(tmp_path).read() == 8


def test_a_large_fold_is_not_made_anew_for_each_row(tmp_path: Path) -> None:
    total = Sum(tmp_path, every=100, size=1).claim()
    total.add(10**40)
    assert total.folded
    total.folded = False
    total.add(1)
    assert not total.folded
    assert Sum(tmp_path, every=100, size=1).claim().state == 10**40 + 1


# ---- beside another program that rewrites files ------------------------------------------------------------------------


def optimize(path: Path) -> None:
    DeltaTable(str(path / "sum")).optimize.compact()


@pytest.mark.parametrize("step", ["checkpoint-begun", "checkpoint-prepared", "replacement-checked"])
def test_files_may_be_rewritten_while_rows_are_folded(tmp_path: Path, step: str) -> None:
    total = Sum(tmp_path).claim()
    total.add(1)
    total.add(2)
    waiting = [step]

    def listen(name: str) -> None:
        if waiting and name == step:
            waiting.pop()
            optimize(tmp_path)

    with listening(listen):
        total.add(3)
    assert (waiting, total.folded) == ([], True)
    assert [row["sequence"] for row in total.rows()] == [1, 2, 3, 4]
    assert len(DeltaTable(str(tmp_path / "sum")).file_uris()) == 1
    total.add(4)
    assert Sum(tmp_path).read() == Sum(tmp_path).claim().state == 10


@pytest.mark.long
def test_a_loop_of_rewrites_beside_a_writer_harms_nobody(tmp_path: Path) -> None:
    """Planned before each row and committed after it, as far as delta-rs allows."""
    total = Sum(tmp_path).claim()
    total.add(0)
    reader = Sum(tmp_path)
    for number in range(1, 40):
        late = DeltaTable(str(tmp_path / "sum"))
        total.add(number)
        with suppress(CommitFailedError):
            late.optimize.compact()
        assert total.state == reader.read() == Sum(tmp_path).claim().state == sum(range(number + 1))


def test_rows_that_a_rewrite_brings_back_are_read_once(tmp_path: Path) -> None:
    """What another program may commit that does not look whether files are still there."""
    total, reader = Sum(tmp_path).claim(), Sum(tmp_path)
    total.add(1)
    handle = DeltaTable(str(tmp_path / "sum"))
    [file] = pa.table(handle.get_add_actions()).to_pylist()
    for number in range(2, 8):
        total.add(number)
    back = AddAction(file["path"], file["size_bytes"], {}, file["modification_time"], False, '{"numRecords":1}')
    handle = DeltaTable(str(tmp_path / "sum"))
    handle.create_write_transaction([back], "append", handle.schema())
    assert total.state == reader.read() == Sum(tmp_path).read() == Sum(tmp_path).claim().state == 28
    for number in range(8, 12):
        total.add(number)
    assert total.state == reader.read() == Sum(tmp_path).claim().state == 66
    numbers = [row["sequence"] for row in total.rows()]
    assert numbers == sorted(set(numbers))


def test_a_writer_asks_whether_it_was_overtaken(tmp_path: Path) -> None:
    first = Sum(tmp_path).claim()
    first.add(1)
    first.require_writer()
    optimize(tmp_path)
    first.require_writer()
    Sum(tmp_path).claim().add(2)
    with pytest.raises(FencedError):
        first.require_writer()
