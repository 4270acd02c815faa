"""Tables that come, go and change while the capture runs, and every place where that may be cut short."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.core.steps import listening
from cdc_assets.errors import CdcDisabledError
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of, rows_of_topic
from cdc_assets_tests.unit.streaming.law import check, state_of
from cdc_assets_tests.unit.streaming.simulation import DATABASE, SimulatedServer, table_id
from cdc_assets_tests.unit.streaming.tables import HAND_OVER, started, stream_until, told


def rename(server: SimulatedServer, old: TableId, new: TableId) -> None:
    """What `sp_rename` or `ALTER SCHEMA … TRANSFER` does: everything but the name stays."""
    server.schemas[new] = replace(server.schemas.pop(old), table=new)
    server.rows[new] = server.rows.pop(old)
    server.instances = [replace(found, table=new) if found.table == old else found for found in server.instances]


def disable(server: SimulatedServer, table: TableId) -> None:
    server.disable(f"dbo_{table.table}")


def drop(server: SimulatedServer, table: TableId) -> None:
    disable(server, table)
    del server.schemas[table], server.rows[table]


def create_again(server: SimulatedServer, table: TableId) -> None:
    drop(server, table)
    server.create(table.table, rows=2)


def rename_away(server: SimulatedServer, table: TableId) -> None:
    rename(server, table, table_id("orders_old"))


def move(server: SimulatedServer, table: TableId) -> None:
    rename(server, table, TableId(DATABASE, "archive", table.table))


GOING: dict[Callable[[SimulatedServer, TableId], None], str] = {
    disable: "sp_cdc_enable_table",
    drop: "sp_cdc_enable_table",
    create_again: "created again",
    rename_away: "renamed or moved to SalesDb.dbo.orders_old",
    move: "renamed or moved to SalesDb.archive.orders",
}


@pytest.mark.parametrize("go", GOING, ids=lambda go: go.__name__)
def test_table_that_goes_is_reported_once_and_the_other_continues(
    tmp_path: Path, go: Callable[[SimulatedServer, TableId], None]
) -> None:
    server, config, lines, orders = started(tmp_path)
    before = state_of(config).tables[orders].position
    go(server, orders)
    server.commit((lines, "insert", 11, "b"))
    summary = make_capture(server, config).stream()
    [trouble] = [found for found in summary.troubled if found.table == orders]
    assert trouble.status == "failed"
    assert GOING[go] in trouble.reason
    assert events_of(config, lines)[-1].key == 11
    assert state_of(config).tables[orders].position == before

    server.commit((lines, "insert", 12, "c"))
    make_capture(server, config).stream()
    assert told(config).count(("DROP", "orders")) == 1
    [row] = [row for row in rows_of_topic(config, "shop.__schema_history") if row["type"] == "DROP"]
    assert before is not None
    assert Lsn.parse(str(row["commit_lsn"])) > before
    assert '"type": "DROP"' in str(row["record"])
    assert events_of(config, lines)[-1].key == 12


def test_last_table_that_goes_is_reported_too(tmp_path: Path) -> None:
    server, config, lines, orders = started(tmp_path)
    disable(server, lines)
    disable(server, orders)
    server.captured = server.tick()
    server.transactions.append(server.captured)
    make_capture(server, config).stream()
    assert sorted(told(config))[-2:] == [("DROP", "lines"), ("DROP", "orders")]


def test_table_that_vanishes_in_mid_window_is_reported_by_the_next_look(tmp_path: Path) -> None:
    server, config, lines, orders = started(tmp_path)
    server.commit((lines, "insert", 11, "b"), (orders, "insert", 11, "b"))

    def vanish(statement: str) -> None:
        if "dbo_orders_CT" in statement:
            server.before_read = lambda _: None
            disable(server, orders)

    server.before_read = vanish
    make_capture(server, config).stream()
    server.commit((lines, "insert", 12, "c"))
    make_capture(server, config).stream()
    assert told(config).count(("DROP", "orders")) == 1
    assert "no capture instance" in state_of(config).tables[orders].reason


def test_table_that_came_back_starts_a_new_life(tmp_path: Path) -> None:
    server, config, lines, orders = started(tmp_path)
    disable(server, orders)
    server.commit((lines, "insert", 11, "b"))
    make_capture(server, config).stream()
    server.enable(orders)
    make_capture(server, config).snapshot([orders])
    server.commit((orders, "insert", 12, "c"))
    assert make_capture(server, config).stream().troubled == ()
    assert [kind for kind, table in told(config) if table == "orders"] == ["CREATE", "DROP", "CREATE"]
    assert events_of(config, orders)[-1].key == 12


def test_database_whose_capture_is_turned_off_ends_its_tables(tmp_path: Path) -> None:
    server, config, lines, orders = started(tmp_path)
    server.commit((lines, "insert", 11, "b"))

    def off(database: str, known: Lsn = ZERO_LSN) -> list[CaptureInstance]:
        raise CdcDisabledError(
            f"Change data capture is not enabled in database {database!r}. Next: EXEC sp_cdc_enable_db"
        )

    server.capture_instances = off
    summary = make_capture(server, config).stream()
    assert {found.table for found in summary.troubled} == {lines, orders}
    assert all("sp_cdc_enable_db" in found.reason for found in summary.troubled)
    assert told(config)[-2:] == [("DROP", "lines"), ("DROP", "orders")]
    assert [event.key for event in events_of(config, lines) if event.op == "c"] == [10]


@pytest.mark.parametrize(
    "step", ["window-planned", "history-recorded", "history-written", "window-complete", "tables-marked"]
)
def test_each_step_of_an_end_may_be_the_last(tmp_path: Path, step: str) -> None:
    server, config, lines, orders = started(tmp_path)
    made = list(server.instances)
    disable(server, orders)
    server.commit((lines, "insert", 11, "b"))
    stream_until(server, config, step)
    server.commit((lines, "insert", 12, "c"))
    make_capture(server, config).stream()
    assert told(config).count(("DROP", "orders")) == 1
    assert state_of(config).tables[orders].status == "failed"
    assert [event.key for event in events_of(config, lines) if event.op == "c"] == [10, 11, 12]
    check(server, config, made)


@pytest.mark.parametrize("step", [*HAND_OVER, "window-complete"])
def test_each_step_of_a_hand_over_may_be_the_last(tmp_path: Path, step: str) -> None:
    server, config, lines, orders = started(tmp_path)
    made = list(server.instances)
    for table in (lines, orders):
        server.commit((table, "insert", 11, "old"))
        server.add_column(table, "state")
        server.commit((table, "update", 11, "between"))
        made.append(server.enable(table))
        server.commit((table, "insert", 12, "new"))
    stream_until(server, config, step)
    server.commit((lines, "delete", 12, ""), (orders, "delete", 11, ""))
    make_capture(server, config).stream()
    check(server, config, made)
    assert sorted(told(config)) == [("ALTER", "lines"), ("ALTER", "orders"), ("CREATE", "lines"), ("CREATE", "orders")]
    recorded = [row for row in rows_of_topic(config, "shop.__schema_history") if row["type"] == "ALTER"]
    assert sorted(str(row["commit_lsn"]) for row in recorded) == sorted(str(found.start_lsn) for found in made[2:])


@pytest.mark.parametrize("mode", ["initial", "no_data"])
def test_table_enabled_while_the_loop_runs_joins(tmp_path: Path, mode: str) -> None:
    server, config, lines, _ = started(tmp_path, mode=mode, idle_timeout_s=100.0)
    server.commit((lines, "insert", 11, "b"))
    added: list[TableId] = []

    def enable(name: str) -> None:
        if name == "window-complete" and not added:
            added.append(server.create("added", rows=2))
            server.commit((added[0], "insert", 20, "first"))

    with listening(enable):
        make_capture(server, config).stream()
    events = events_of(config, added[0])
    if mode == "initial":
        assert sorted(event.key for event in events if event.op == "r") == [1, 2, 20]
        server.commit((added[0], "insert", 21, "next"))
        make_capture(server, config).stream()
        assert events_of(config, added[0])[-1].key == 21
    else:
        assert [(event.op, event.key) for event in events] == [("c", 20)]
    assert ("CREATE", "added") in told(config)


def test_table_enabled_while_nothing_runs_starts_at_its_capture_without_data(tmp_path: Path) -> None:
    server, config, lines, _ = started(tmp_path, mode="no_data")
    added = server.create("added", rows=2)
    instance = server.instances[-1]
    server.commit((added, "insert", 20, "first"))
    server.commit((lines, "insert", 11, "b"))
    make_capture(server, config).stream()
    assert [(event.op, event.key) for event in events_of(config, added)] == [("c", 20)]
    [row] = [row for row in rows_of_topic(config, "shop.__schema_history") if row["table"] == "added"]
    assert (row["type"], row["commit_lsn"], row["snapshot"]) == ("CREATE", str(instance.start_lsn), None)
