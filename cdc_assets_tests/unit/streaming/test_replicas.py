"""Readable replicas that lag, and reads that do not bring everything: read again, and nothing is lost."""

import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.capture.capture import Capture
from cdc_assets.capture.reset import Reset
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import RecoveryFork
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.core.steps import listening
from cdc_assets.errors import IncompleteReadError
from cdc_assets.lake.location import Location
from cdc_assets.ledger.state import TableRead
from cdc_assets.shared.instances import before
from cdc_assets.streaming.row_counts import check_rows, counted, together
from cdc_assets_tests.unit.shared.losses.losing import lose_newest_file
from cdc_assets_tests.unit.streaming import simulation
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import DATABASE, SimulatedBulk, SimulatedClock, SimulatedServer
from cdc_assets_tests.unit.streaming.tables import started, stream_until, told


def route_to_lagging_replica(server: SimulatedServer, reads: int) -> list[str]:
    """Tasks read a replica that has what the server has now, until it catches up at a read; the statements so far."""
    replica, statements = copy.deepcopy(server), list[str]()

    def note(statement: str) -> None:
        statements.append(statement)
        if len(statements) == reads:
            replica.rows, replica.captured = copy.deepcopy(server.rows), server.captured
            replica.instances, replica.change_tables = server.instances, server.change_tables

    replica.before_read, server.routed = note, replica
    return statements


def test_a_window_is_read_again_where_a_replica_lags(tmp_path: Path) -> None:
    server, config, _lines, orders = started(tmp_path)
    statements = route_to_lagging_replica(server, reads=3)
    server.commit((orders, "insert", 11, "b"))
    make_capture(server, config).stream()
    assert len(statements) > 3
    assert [event.key for event in events_of(config, orders)] == [1, 2, 3, 10, 11]
    assert state_of(config).tables[orders].position == server.captured


def test_no_position_passes_changes_that_a_replica_has_not_got(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control session is routed elsewhere between the two questions of an idle database."""
    server, config, _lines, orders = started(tmp_path)
    reached, asked, ask = server.captured, list[Lsn](), SimulatedServer.max_transaction_lsn
    server.commit((orders, "insert", 11, "b"))

    def routed(
        source: SimulatedServer, database: str, after: Lsn | None, limit: int, known: Lsn = ZERO_LSN
    ) -> Lsn | None:
        asked.append(known)
        if len(asked) > 2:
            return ask(source, database, after, limit, known)
        if known > reached:
            raise IncompleteReadError("It lags.")
        return None

    monkeypatch.setattr(SimulatedServer, "max_transaction_lsn", routed)
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, orders)] == [1, 2, 3, 10, 11]
    assert asked[:2] == [ZERO_LSN, server.captured]


def test_a_capture_instance_that_a_replica_has_not_got_is_read_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control session is routed elsewhere between the question how far the log is and that for instances."""
    server, config, _lines, orders = started(tmp_path)
    reached, former, ask = server.captured, list(server.instances), SimulatedServer.capture_instances
    server.add_column(orders, "extra")
    server.enable(orders)
    server.rows[orders][1]["extra"] = "more"
    server.commit((orders, "update", 1, "b"))
    routed = iter([True, True])

    def lagging(source: SimulatedServer, database: str, known: Lsn = ZERO_LSN) -> Sequence[CaptureInstance]:
        if not next(routed, False):
            return ask(source, database, known)
        if known > reached:
            raise IncompleteReadError("It lags.")
        return former

    monkeypatch.setattr(SimulatedServer, "capture_instances", lagging)
    make_capture(server, config).stream()
    assert [event.after for event in events_of(config, orders)][-1] == {"id": 1, "note": "b", "extra": "more"}


def test_rows_of_a_secondary_that_did_not_follow_a_forced_failover_are_not_taken(tmp_path: Path) -> None:
    """It is captured as far as the new primary, with another transaction of the same LSN."""
    server, config, _lines, orders = started(tmp_path)
    former, statements = copy.deepcopy(server), list[str]()
    lost = former.commit((orders, "insert", 11, "lost"))
    server.fork = RecoveryFork("B", lost)
    make_capture(server, config).stream()

    def follow(statement: str) -> None:
        statements.append(statement)
        if len(statements) == 3:
            former.fork, former.change_tables = server.fork, server.change_tables

    former.before_read, server.routed = follow, former
    assert server.commit((orders, "insert", 12, "kept")) == lost
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, orders)] == [1, 2, 3, 10, 12]


@pytest.mark.parametrize("shown", ["nothing", "its predecessor"])
def test_a_table_that_a_replica_has_not_got_yet_is_not_gone(tmp_path: Path, shown: str) -> None:
    server, config, _lines, orders = started(tmp_path)
    now, there = server.captured, server.instances
    former = [replace(one, source_object_id=1) if one.table == orders else one for one in there]
    server.is_secondary, server.captured = True, ZERO_LSN.next()
    server.instances = [one for one in former if shown != "nothing" or one.table != orders]

    def catch_up(_: float) -> None:
        server.captured, server.instances = now, there

    server.meanwhile = catch_up
    make_capture(server, config).stream()
    assert state_of(config).tables[orders].streams
    assert ("DROP", "orders") not in told(config)
    server.instances = [one for one in there if one.table != orders]
    make_capture(server, config).stream()
    assert ("DROP", "orders") in told(config), "it has the log up to there"


def test_a_table_is_not_gone_though_the_connection_breaks_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secondary that lags shows its predecessor, the primary says that it is none, and the secondary shows the same again."""
    server, config, _lines, orders = started(tmp_path)
    server.commit((orders, "insert", 11, "b"))
    there, left = list(server.instances), 2
    former = [replace(one, source_object_id=1) if one.table == orders else one for one in there]

    def lagging(database: str, known: Lsn = ZERO_LSN) -> Sequence[CaptureInstance]:
        nonlocal left
        left -= 1
        return there if left < 0 else former

    def other_server(database: str) -> bool:
        raise IncompleteReadError("Another one answers now.")

    monkeypatch.setattr(server, "capture_instances", lagging)
    monkeypatch.setattr(server, "lists_as_replica", lambda database: other_server(database) if left > 0 else False)
    make_capture(server, config).stream()
    assert ("DROP", "orders") not in told(config)
    assert [event.key for event in events_of(config, orders)] == [1, 2, 3, 10, 11]


def test_a_table_that_one_look_does_not_show_is_read_as_the_next_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, config, _lines, orders = started(tmp_path)
    server.is_secondary, found = True, server.instances
    server.commit((orders, "insert", 11, "b"))
    server.instances = [one for one in found if one.table != orders]

    def catch_up(_: str) -> bool:
        server.instances = found
        return True

    monkeypatch.setattr(server, "is_replica", catch_up)
    assert make_capture(server, config).stream().troubled == ()
    assert [event.key for event in events_of(config, orders)] == [1, 2, 3, 10, 11]


def test_a_snapshot_is_read_again_where_a_replica_lags(tmp_path: Path) -> None:
    server, config = SimulatedServer(), make_config(str(tmp_path))
    orders = server.create("orders")
    server.idle_tick()
    statements = route_to_lagging_replica(server, reads=3)
    server.commit((orders, "insert", 1, "a"))
    capture = make_capture(server, config)
    for _ in range(2):
        with pytest.raises(IncompleteReadError):
            capture.snapshot()
    make_capture(server, config).snapshot()
    assert len(statements) == 3
    assert [(event.op, event.key) for event in events_of(config, orders)] == [("r", 1)]


def test_a_table_that_was_enabled_just_now_is_read_before_anything_is_captured(tmp_path: Path) -> None:
    """Its start is above all that is captured; a server that knows the instance has the log up to there."""
    server, config = SimulatedServer(), make_config(str(tmp_path))
    server.idle_tick()
    orders = server.create("orders", rows=1)
    make_capture(server, config).snapshot()
    assert state_of(config).tables[orders].position == before(server.instances[0].start_lsn)


@pytest.mark.parametrize("metadata", [False, True])
def test_a_window_of_which_rows_are_lacking_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metadata: bool
) -> None:
    server, config, lines, orders = started(tmp_path, transaction_metadata=metadata)
    server.commit((orders, "insert", 11, "b"), (lines, "insert", 11, "b"), (orders, "insert", 12, "b"))
    whole, short = SimulatedBulk._changes, [1, 1]

    def truncated(self: SimulatedBulk, statement: str, parameters: Sequence[object]) -> pa.Table:
        rows = whole(self, statement, parameters)
        return rows.slice(0, rows.num_rows - short.pop()) if rows.num_rows > 1 and short else rows

    monkeypatch.setattr(simulation.SimulatedBulk, "_changes", truncated)
    make_capture(server, config).stream()
    assert not short
    assert [event.key for event in events_of(config, orders)] == [1, 2, 3, 10, 11, 12]
    assert [event.key for event in events_of(config, lines)] == [1, 2, 3, 10, 11]


def test_so_is_one_whose_rows_could_not_be_counted_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody locks the change table while the window is planned, and no longer when it is read."""
    server, config, _lines, orders = started(tmp_path)
    server.commit((orders, "insert", 11, "b"), (orders, "insert", 12, "b"))
    count, locked = server.rows_per_commit, [True]
    whole, short = SimulatedBulk._changes, [1]

    def counts(*asked: Any) -> Mapping[str, Sequence[tuple[Lsn, int]]]:
        return {} if locked and locked.pop() else count(*asked)

    def truncated(self: SimulatedBulk, statement: str, parameters: Sequence[object]) -> pa.Table:
        rows = whole(self, statement, parameters)
        return rows.slice(0, rows.num_rows - short.pop()) if rows.num_rows > 1 and short else rows

    monkeypatch.setattr(server, "rows_per_commit", counts)
    monkeypatch.setattr(simulation.SimulatedBulk, "_changes", truncated)
    make_capture(server, config).stream()
    assert not locked
    assert not short
    assert [event.key for event in events_of(config, orders)] == [1, 2, 3, 10, 11, 12]


@pytest.mark.parametrize("skipped", [frozenset({"t"}), frozenset({"t", "d"})])
def test_skipped_operations_are_not_missed(tmp_path: Path, skipped: frozenset[str]) -> None:
    server, config, _lines, orders = started(tmp_path, skipped_operations=skipped)
    server.commit((orders, "insert", 11, "b"), (orders, "delete", 1, ""))
    make_capture(server, config).stream()
    operations = [event.op for event in events_of(config, orders) if event.op is not None]
    assert operations[4:] == (["c"] if "d" in skipped else ["c", "d"])


def test_rows_that_somebody_removed_by_hand_hold_up_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server, config, _lines, orders = started(tmp_path)
    server.commit((orders, "insert", 11, "b"), (orders, "insert", 12, "b"))
    stream_until(server, config, "window-planned")
    server.change_tables["dbo_orders"].pop()
    with caplog.at_level(logging.WARNING):
        make_capture(server, config).stream()
    assert [event.key for event in events_of(config, orders)] == [1, 2, 3, 10, 11]
    assert "had 2 change rows when the window was planned, and has 1" in caplog.text


def test_rows_that_the_clean_up_job_removed_meanwhile_are_not_counted_as_gone(tmp_path: Path) -> None:
    server, _config, _lines, orders = started(tmp_path)
    position = server.transactions[-1]
    first = server.commit((orders, "insert", 11, "b"))
    until = server.commit((orders, "insert", 12, "b"))
    read = counted(
        TableRead(orders, "dbo_orders", position, until),
        server.rows_per_commit(DATABASE, {"dbo_orders": position}, until),
    )
    assert read.rows == 2
    server.clean_up(first.next())
    with pytest.raises(IncompleteReadError, match="Of 2 change rows of dbo_orders"):
        check_rows(server, [read], [{(orders, "dbo_orders"): 1}], ())


@pytest.mark.parametrize("fork", [None, RecoveryFork("FORMER", None)])
def test_a_replica_that_goes_back_by_some_commits_is_no_restore(tmp_path: Path, fork: RecoveryFork | None) -> None:
    server, config, _lines, orders = started(tmp_path)
    now, known = server.captured, server.fork
    server.is_secondary, server.fork, server.captured = True, fork, ZERO_LSN.next()
    with pytest.raises(IncompleteReadError, match="lags"):
        make_capture(server, config).stream()
    server.fork, server.captured = known, now
    server.commit((orders, "insert", 11, "b"))
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, orders)] == [1, 2, 3, 10, 11]


def test_a_replica_that_has_not_got_a_failover_yet_shows_no_restore(tmp_path: Path) -> None:
    """Nothing was captured since, so that it is captured as far as others."""
    server, config, _lines, orders = started(tmp_path)
    assert server.captured is not None
    server.is_secondary, former = True, server.fork
    server.fork = now = RecoveryFork("B", server.captured.next())
    make_capture(server, config).stream()
    server.fork = former
    with pytest.raises(IncompleteReadError, match="lags"):
        make_capture(server, config).stream()
    server.fork = now
    server.commit((orders, "insert", 11, "b"))
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, orders)] == [1, 2, 3, 10, 11]


def test_a_replica_that_has_missed_two_failovers_without_a_loss_does_not_turn_the_history_back(tmp_path: Path) -> None:
    server, config, _lines, _orders = started(tmp_path)
    assert server.captured is not None
    server.is_secondary, point = True, server.captured.next().next()
    for name in ("B", "C"):
        server.fork = RecoveryFork(name, point)
        make_capture(server, config).stream()
    server.fork = RecoveryFork("B", point)
    with pytest.raises(IncompleteReadError, match="lags"):
        make_capture(server, config).stream()
    assert state_of(config).log(DATABASE).fork == "C"


def test_a_failover_that_a_replica_has_not_got_while_a_window_is_planned_is_no_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, config, _lines, orders = started(tmp_path)
    newest = server.commit((orders, "insert", 11, "b"))
    former, now = server.fork, RecoveryFork("B", newest)
    planned: list[str] = []

    def fork(_: str, known: Lsn = ZERO_LSN) -> RecoveryFork | None:
        return now if "window-planned" in planned or known >= newest else former

    monkeypatch.setattr(server, "recovery_fork", fork)
    with listening(planned.append):
        make_capture(server, config).stream()
    assert [event.key for event in events_of(config, orders)] == [1, 2, 3, 10, 11]


def test_a_failover_that_a_replica_gets_while_nothing_is_new_is_no_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, config, _lines, orders = started(tmp_path)
    server.idle_tick()
    newest = server.captured
    assert newest is not None
    former, now, asked = server.fork, RecoveryFork("B", newest), list[str]()

    def fork(_: str, known: Lsn = ZERO_LSN) -> RecoveryFork | None:
        return now if asked or known >= newest else former

    monkeypatch.setattr(server, "recovery_fork", fork)
    make_capture(server, config).stream()
    assert state_of(config).tables[orders].position == newest
    asked.append("the replica has it now")
    server.commit((orders, "insert", 11, "b"))
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, orders)] == [1, 2, 3, 10, 11]


def test_a_failover_before_a_snapshot_is_planned_is_no_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, config, _lines, orders = started(tmp_path)
    newest = server.commit((orders, "insert", 11, "b"))

    def captured(_: str) -> Lsn | None:
        server.fork = RecoveryFork("B", newest)
        return server.captured

    monkeypatch.setattr(server, "max_captured_lsn", captured)
    summary = make_capture(server, config).snapshot([orders])
    assert (summary.tables, summary.failed) == ((orders,), ())


def test_rows_of_several_instances_are_counted_together() -> None:
    one, two, three = (Lsn.from_int(number) for number in (1, 2, 3))
    counts = {"a": [(one, 1), (three, 2)], "b": [(one, 4), (two, 1)]}
    assert together(counts) == [(one, 5), (two, 1), (three, 2)]
    assert together({"a": counts["a"]}) == counts["a"]
    assert together({}) == []


def test_a_table_whose_position_is_forgotten_waits_for_a_replica_that_lags(tmp_path: Path) -> None:
    """Read as of an earlier moment, its changes since then would be streamed a second time."""
    server, config, _lines, orders = started(tmp_path)
    earlier = server.captured
    server.commit((orders, "insert", 11, "b"))
    make_capture(server, config).stream()
    Reset(config, SimulatedClock(server)).forget([orders], fence=True)
    assert_refused_while_lagging(server, earlier, make_capture(server, config))
    make_capture(server, config).snapshot()
    server.commit((orders, "insert", 12, "c"))
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, orders) if event.op == "c"] == [10, 11, 12]


def test_so_does_one_whose_topic_has_lost_events_and_is_read_again(tmp_path: Path) -> None:
    server, config, lines, orders = started(tmp_path, gap_policy="resnapshot")
    earlier = server.captured
    server.commit((orders, "insert", 11, "b"), (lines, "insert", 11, "b"))
    make_capture(server, config).stream()
    lose_newest_file(Path(Location.of(config.lake).uri(state_of(config).tables[orders].directory)))
    assert_refused_while_lagging(server, earlier, make_capture(server, config))
    make_capture(server, config).snapshot()
    server.commit((orders, "insert", 12, "c"))
    assert make_capture(server, config).stream().troubled == ()
    keys = [event.key for event in events_of(config, orders)]
    assert keys[-6:] == [1, 2, 3, 10, 11, 12], "READs, and what was made since"


def test_a_loss_behind_what_a_replica_has_is_not_made_good_by_its_rows(tmp_path: Path) -> None:
    """Nothing of the lost interval was read, so only the table's own position shows that it is later."""
    server, config, _lines, orders = started(tmp_path, gap_policy="ignore")
    earlier, former = copy.deepcopy(server), server.captured
    server.disable("dbo_orders")
    server.commit((orders, "update", 1, "made while nobody captured"))
    server.enable(orders)
    server.idle_tick()
    make_capture(server, config).stream()
    lost = state_of(config).tables[orders].ignored_gaps
    assert lost
    earlier.is_secondary, earlier.captured = True, former
    with pytest.raises(IncompleteReadError, match="lags"):
        make_capture(earlier, config).snapshot([orders])
    assert state_of(config).tables[orders].ignored_gaps == lost
    make_capture(server, config).snapshot([orders])
    assert state_of(config).tables[orders].ignored_gaps == ()


def test_a_primary_need_not_be_captured_up_to_where_a_table_begins(tmp_path: Path) -> None:
    """A table that was enabled just now is read, forgotten, and read again without change data capture."""
    server, config, _lines, orders = started(tmp_path)
    items = server.create("items", rows=1)
    make_capture(server, config).snapshot([items])
    begins = state_of(config).tables[items].position
    assert begins is not None
    assert server.captured is not None
    assert begins > server.captured
    server.disable("dbo_items")
    assert make_capture(server, config).snapshot([items, orders]).tables == (items, orders)


def assert_refused_while_lagging(server: SimulatedServer, earlier: Lsn | None, capture: Capture) -> None:
    """A snapshot is planned by a secondary that is captured less far."""
    now, server.is_secondary, server.captured = server.captured, True, earlier
    with pytest.raises(IncompleteReadError, match="lags"):
        capture.snapshot()
    server.is_secondary, server.captured = False, now
