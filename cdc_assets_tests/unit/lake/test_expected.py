"""What a topic should have is known whatever other programs do: a lost commit does not hide behind one of theirs."""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from cdc_assets.config.settings import LakeSettings
from cdc_assets.core.one_by_one import OneByOne
from cdc_assets.lake import expected
from cdc_assets.lake.audit import examine
from cdc_assets.lake.commits import Commit, read_commit
from cdc_assets.lake.expected import Expected, expected_rows, settled
from cdc_assets.lake.location import Location
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.replacing import DROPPED, Replacement, replace_files
from cdc_assets.lake.topics import TopicTables
from cdc_assets.lake.upkeep import Upkeep
from cdc_assets.lake.watch import ForeignWatch
from cdc_assets_tests.unit.lake.writing import join_all, nobody_else, schema_of, write

SCHEMA = schema_of(id=pa.int32())
TOPIC = "topic"


class Table:
    """A topic with a writer, other programs, and what should be in it."""

    def __init__(self, folder: Path) -> None:
        self.tables = TopicTables(Location(str(folder)), "shop")
        self.window, self.rows, self.losses = 0, 0, 0
        self.log = folder / TOPIC / "_delta_log"

    def append(self) -> None:
        self.window += 1
        files = write(self.tables, SCHEMA, self.window, {"id": self.window}, None)
        assert self.tables.commit(TOPIC, SCHEMA, files, self.window, {})
        self.rows += 2

    @property
    def handle(self) -> DeltaTable:
        return DeltaTable(self.tables.location.uri(TOPIC))

    @property
    def paths(self) -> list[str]:
        return pa.table(self.handle.get_add_actions())["path"].to_pylist()

    def append_foreign(self) -> None:
        write_deltalake(self.handle, pa.table({"position": ["x"] * 3}), mode="append", schema_mode="merge")
        self.rows += 3

    def delete_foreign(self) -> None:
        before = self.handle.to_pyarrow_table(columns=["window_id"])["window_id"].to_pylist()
        one = max((number for number in before if number is not None), default=None)
        if one is not None:
            self.handle.delete(f"window_id = {one}")
            self.rows -= before.count(one)

    def optimize(self) -> None:
        self.handle.optimize.compact()

    def update_foreign(self) -> None:
        self.handle.update(updates={"window_id": "window_id"}, predicate="window_id = 1")

    def join(self) -> None:
        join_all(self.tables, TOPIC)

    def drop(self) -> None:
        """What a retention does."""
        if self.paths:
            counts = pa.table(self.handle.get_add_actions())["num_records"].to_pylist()
            assert replace_files(self.tables, TOPIC, Replacement([self.paths[0]], (), counts[0]), nobody_else)
            self.rows -= counts[0]

    def present(self) -> int:
        return self.handle.to_pyarrow_table(columns=["position"]).num_rows

    def expected(self, mark: Mark) -> Expected:
        return expected_rows(self.tables, TOPIC, mark, self.handle.version())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table(tmp_path)
    for _ in range(3):
        made.append()
    return made


ACTIONS = (
    Table.append,
    Table.append_foreign,
    Table.delete_foreign,
    Table.optimize,
    Table.update_foreign,
    Table.join,
    Table.drop,
)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(25))
def test_what_is_expected_is_what_is_there_whatever_is_done(table: Table, seed: int) -> None:
    """From each mark that a writer made on the way."""
    dice, marks = random.Random(seed), dict(table.tables.fresh_marks())  # noqa: S311
    seen = [marks[TOPIC]]
    for _ in range(12):
        try:
            dice.choice(ACTIONS)(table)
        except DeltaError:
            continue  # Delta refuses it
        if (fresh := table.tables.fresh_marks()[TOPIC]) != seen[-1]:
            seen.append(fresh)
        assert table.present() == table.rows
        for mark in seen:
            assert table.expected(mark) == Expected(table.rows, is_sure=True)
    for mark in seen:
        assert settled(table.tables, TOPIC, mark).rows == table.rows


def test_what_is_settled_is_recorded_and_not_read_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def count_rows() -> list[int]:
        """Versions that are read."""
        read = list[int]()

        def recorded(location: Location, directory: str, version: int) -> Commit | None:
            read.append(version)
            return read_commit(location, directory, version)

        monkeypatch.setattr(expected, "read_commit", recorded)
        table.tables.count_rows(TOPIC, table.handle.version())
        return read

    count_rows()
    for _ in range(3):
        table.append_foreign()
        assert max(count_rows()) == table.handle.version()
        assert count_rows() == []
        mark = table.tables.fresh_marks()[TOPIC]
        assert (mark.rows, mark.counted, mark.version) == (table.rows, *[table.handle.version()] * 2)
    table.append()
    assert table.tables.fresh_marks()[TOPIC].rows == table.rows


def test_what_is_lost_behind_what_was_settled_is_missed(table: Table) -> None:
    table.append_foreign()
    table.tables.count_rows(TOPIC, table.handle.version())
    (table.log / f"{table.handle.version():020d}.json").unlink()
    table.tables.forget(TOPIC)
    table.tables.count_rows(TOPIC, table.handle.version())
    table.append_foreign()
    assert table.expected(table.tables.fresh_marks()[TOPIC]) == Expected(table.rows, is_sure=True)


def look(table: Table) -> None:
    table.tables.note_checked(TOPIC, table.handle.version())


def count_rows(table: Table) -> None:
    table.tables.count_rows(TOPIC, table.handle.version())


def forget_and_count(table: Table) -> None:
    table.tables.forget(TOPIC)
    count_rows(table)


def compare(table: Table) -> None:
    table.tables.expect(TOPIC, examine(table.tables, TOPIC, table.tables.fresh_marks()[TOPIC]).mark)


@pytest.mark.parametrize("count", [look, count_rows, forget_and_count, compare])
def test_the_newest_commit_is_missed_if_it_is_lost_after_it_was_read(
    table: Table, count: Callable[[Table], None]
) -> None:
    """Another program takes its version, and the writer goes on."""
    count(table)
    (table.log / f"{table.handle.version():020d}.json").unlink()
    table.append_foreign()
    table.append()
    assert table.present() == table.rows - 2
    assert table.expected(table.tables.fresh_marks()[TOPIC]) == Expected(table.rows, is_sure=True)


@pytest.mark.parametrize("seed", range(10))
def test_a_commit_that_is_lost_is_missed_though_others_commit(table: Table, seed: int) -> None:
    """The newest one is lost from the log, and another program takes its version."""
    dice, mark = random.Random(seed), table.tables.fresh_marks()[TOPIC]  # noqa: S311
    (table.log / f"{table.handle.version():020d}.json").unlink()
    table.tables.forget(TOPIC)
    for act in dice.sample([Table.append_foreign, Table.optimize, Table.update_foreign], 2):
        act(table)
    table.append_foreign()
    assert table.present() == table.rows - 2
    former = replace(mark, counted=mark.version - 1)
    assert table.expected(former) == Expected(table.rows, is_sure=True)


def forget(table: Table) -> None:
    table.tables.forget(TOPIC)


def vacuum(table: Table) -> None:
    Upkeep(table.tables, LakeSettings("")).vacuum(TOPIC)


def lose_commits(table: Table) -> None:
    """Those from the newest window on."""
    for version in range(table.tables.fresh_marks()[TOPIC].version, table.handle.version() + 1):
        (table.log / f"{version:020d}.json").unlink()


def lose_folder(table: Table) -> None:
    shutil.rmtree(table.log.parent)


@pytest.mark.parametrize("lose", [lose_commits, lose_folder])
@pytest.mark.parametrize("act", [forget, vacuum, Table.join])
def test_what_is_lost_after_upkeep_of_ours_is_missed_by_the_next_mark(
    table: Table, act: Callable[[Table], None], lose: Callable[[Table], None]
) -> None:
    """Each forgets the handle; what is there then is not taken for what should be there."""
    act(table)
    lose(table)
    table.append()
    assert table.present() < table.rows
    mark = table.tables.fresh_marks()[TOPIC]
    assert mark.rows == table.rows
    found = examine(TopicTables(table.tables.location, "shop"), TOPIC, mark).loss
    assert found is not None
    assert f"in place of {table.rows}" in found.what


def test_nothing_is_expected_of_a_table_whose_loss_is_recorded(table: Table) -> None:
    lose_folder(table)
    assert examine(table.tables, TOPIC, table.tables.fresh_marks()[TOPIC]).mark is None
    table.tables.expect(TOPIC, None)
    table.append()
    assert table.tables.fresh_marks()[TOPIC].rows == 2


def test_a_run_expects_what_is_recorded_and_not_what_an_earlier_one_has_seen(table: Table) -> None:
    lose_folder(table)
    table.tables.forget(TOPIC)
    table.tables.expect_recorded({"another": Mark(1, 1, 5)})
    table.append()
    assert table.tables.fresh_marks()[TOPIC].rows == 2


def test_a_removal_says_how_much_it_takes(table: Table) -> None:
    table.drop()
    found = read_commit(table.tables.location, TOPIC, table.handle.version())
    assert found is not None
    assert found.about[DROPPED] == "2"
    table.join()
    found = read_commit(table.tables.location, TOPIC, table.handle.version())
    assert found is not None
    assert DROPPED not in found.about


def test_files_that_are_damaged_and_taken_out_are_not_expected_any_more(table: Table) -> None:
    mark = table.tables.fresh_marks()[TOPIC]
    assert replace_files(table.tables, TOPIC, Replacement(table.paths[:1], dropped=None), nobody_else)
    assert table.expected(mark) == Expected(table.present(), is_sure=True)


def double(table: Table, *, has_counts: bool) -> None:
    """A rewrite of another program that was planned before ours; its log may not say how many rows its files have."""
    late = table.handle
    table.join()
    late.optimize.compact()
    path = table.log / f"{table.handle.version():020d}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if not has_counts and "add" in action:
            del action["add"]["stats"]
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    table.tables.forget(TOPIC)


@pytest.mark.parametrize("has_counts", [True, False])
@pytest.mark.parametrize("is_named", [True, False], ids=["named", "by an older version of the library"])
def test_rows_that_were_there_twice_are_not_expected_after_that_was_undone(
    table: Table, has_counts: bool, is_named: bool
) -> None:
    mark = table.tables.fresh_marks()[TOPIC]
    double(table, has_counts=has_counts)
    assert ForeignWatch(table.tables, OneByOne(), nobody_else).check([TOPIC]).keys() == {TOPIC}
    assert table.present() == table.rows
    path = table.log / f"{table.handle.version():020d}.json"
    assert f'"{DROPPED}":"{table.rows}"' in path.read_text().replace(" ", "")
    if not is_named:
        path.write_text(path.read_text().replace(DROPPED, "acme.dropped"))
    assert table.expected(mark) == Expected(table.rows, is_sure=True)


def test_a_removal_counts_though_the_log_before_it_is_gone(table: Table) -> None:
    """Another program commits and cleans the log up, then old events go, then the log of that goes, too."""
    mark = table.tables.fresh_marks()[TOPIC]
    table.append_foreign()
    table.rows -= 3  # that commit is gone before anybody has read it, so its rows are not expected
    table.append_foreign()
    clean_log(table)
    table.drop()
    assert table.expected(mark) == Expected(table.rows, is_sure=False)
    settled_mark = settled(table.tables, TOPIC, mark)
    assert settled_mark.rows == table.rows
    table.append()
    clean_log(table)
    assert table.expected(settled_mark) == Expected(table.rows, is_sure=True)


def clean_log(table: Table) -> None:
    table.handle.create_checkpoint()
    for path in sorted(table.log.glob("*.json"))[:-1]:
        path.unlink()
    table.tables.forget(TOPIC)


def test_where_the_log_is_gone_it_is_a_guess(table: Table) -> None:
    mark = replace(table.tables.fresh_marks()[TOPIC], counted=0)
    table.handle.create_checkpoint()
    (table.log / f"{1:020d}.json").unlink()
    assert table.expected(mark) == Expected(mark.rows, is_sure=False)
    assert settled(table.tables, TOPIC, mark) == mark
