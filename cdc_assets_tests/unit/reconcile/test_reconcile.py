"""Mirrors that are compared with the server: differences, in-flight changes, repairs."""

import itertools
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.capture import Capture
from cdc_assets.capture.reset import Reset
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import LSN_WIDTH
from cdc_assets.errors import CaptureNotReadyError, IncompleteReadError, PreflightError
from cdc_assets.lake.location import Location
from cdc_assets.ledger.state import CaptureState, LogHistory
from cdc_assets.mirror.delta import MirrorTables
from cdc_assets.reconcile import compare, tasks
from cdc_assets.reconcile.progress import Pass, Record
from cdc_assets.reconcile.run import Reconciler, Wishes
from cdc_assets.reconcile.subject import Subject
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.e2e.chains import MIRROR
from cdc_assets_tests.unit.reconcile.world import World
from mssql_standin.control import StandIn


@pytest.fixture
def world(server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("cdc_assets.adapters.sqlserver.ranges.MIN_ROWS_PER_RANGE", 10)
    rows = ", ".join(f"({at}, N'row {at}', N'{'x' * at}')" for at in range(1, 101))
    return World(server, str(tmp_path), "id int NOT NULL PRIMARY KEY, note nvarchar(50), big nvarchar(max)", rows)


def kinds(found: Pass) -> list[tuple[str, str]]:
    return sorted((one.kind, one.key.get("id", "")) for one in found.first)


def test_equal_tables_are_equal(world: World) -> None:
    world.change("UPDATE dbo.t SET note = NULL WHERE id < 10")
    found = world.reconcile()
    assert (found.rows, found.mirrored, found.differing, found.ended) == (100, 100, 0, True)
    assert found.lsn == world.mirrors().states()[world.topic].lsn


@pytest.mark.long
def test_what_the_log_does_not_record_is_found_and_mended(world: World) -> None:
    world.behind_the_log("UPDATE dbo.t SET note = N'changed silently' WHERE id = 7")
    world.behind_the_log("INSERT INTO dbo.t VALUES (1000, N'it''s new?', N'B')")
    found = world.reconcile(repair=True)
    assert kinds(found) == [("differs", "7"), ("not in the mirror", "1000")]
    [differs] = [one for one in found.first if one.kind == "differs"]
    assert (differs.server, differs.mirror) == ({"note": "changed silently"}, {"note": "row 7"})
    assert (found.differing, found.asked, found.absent) == (2, 2, 0)
    world.follow()
    world.follow()
    assert sorted(row["id"] for row in world.reads(world.table)) == [7, 1000]
    again = world.reconcile()
    assert (again.differing, again.rows, again.mirrored) == (0, 101, 101)
    assert world.rows() == world.on_server("id, note, big")


def test_rows_that_vanished_are_told(world: World) -> None:
    world.behind_the_log("DELETE FROM dbo.t WHERE id = 3")
    found = world.reconcile()
    assert kinds(found) == [("not on the server", "3")]
    assert (found.differing, found.absent, found.removed) == (1, 1, 0)
    assert "--repair removes" in found.summary


@pytest.mark.long
def test_rows_that_vanished_go_from_the_mirror_and_not_from_the_topic(world: World) -> None:
    """A mirror that is made anew lacks them, too; a row that comes again is there."""
    world.change("UPDATE dbo.t SET note = N'later than these' WHERE id = 5")
    events = len(world.events(world.table))
    world.behind_the_log("DELETE FROM dbo.t WHERE id IN (3, 4)")
    found = world.reconcile(repair=True)
    assert (found.differing, found.absent, found.removed, found.asked) == (2, 2, 2, 0)
    assert world.rows() == world.on_server("id, note, big")
    assert len(world.events(world.table)) == events
    assert world.reconcile().differing == 0
    [ended] = [row for row in world.versions() if row["id"] == 3]
    assert (ended["_valid_to_lsn"], ended["_operation"]) == (found.lsn, "r")
    world.change("INSERT INTO dbo.t VALUES (3, N'again', N'A')")
    world.change("UPDATE dbo.t SET note = N'other' WHERE id = 5")
    for anew in (False, True, True):
        assert not world.mirrors().catch_up(anew=anew)
        assert world.rows() == world.on_server("id, note, big")
    assert world.reconcile().differing == 0


@pytest.mark.parametrize("step", ["absence-recorded", *MIRROR])
def test_a_removal_that_dies_is_carried_out_by_the_next_step(world: World, step: str) -> None:
    world.change("UPDATE dbo.t SET note = N'later than that' WHERE id = 5")
    assert not world.mirrors().catch_up()
    world.behind_the_log("DELETE FROM dbo.t WHERE id = 3")
    with cut_at(step), pytest.raises(PowerCutError):
        world.reconcile(repair=True)
    world.change("UPDATE dbo.t SET note = N'other' WHERE id = 5")
    assert not world.mirrors().catch_up()
    assert world.rows() == world.on_server("id, note, big")
    assert len([row for row in world.versions() if row["id"] == 3]) == 1
    assert world.reconcile().differing == 0


@pytest.mark.long
def test_a_row_that_came_again_before_it_was_removed_stays(world: World) -> None:
    """The mirror goes on between the comparison and the removal."""
    assert not world.mirrors().catch_up()
    lsn = world.mirrors().states()[world.topic].lsn
    world.change("UPDATE dbo.t SET note = N'alive' WHERE id = 3")
    assert not world.mirrors().catch_up()
    mirrors = world.mirrors()
    assert mirrors.remove(world.table, lsn, pa.table({"id": pa.array([3, 4], pa.int32())})) == 2
    assert not mirrors.catch_up()
    for anew in (False, True):
        assert not world.mirrors().catch_up(anew=anew)
        assert {row for row in world.on_server("id, note, big") if "'id': 4," not in row} == set(world.rows())


@pytest.mark.long
def test_a_row_that_was_read_again_where_it_was_missing_is_in_a_mirror_that_is_made_anew(world: World) -> None:
    """Nothing was committed between, so the READ has the LSN at which the row was missing; its window is a later one."""
    world.behind_the_log("DELETE FROM dbo.t WHERE id IN (3, 4)")
    assert world.reconcile(repair=True).removed == 2
    world.behind_the_log("INSERT INTO dbo.t VALUES (3, N'again', N'A')")
    with SqlServerSource(world.config.connection) as source:
        bulk = MssqlBulkSource(world.config.connection)
        Capture(world.config, source, bulk, LocalRunner(2), SystemClock()).snapshot([world.table])
    [absence] = world.mirrors().states()[world.topic].absences
    assert absence.lsn in {row["position"][:LSN_WIDTH] for row in world.events(world.table) if "again" in repr(row)}
    for anew in (False, True):
        assert not world.mirrors().catch_up(anew=anew)
        assert world.rows() == world.on_server("id, note, big")


@pytest.mark.long
def test_no_more_rows_are_removed_than_the_ledger_may_name(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_assets.mirror.capture.MAX_MISSING", 2)
    world.behind_the_log("DELETE FROM dbo.t WHERE id IN (3, 4, 5)")
    found = world.reconcile(repair=True)
    assert (found.absent, found.removed) == (3, 2)
    assert "after a gap" in found.summary
    assert world.reconcile().absent == 1


@pytest.mark.long
def test_a_row_that_differs_in_many_is_not_taken_for_one_that_vanished(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of both sides the same keys are listed, though one has rows in front of them that the other lacks."""
    monkeypatch.setattr(compare, "MAX_CHANGED", 10)
    world.behind_the_log("INSERT INTO dbo.t SELECT -id, N'new', NULL FROM dbo.t WHERE id <= 20")
    world.behind_the_log("UPDATE dbo.t SET note = N'silent' WHERE id BETWEEN 1 AND 15")
    world.behind_the_log("DELETE FROM dbo.t WHERE id = 5")
    found = world.reconcile(repair=True)
    assert {one.kind for one in found.first} <= {"differs", "not in the mirror", "not on the server"}
    assert [one.key["id"] for one in found.first if one.kind == "not on the server"] == ["5"]
    assert (found.differing, found.asked, found.absent, found.removed, found.left) == (35, 34, 1, 1, 0)
    for _ in range(2):
        world.follow()
    assert world.reconcile().differing == 0
    assert world.rows() == world.on_server("id, note, big")
    assert [row["id"] for row in world.versions() if row["_operation"] == "r" and row["id"] not in range(1, 16)] == []


@pytest.mark.long
def test_rows_that_vanished_in_great_number_have_no_others_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows that a READ mends are named, so not the whole key ranges are read."""
    monkeypatch.setattr(compare, "MAX_CHANGED", 2)
    world.behind_the_log("DELETE FROM dbo.t WHERE id BETWEEN 2 AND 6")
    world.behind_the_log("UPDATE dbo.t SET note = N'silent' WHERE id = 7")
    found = world.reconcile(repair=True)
    assert (found.differing, found.asked, found.absent, found.removed) == (6, 1, 5, 2)
    for _ in range(2):
        world.follow()
    assert [row["id"] for row in world.reads(world.table)] == [7]


@pytest.mark.long
def test_each_round_of_repairs_finds_what_the_one_before_has_only_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that vanished do not hide others, nor others these; none that is only counted is taken for repaired."""
    monkeypatch.setattr(compare, "MAX_CHANGED", 4)
    monkeypatch.setattr("cdc_assets.mirror.capture.MAX_MISSING", 10)
    world.behind_the_log("DELETE FROM dbo.t WHERE id BETWEEN 30 AND 39")
    world.behind_the_log("UPDATE dbo.t SET note = N'silent' WHERE id BETWEEN 1 AND 9 OR id BETWEEN 41 AND 50")
    lacking = []
    for _ in range(6):
        found = world.reconcile(repair=True)
        lacking.append(found.left)
        for _ in range(2):
            world.follow()
        assert not world.mirrors().catch_up()
        if not found.differing:
            break
    assert world.rows() == world.on_server("id, note, big")
    assert (found.differing, len(lacking) > 2) == (0, True)
    assert all(lacking[:-2]), "one was called equal before it was"


def test_large_values_are_shown_as_digests(world: World) -> None:
    world.behind_the_log(f"UPDATE dbo.t SET big = N'{'y' * 5000}' WHERE id = 7")
    [differs] = world.reconcile().first
    assert differs.mirror == {"big": "xxxxxxx"}
    assert differs.server["big"].startswith("5000 long, SHA-256 ")


@pytest.mark.long
def test_a_change_in_flight_is_no_difference(world: World) -> None:
    """The capture follows only after the rows were read."""
    world.sql("UPDATE dbo.t SET note = N'new' WHERE id > 50")
    world.sql("DELETE FROM dbo.t WHERE id = 5")
    world.sql("INSERT INTO dbo.t VALUES (2000, N'new', NULL)")
    late = threading.Timer(1.0, world.follow)
    late.start()
    found = world.reconcile()
    late.join()
    assert found.differing == 0, found.first


def test_rows_that_share_a_key_in_the_mirror_are_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has doubled them: one that agrees with the server does not make up for the other."""
    world.behind_the_log("DELETE FROM dbo.t WHERE id = 9")
    read_rows = tasks.read_rows

    def doubled(*given: Any) -> pa.Table:
        rows = read_rows(*given)
        if given[1] != f"{world.topic}.__current":
            return rows
        again = rows.filter(pc.is_in(rows["id"], value_set=pa.array([5, 9], pa.int32())))
        other = pa.repeat(pa.scalar("another"), again.num_rows)
        return pa.concat_tables([rows, again.set_column(again.schema.get_field_index("note"), "note", other)])

    monkeypatch.setattr(tasks, "read_rows", doubled)
    found = world.reconcile(repair=True)
    assert kinds(found) == [("more than once in the mirror", "5"), ("more than once in the mirror", "9")]
    assert (found.differing, found.doubled, found.absent, found.asked) == (2, 2, 0, 0)
    assert "2 are in the mirror more than once: rebuild it" in found.summary


@pytest.mark.long
def test_differences_behind_many_changes_in_flight_are_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "MAX_CHANGED", 10)
    world.behind_the_log("UPDATE dbo.t SET note = N'silent' WHERE id > 95")
    world.sql("UPDATE dbo.t SET note = N'new' WHERE id < 80")
    late = threading.Timer(1.0, world.follow)
    late.start()
    found = world.reconcile()
    late.join()
    assert found.differing == 5, found.first
    assert kinds(found) == [("differs", str(at)) for at in (100, 96, 97, 98, 99)]


@pytest.mark.long
def test_deletions_in_flight_are_not_counted_beside_a_row_that_differs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many rows that only the mirror has, those that are listed are all in flight, so nothing is known of the others."""
    monkeypatch.setattr(compare, "MAX_CHANGED", 2)
    world.behind_the_log("UPDATE dbo.t SET note = N'silent' WHERE id = 9")
    compared, turns = Reconciler._compared, iter((11, 21))

    def beside_deletions(self: Reconciler, *given: Any) -> Any:
        if begin := next(turns, None):
            world.sql(f"DELETE FROM dbo.t WHERE id BETWEEN {begin} AND {begin + 4}")
        try:
            return compared(self, *given)
        finally:
            world.follow()

    monkeypatch.setattr(Reconciler, "_compared", beside_deletions)
    found = world.reconcile()
    assert (kinds(found), found.differing, found.absent) == ([("differs", "9")], 1, 0)


@pytest.mark.long
def test_a_table_of_which_very_many_rows_change_all_the_time_is_not_told_to_be_equal(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "MAX_CHANGED", 10)
    compared, turns = Reconciler._compared, itertools.count()

    def beside_changes(self: Reconciler, *given: Any) -> Any:
        world.sql(f"UPDATE dbo.t SET note = N'turn {next(turns)}'")
        try:
            return compared(self, *given)
        finally:
            world.follow()

    monkeypatch.setattr(Reconciler, "_compared", beside_changes)
    with pytest.raises(CaptureNotReadyError, match="when less is written"):
        world.reconcile()


@pytest.mark.long
def test_a_leaf_that_a_step_replaces_meanwhile_is_compared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the server has no rows of it."""
    assert not world.mirrors().catch_up()
    world.behind_the_log("DELETE FROM dbo.t")
    compare_tasks, turns = Subject.compare_tasks, itertools.count()

    def beside_a_step(self: Subject, tables: MirrorTables, *given: Any) -> Any:
        if not (turn := next(turns)):
            world.change(f"INSERT INTO dbo.t VALUES ({1000 + turn}, N'later', NULL)")
            assert not world.mirrors().catch_up()
            tables.tables.forget(self.compared.current)
        return compare_tasks(self, tables, *given)

    monkeypatch.setattr(Subject, "compare_tasks", beside_a_step)
    found = world.reconcile()
    assert (found.differing, found.absent) == (100, 100)


@pytest.mark.long
def test_equal_while_a_writer_works(world: World) -> None:
    stop = threading.Event()

    def write() -> None:
        at = 0
        while not stop.wait(0.05):
            at += 1
            world.sql(f"UPDATE dbo.t SET note = N'v{at}' WHERE id % 10 = {at % 10}")
            world.sql(f"DELETE FROM dbo.t WHERE id = {5000 + at - 1}")
            world.sql(f"INSERT INTO dbo.t VALUES ({5000 + at}, N'w', N'W')")

    def capture() -> None:
        while not stop.is_set():
            world.run()

    streaming = replace(world.config.streaming, max_iteration_transactions=1000, max_duration_s=2.0, idle_timeout_s=0.3)
    world.config = replace(world.config, streaming=streaming)
    threads = [threading.Thread(target=write), threading.Thread(target=capture)]
    for thread in threads:
        thread.start()
    try:
        found = world.reconcile(timeout_s=120)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert found.differing == 0, found.first
    assert found.ended


def test_a_mirror_that_does_not_follow_is_told(world: World) -> None:
    world.sql("UPDATE dbo.t SET note = N'new' WHERE id = 1")
    world.server.agent.drain()
    with pytest.raises(CaptureNotReadyError, match="let the capture run"):
        world.reconcile(timeout_s=0.5)


@pytest.mark.long
def test_some_ranges_at_a_time(world: World) -> None:
    world.behind_the_log("UPDATE dbo.t SET note = N'silent' WHERE id IN (1, 99)")
    world.behind_the_log("DELETE FROM dbo.t WHERE id = 2")
    first = world.reconcile(ranges=1)
    assert len(first.ranges) > 4
    assert (first.done, first.ended, kinds(first)) == (1, False, [("differs", "1"), ("not on the server", "2")])
    rest = world.reconcile()
    assert (rest.rows, rest.mirrored, rest.differing, rest.ended) == (99, 100, 3, True)
    assert kinds(rest) == [("differs", "1"), ("differs", "99"), ("not on the server", "2")]
    assert world.reconcile(ranges=1).began > rest.began, "a new pass begins when one is complete"


@pytest.mark.long
def test_what_differed_counts_until_it_is_compared_again(world: World) -> None:
    world.behind_the_log("UPDATE dbo.t SET note = N'silent' WHERE id = 99")
    assert world.reconcile().left == 1
    again = world.reconcile(ranges=1)
    assert (again.differing, again.left, again.ended) == (0, 1, False)
    assert "1 rows differed in the comparison before" in again.summary
    world.behind_the_log("UPDATE dbo.t SET note = N'row 99' WHERE id = 99")
    assert world.reconcile().left == 0


def test_a_comparison_that_dies_continues_behind_what_it_has_recorded(world: World) -> None:
    world.behind_the_log("UPDATE dbo.t SET note = N'silent' WHERE id IN (1, 99)")
    done: list[int] = []

    def die(table: TableId, found: Pass) -> None:
        done.append(found.done)
        raise PowerCutError

    with world.reconciler() as reconciler, pytest.raises(PowerCutError):
        reconciler.reconcile(world.table, Wishes(), die)
    later: list[int] = []
    with world.reconciler() as reconciler:
        rest = reconciler.reconcile(world.table, Wishes(), lambda _, found: later.append(found.done))
    assert later[0] > done[0]
    assert (rest.rows, rest.ended, kinds(rest)) == (100, True, [("differs", "1"), ("differs", "99")])


@pytest.mark.long
def test_a_comparison_of_a_mirror_that_was_rebuilt_starts_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was compared was the mirror before."""
    assert world.reconcile(ranges=2).done == 2
    assert world.reconcile(ranges=1).done == 3
    world.mirrors().catch_up([world.table], anew=True)
    assert world.reconcile(ranges=1).done == 1
    group = Reconciler._group

    def rebuild(*asked: Any) -> Pass:
        found = group(*asked)
        world.mirrors().catch_up([world.table], anew=True)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Reconciler, "_group", rebuild)
        with pytest.raises(CaptureNotReadyError, match="was rebuilt while it was compared"):
            world.reconcile(ranges=1)
    assert world.reconcile(ranges=1).done == 1


@pytest.mark.long
def test_so_does_one_that_was_recorded_while_the_capture_was_reset(world: World) -> None:
    """Another process may have begun to write when the folder of comparisons was moved away."""
    assert world.reconcile(ranges=2).done == 2
    record = Record(Location.of(world.config.lake), "shop")
    known = record.read(world.topic)
    reset = Reset(world.config, SystemClock(), [world.mirrors().tables.tables])
    reset.move_away(reset.removal())
    record.write(world.topic, known)
    world.run("snapshot")
    assert world.reconcile(ranges=1).done == 1


def test_a_table_that_is_forgotten_meanwhile_is_not_compared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Subject.leaves

    def leaves(subject: Subject, tables: MirrorTables) -> Any:
        Reset(world.config, SystemClock()).forget([subject.schema.table])
        return ask(subject, tables)

    monkeypatch.setattr(Subject, "leaves", leaves)
    with pytest.raises(PreflightError, match="not captured any more"):
        world.reconcile()


def test_a_table_without_a_mirror_that_is_right_is_refused(world: World) -> None:
    world.sql("EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N't', @capture_instance = N'all'")
    world.follow()
    with pytest.raises(PreflightError, match="not streamed"):
        world.reconcile()


def instance(what: str, name: str) -> str:
    role = ", @role_name = NULL" if what == "enable" else ""
    return (
        f"EXEC sys.sp_cdc_{what}_table @source_schema = N'dbo', @source_name = N't', "
        f"@capture_instance = N'{name}'{role}"
    )


@pytest.mark.long
def test_columns_of_an_instance_whose_name_was_used_before_are_compared_too(world: World) -> None:
    for number, (new, old) in enumerate([("other", "dbo_t"), ("dbo_t", "other")], 1):
        world.sql(f"ALTER TABLE dbo.t ADD c{number} int")
        world.sql(instance("enable", new))
        world.change(f"UPDATE dbo.t SET c{number} = id")
        world.sql(instance("disable", old))
    assert world.reconcile().differing == 0
    world.behind_the_log("UPDATE dbo.t SET c2 = -1 WHERE id = 7")
    assert kinds(world.reconcile()) == [("differs", "7")]


@pytest.mark.long
def test_a_table_whose_instance_was_dropped_is_told_by_its_gap(world: World) -> None:
    world.sql(instance("enable", "other"))
    world.sql(instance("disable", "dbo_t"))
    assert world.reconcile().differing == 0, "nothing has changed"
    world.sql("INSERT INTO dbo.cdc_signal VALUES ('x', 'log', '{}')")
    world.follow()
    with pytest.raises(PreflightError, match="dbo_t was dropped before it was completely read"):
        world.reconcile()


def test_a_server_on_a_fork_that_was_left_does_not_say_what_is_in_flight(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not follow a forced failover, so the mirror has long passed its newest transaction. The rows are another server's."""
    world.behind_the_log("DELETE FROM dbo.t WHERE id = 3")
    with SqlServerSource(world.config.connection) as source:
        fork = source.recovery_fork(world.table.database)
    assert fork is not None
    reaching = MssqlBulkSource.reaching
    monkeypatch.setattr(CaptureState, "log", lambda *_: LogHistory("B", former=(fork.identity,)))
    monkeypatch.setattr(MssqlBulkSource, "reaching", lambda bulk, *given, **_: reaching(bulk, *given, captured=False))
    with pytest.raises(IncompleteReadError, match="recovery fork"):
        world.reconcile()
