"""Trouble of one table, of the server, of another writer: who goes on and what is told."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.config.settings import FilterSettings
from cdc_assets.core.jobs import Job
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.steps import listening
from cdc_assets.errors import (
    CaptureNotReadyError,
    CdcDisabledError,
    ConfigurationError,
    ConnectionLostError,
    FencedError,
    LakeAwayError,
    LakeError,
)
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.overview import CaptureOverview
from cdc_assets.shared import endings
from cdc_assets.shared.instances import before
from cdc_assets.shared.lake import Lake
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of, rows_of_topic
from cdc_assets_tests.unit.streaming.law import check, state_of
from cdc_assets_tests.unit.streaming.loop_runner import LoopRunner
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer
from cdc_assets_tests.unit.streaming.tables import two_tables
from cdc_assets_tests.unit.streaming.two_databases import OTHER, TwoDatabases, config_of_two


def test_clean_up_that_passes_in_mid_read_marks_only_the_table_that_lost_rows(tmp_path: Path) -> None:
    server, config, lines, orders = two_tables(tmp_path)
    made = list(server.instances)
    server.commit((lines, "insert", 50, "a"))
    first = server.commit((orders, "insert", 50, "a"))
    last = server.commit((orders, "insert", 51, "b"), (lines, "insert", 51, "b"))

    def clean_up_once(statement: str) -> None:
        if "dbo_orders_CT" in statement:
            server.before_read = lambda _: None
            server.change_tables["dbo_orders"] = [c for c in server.change_tables["dbo_orders"] if c.lsn > first]
            server.instances = [
                replace(instance, start_lsn=last) if instance.name == "dbo_orders" else instance
                for instance in server.instances
            ]

    server.before_read = clean_up_once
    summary = make_capture(server, config).stream()

    state = state_of(config)
    assert state.tables[lines].position == last
    lost = state.tables[orders]
    assert (lost.status, lost.gap_until) == ("gap", Lsn.from_int(int(last) - 1))
    assert lost.gap_after == lost.position
    assert [trouble.table for trouble in summary.troubled] == [orders]
    assert "snapshot asset, or cdc-assets capture --table" in summary.troubled[0].reason
    check(server, config, made)

    make_capture(server, config).snapshot([orders])
    server.commit((orders, "insert", 60, "again"))
    assert make_capture(server, config).stream().troubled == ()
    assert events_of(config, orders)[-1].key == 60


class Backwards(LoopRunner):
    """Carries out the last task first."""

    def run(self, function: Callable[..., object], tasks: Sequence[object], job: Job) -> list:  # type: ignore[type-arg]
        return super().run(function, tasks[::-1], job)[::-1]


def test_a_gap_that_grows_while_slices_are_read_is_told_as_far_as_it_goes(tmp_path: Path) -> None:
    server, config, _lines, orders = two_tables(tmp_path, slices=2)
    commits = [server.commit((orders, "insert", 50 + number, "a")) for number in range(4)]
    marks = commits[2:]

    def clean_up(statement: str) -> None:
        if "cdc-assets: marks" in statement and marks:
            server.clean_up(marks.pop(0))

    server.before_read = clean_up
    make_capture(server, config, Backwards()).stream()
    assert not marks, "each slice has looked"
    lost = state_of(config).tables[orders]
    assert (lost.gap_after, lost.gap_until) == (lost.position, before(commits[3]))


def test_table_that_was_committed_before_a_crash_lacks_nothing_when_its_rows_are_gone(tmp_path: Path) -> None:
    server, config, lines, orders = two_tables(tmp_path, transaction_metadata=True)
    made = list(server.instances)
    first = server.commit((lines, "insert", 50, "a"), (orders, "insert", 50, "a"))

    def crash(step: str) -> None:
        if step == "table-committed":
            raise RuntimeError(step)

    with listening(crash), pytest.raises(RuntimeError):
        make_capture(server, config).stream()
    committed = next(table for table in (lines, orders) if events_of(config, table)[-1].op == "c")
    name = f"dbo_{committed.table}"
    server.change_tables[name] = []
    server.instances = [
        replace(instance, start_lsn=Lsn.from_int(int(first) + 1)) if instance.name == name else instance
        for instance in server.instances
    ]

    assert make_capture(server, config).stream().troubled == ()
    assert {state_of(config).tables[table].position for table in (lines, orders)} == {first}
    check(server, config, made)


def test_policy_resnapshot_reads_the_table_again_and_continues(tmp_path: Path) -> None:
    server, config, lines, orders = two_tables(tmp_path, gap_policy="resnapshot")
    server.commit((orders, "insert", 50, "a"))
    server.commit((lines, "insert", 50, "a"))
    server.clean_up(server.commit((orders, "delete", 1, "")))

    assert make_capture(server, config).stream().troubled == ()
    latest = {event.key: event for event in events_of(config, orders)}
    assert {key for key, event in latest.items() if event.after} >= {2, 3, 50}
    assert state_of(config).tables[orders].gaps


def test_table_without_capture_instance_fails_alone_and_says_what_to_do(tmp_path: Path) -> None:
    server, config, lines, orders = two_tables(tmp_path)
    server.disable("dbo_orders")
    server.commit((lines, "insert", 50, "a"))
    summary = make_capture(server, config).stream()
    assert summary.rows[lines] == {"c": 1}
    [trouble] = summary.troubled
    assert trouble.table == orders
    assert "sp_cdc_enable_table" in trouble.reason


def test_instance_that_vanishes_in_mid_window_fails_alone(tmp_path: Path) -> None:
    server, config, lines, orders = two_tables(tmp_path)
    server.commit((lines, "insert", 50, "a"), (orders, "insert", 50, "a"))

    def drop_once(statement: str) -> None:
        if "dbo_orders_CT" in statement:
            server.before_read = lambda _: None
            server.disable("dbo_orders")

    server.before_read = drop_once
    summary = make_capture(server, config).stream()
    assert [(trouble.table, trouble.status) for trouble in summary.troubled] == [(orders, "failed")]
    assert "no capture instance" in summary.troubled[0].reason
    assert [event.op for event in events_of(config, lines)][-1] == "c"
    assert not [event for event in events_of(config, orders) if event.op != "r"]


def test_recreated_table_is_no_continuation(tmp_path: Path) -> None:
    server, config, lines, orders = two_tables(tmp_path)
    server.disable("dbo_orders")
    server.schemas[orders] = replace(server.schemas[orders], object_id=777)
    server.rows[orders] = {}
    server.enable(orders)
    server.commit((orders, "insert", 1, "new epoch"), (lines, "insert", 9, "x"))
    [trouble] = make_capture(server, config).stream().troubled
    assert "dropped and created again" in trouble.reason
    make_capture(server, config).snapshot([orders])
    server.commit((orders, "insert", 2, "goes on"))
    assert make_capture(server, config).stream().troubled == ()
    assert [event.key for event in events_of(config, orders)][-2:] == [1, 2]


def test_lost_pair_fails_the_table_and_not_the_window(tmp_path: Path) -> None:
    server, config, lines, orders = two_tables(tmp_path)
    server.commit((orders, "update", 1, "a"), (lines, "update", 1, "a"))
    server.change_tables["dbo_orders"] = [c for c in server.change_tables["dbo_orders"] if c.operation != 4]
    [trouble] = make_capture(server, config).stream().troubled
    assert trouble.table == orders
    assert "InvariantError" in trouble.reason
    assert events_of(config, lines)[-1].op == "u"


def test_incompatible_hand_over_opens_a_new_generation_and_repeats_safely(tmp_path: Path) -> None:
    server, config, _, orders = two_tables(tmp_path)
    server.commit((orders, "insert", 10, "old"))
    schema = server.schemas[orders]
    kept = [replace(column, type_name="bigint") if column.name == "id" else column for column in schema.columns]
    server.schemas[orders] = replace(schema, columns=tuple(kept))
    server.enable(orders)
    server.commit((orders, "insert", 11, "new"))

    with cut_at("table-committed"), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, orders)][-2:] == [10, 11]
    assert (tmp_path / f"shop.{orders}@2").is_dir()
    assert not (tmp_path / f"shop.{orders}@3").exists()


def test_added_column_becomes_a_nullable_field_with_history_and_public_event_before_it(tmp_path: Path) -> None:
    server, config, _, orders = two_tables(tmp_path)
    server.commit((orders, "insert", 10, "old"))
    server.add_column(orders, "state")
    server.commit((orders, "insert", 11, "not captured"))
    second = server.enable(orders)
    server.commit((orders, "insert", 12, "captured"))
    make_capture(server, config).stream()
    old, between, new = events_of(config, orders)[-3:]
    assert [old.after, between.after, new.after] == [
        {"id": 10, "note": "old"},
        {"id": 11, "note": "not captured"},
        {"id": 12, "note": "captured", "state": None},
    ]
    alters = [row for row in rows_of_topic(config, "shop.__schema_history") if row["type"] == "ALTER"]
    assert [row["commit_lsn"] for row in alters] == [str(second.start_lsn)]
    assert alters[0]["columns"] == ["id", "note", "state"]
    public = [row for row in rows_of_topic(config, "shop") if row["value"]["ddl"] == "N/A"]  # type: ignore[index]
    assert len(public) == 1
    assert state_of(config).tables[orders].instance == second.name


def test_zombie_is_fenced_and_doubles_nothing(tmp_path: Path) -> None:
    server, config, _, orders = two_tables(tmp_path)
    zombie = make_capture(server, config)
    zombie.claim()
    server.commit((orders, "insert", 10, "a"))
    make_capture(server, config).stream()
    with pytest.raises(FencedError):
        zombie.stream()
    assert [event.key for event in events_of(config, orders) if event.op == "c"] == [10]


def test_zombie_that_woke_up_in_mid_window_is_fenced_at_its_end(tmp_path: Path) -> None:
    server, config, _, orders = two_tables(tmp_path)
    server.commit((orders, "insert", 10, "a"))
    woken = False

    def other_run(name: str) -> None:
        nonlocal woken
        if name == "files-written" and not woken:
            woken = True
            make_capture(server, config).stream()

    with listening(other_run), pytest.raises(FencedError):
        make_capture(server, config).stream()
    assert [event.key for event in events_of(config, orders) if event.op == "c"] == [10]
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, orders) if event.op == "c"] == [10]


def test_capture_that_is_renamed_is_the_same_capture(tmp_path: Path) -> None:
    server, config, lines, orders = two_tables(tmp_path)
    server.commit((lines, "insert", 10, "a"), (orders, "insert", 10, "a"))
    zombie = make_capture(server, config)
    zombie.claim()

    def crash(step: str) -> None:
        if step == "table-committed":
            raise RuntimeError(step)

    with listening(crash), pytest.raises(RuntimeError):
        make_capture(server, config).stream()
    renamed = replace(config, name="market")
    make_capture(server, renamed).stream()
    assert [[event.key for event in events_of(config, table) if event.op == "c"] for table in (lines, orders)] == [
        [10]
    ] * 2
    with pytest.raises(FencedError):
        zombie.stream()


def test_server_that_goes_away_is_waited_for_and_the_window_repeated(tmp_path: Path) -> None:
    server, config, _, orders = two_tables(tmp_path)
    server.commit((orders, "insert", 10, "a"))
    failures = 3

    def fail(statement: str) -> None:
        nonlocal failures
        if "changes" in statement and failures:
            failures -= 1
            raise ConnectionLostError("The connection was closed.")

    server.before_read = fail
    assert make_capture(server, config).stream().rows[orders] == {"c": 1}
    assert failures == 0
    failures = 3
    server.commit((orders, "insert", 11, "a"))
    with pytest.raises(ConnectionLostError):
        make_capture(server, make_config(str(tmp_path), max_retries=1)).stream()
    server.before_read = lambda _: None
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, orders) if event.op == "c"] == [10, 11]


def test_database_that_is_left_out_while_the_lake_is_away_ends_once_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its tables would be healthy for as long as the run lasts."""
    server, answers = TwoDatabases(), ["away"]
    lines, other = server.create("lines", rows=2), server.create_other("other", rows=2)
    server.idle_tick()
    config = config_of_two(tmp_path)
    make_capture(server, config).snapshot()
    newest, end = server.max_transaction_lsn, endings.end_tables

    def end_tables(ledger: Ledger, lake: Lake, database: str, error: CdcDisabledError) -> None:
        if answers:
            raise LakeAwayError(answers.pop())
        end(ledger, lake, database, error)

    def newest_of(database: str, *which: Any) -> Lsn | None:
        if database == OTHER:
            server.troubles[OTHER] = CdcDisabledError("Change data capture is off.")
            raise server.troubles[OTHER]
        return newest(database, *which)

    monkeypatch.setattr(endings, "end_tables", end_tables)
    monkeypatch.setattr(server, "max_transaction_lsn", newest_of)
    lsn = server.commit((lines, "insert", 50, "a"))
    [trouble] = make_capture(server, config).stream().troubled
    assert (trouble.table, answers) == (other, [])
    tables = state_of(config).tables
    assert (tables[other].status, tables[lines].position) == ("failed", lsn)


def test_capture_job_that_never_ran_is_explained(tmp_path: Path) -> None:
    server = SimulatedServer()
    server.create("orders")
    with pytest.raises(CaptureNotReadyError, match="capture job has not scanned"):
        make_capture(server, make_config(str(tmp_path))).snapshot()


@pytest.mark.delta_rs
def test_lake_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    server = SimulatedServer()
    server.create("orders")
    server.idle_tick()
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(LakeError, match="cannot be written"):
        make_capture(server, make_config(str(blocked))).snapshot()
    assert blocked.read_text() == "in the way"


def test_filter_that_matches_nothing_is_refused_before_the_lake_is_touched(tmp_path: Path) -> None:
    server = SimulatedServer()
    server.create("orders")
    config = replace(make_config(str(tmp_path)), filters=FilterSettings(table_include=("dbo.nope",)))
    with pytest.raises(ConfigurationError, match=r"table\.include\.list"):
        make_capture(server, config).snapshot()
    assert not list(tmp_path.iterdir())


def test_idle_tables_move_on_so_that_clean_up_makes_no_gap(tmp_path: Path) -> None:
    server, config, _, orders = two_tables(tmp_path)
    server.commit((orders, "insert", 10, "a"))
    make_capture(server, config).stream()
    server.idle_tick()
    make_capture(server, config).stream()
    assert server.captured is not None
    server.clean_up(server.captured)
    server.commit((orders, "insert", 11, "a"))
    summary = make_capture(server, config).stream()
    assert summary.troubled == ()
    assert summary.rows[orders] == {"c": 1}


def test_loop_gives_way_and_keeps_its_deadline(tmp_path: Path) -> None:
    server, config, _, orders = two_tables(tmp_path, max_iteration_transactions=1)
    for key in range(10, 13):
        server.commit((orders, "insert", key, "a"))
    capture = make_capture(server, config)
    asked = iter([False, True])
    assert capture.stream(should_yield=lambda: next(asked)).windows == 1
    assert capture.stream().windows == 2
    assert CaptureOverview(config, server).tables[-1].position == state_of(config).tables[orders].position
    short = make_config(str(tmp_path), max_duration_s=3.0, idle_timeout_s=0.0)
    begun = server.now
    assert make_capture(server, short).stream().ended == "deadline"
    assert timedelta(seconds=3) <= server.now - begun < timedelta(seconds=5)


def test_table_that_is_not_snapshotted_waits(tmp_path: Path) -> None:
    server, config, lines, orders = two_tables(tmp_path)
    new = server.create("new", rows=1)
    server.commit((new, "insert", 5, "a"), (lines, "insert", 7, "b"))
    summary = make_capture(server, config).stream()
    assert summary.waiting == (new,)
    assert make_capture(server, config).snapshot().tables == (new,)
    server.commit((new, "insert", 6, "a"))
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, new) if event.op == "c"] == [6]
    assert sorted(event.key for event in events_of(config, new) if event.op == "r") == [1, 5]
    assert [found.table for found in CaptureOverview(config, server).tables] == [lines, new, orders]


def test_no_data_streams_from_now_and_marks_the_last_schema_event(tmp_path: Path) -> None:
    server = SimulatedServer()
    orders = server.create("orders", rows=3)
    server.idle_tick()
    config = make_config(str(tmp_path), mode="no_data")
    make_capture(server, config).stream()
    server.commit((orders, "insert", 9, "a"))
    make_capture(server, config).stream()
    assert [event.op for event in events_of(config, orders)] == ["c"]
    [public] = rows_of_topic(config, "shop")
    assert public["value"]["source"]["snapshot"] == "last"  # type: ignore[index]


def test_unfinished_snapshot_of_a_dropped_table_is_given_up_and_planned_again(tmp_path: Path) -> None:
    server = SimulatedServer()
    lines, orders = server.create("lines", rows=5), server.create("orders", rows=5)
    server.idle_tick()
    config = make_config(str(tmp_path))

    with cut_at("round-written"), pytest.raises(PowerCutError):
        make_capture(server, config).snapshot()
    server.disable("dbo_orders")
    del server.schemas[orders], server.rows[orders]
    assert make_capture(server, config).snapshot().tables == (lines,)
    assert state_of(config).snapshots == {}
    assert sorted(event.key for event in events_of(config, lines)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("transactions", [False, True])
def test_column_altered_in_place_fails_the_table_until_its_snapshot(tmp_path: Path, transactions: bool) -> None:
    server, config, lines, orders = two_tables(tmp_path, transaction_metadata=transactions)
    server.kinds["id"] = pa.int64()
    schema = server.schemas[orders]
    wide = [replace(column, type_name="bigint") if column.name == "id" else column for column in schema.columns]
    server.schemas[orders] = replace(schema, columns=tuple(wide))
    server.commit((orders, "insert", 2**40, "wide"), (lines, "insert", 50, "a"))
    summary = make_capture(server, config).stream()
    assert [(trouble.table, trouble.status) for trouble in summary.troubled] == [(orders, "failed")]
    assert "were received as int64" in summary.troubled[0].reason
    assert events_of(config, lines)[-1].key == 50

    make_capture(server, config).snapshot([orders])
    server.commit((orders, "insert", 2**41, "wider"))
    assert make_capture(server, config).stream().troubled == ()
    assert events_of(config, orders)[-1].key == 2**41
