"""Where a table goes on after it failed, had a gap, or was snapshotted in several attempts, and what is told as lost."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.reset import Reset
from cdc_assets.config.settings import CaptureConfig, FilterSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.errors import DatabaseAwayError, LockTimeoutError, QueryError
from cdc_assets.ledger.table_state import TableState
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.overview import CaptureOverview
from cdc_assets.streaming.retries import FIRST_PAUSE
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import check, state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer
from cdc_assets_tests.unit.streaming.tables import started
from cdc_assets_tests.unit.streaming.two_databases import TwoDatabases, config_of_two

Rows = dict[int, object]
Cause = Callable[[SimulatedServer], Callable[[], None]]
"""Makes reading `orders` fail; the result removes the cause."""


def wanted(server: SimulatedServer, table: TableId) -> Rows:
    return {key: row["note"] for key, row in server.rows[table].items()}


def told(config: CaptureConfig, table: TableId) -> Rows:
    """The rows that a topic's events make, each event once."""
    events = events_of(config, table)
    assert len({event.position for event in events}) == len(events)
    latest = {event.key: event.after for event in events}
    return {key: row["note"] for key, row in latest.items() if row}


def mirrored(config: CaptureConfig, table: TableId) -> Rows:
    mirrors = CaptureMirrors(config, LocalRunner(2), SystemClock())
    assert not mirrors.catch_up()
    rows = MirrorReader(mirrors.tables, f"shop.{table}").current().to_pylist()
    return {row["id"]: row["note"] for row in rows}


def state(config: CaptureConfig, table: TableId) -> TableState:
    return state_of(config).tables[table]


def change(server: SimulatedServer, table: TableId) -> Lsn:
    """A row is deleted, one changed, and one gets another key."""
    server.commit((table, "delete", 2, ""), (table, "update", 1, "changed"))
    return server.commit((table, "delete", 3, ""), (table, "insert", 33, "old 3"))


def check_rows(server: SimulatedServer, config: CaptureConfig, *tables: TableId) -> None:
    """Topics and mirrors are the server, after one more change."""
    server.commit(*((table, "insert", 99, "last") for table in tables))
    assert make_capture(server, config).stream().troubled == ()
    for table in tables:
        assert told(config, table) == wanted(server, table)
        assert mirrored(config, table) == wanted(server, table)


def refused(number: int) -> Cause:
    def begin(server: SimulatedServer) -> Callable[[], None]:
        def refuse(statement: str) -> None:
            if "changes" in statement and "dbo_orders_CT" in statement:
                raise QueryError("refused", number)

        server.before_read = refuse
        return lambda: setattr(server, "before_read", lambda _: None)

    return begin


def broken_pair(server: SimulatedServer) -> Callable[[], None]:
    whole = list(server.change_tables["dbo_orders"])
    server.change_tables["dbo_orders"] = [change for change in whole if change.operation != 4]

    def mend() -> None:
        known = {(change.lsn, change.command, change.operation) for change in whole}
        later = [
            change
            for change in server.change_tables["dbo_orders"]
            if (change.lsn, change.command, change.operation) not in known
        ]
        server.change_tables["dbo_orders"] = whole + later

    return mend


def unfit_value(server: SimulatedServer) -> Callable[[], None]:
    server.kinds["id"] = pa.int64()
    rows = server.change_tables["dbo_orders"]
    server.change_tables["dbo_orders"] = [replace(change, row={**change.row, "id": 2**40}) for change in rows]

    def mend() -> None:
        server.kinds["id"] = pa.int32()
        server.change_tables["dbo_orders"] = rows + server.change_tables["dbo_orders"][len(rows) :]

    return mend


CAUSES = {
    "a right is missing": refused(229),
    "a replica ends the statement": refused(3948),
    "a pair is broken": broken_pair,
    "a value fits no field": unfit_value,
}


@pytest.mark.long
@pytest.mark.parametrize("mode", ["initial", "when_needed", "when_needed_no_data"])
@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES)
def test_table_that_failed_goes_on_where_it_failed(tmp_path: Path, cause: Cause, mode: str) -> None:
    server, config, lines, orders = started(tmp_path)
    config = replace(config, snapshot=replace(config.snapshot, mode=mode))
    made, last = list(server.instances), state(config, orders).position
    server.commit((orders, "update", 1, "first"), (lines, "insert", 11, "beside"))
    mend = cause(server)
    [trouble] = make_capture(server, config).stream().troubled
    assert (trouble.table, trouble.status) == (orders, "failed")
    assert (state(config, orders).position, state(config, orders).gaps) == (last, ())
    assert told(config, lines) == wanted(server, lines)
    work = CaptureOverview(config, server).work
    assert (work.waiting([orders]), work.failed()) == ([], [orders])
    mend()
    change(server, orders)

    capture = make_capture(server, config)
    capture.snapshot()
    assert capture.stream().troubled == ()
    assert (state(config, orders).status, state(config, orders).gaps) == ("healthy", ())
    check(server, config, made)
    check_rows(server, config, lines, orders)


@pytest.mark.long
def test_snapshot_of_a_table_that_failed_keeps_its_position(tmp_path: Path) -> None:
    server, config, lines, orders = started(tmp_path)
    mirrored(config, orders)
    mend = refused(229)(server)
    change(server, orders)
    make_capture(server, config).stream()
    failed = state(config, orders)
    mend()
    assert make_capture(server, config).snapshot([orders]).tables == (orders,)
    assert (state(config, orders).status, state(config, orders).position) == ("healthy", failed.position)
    check_rows(server, config, lines, orders)
    assert state(config, orders).gaps == ()


@pytest.mark.long
def test_table_is_tried_again_while_the_run_goes_on_after_pauses_that_grow(tmp_path: Path) -> None:
    server, config, lines, orders = started(tmp_path, idle_timeout_s=400.0, poll_interval_s=1.0)
    tries: list[timedelta] = []
    begun = server.now

    def refuse(statement: str) -> None:
        if "changes" in statement and "dbo_orders_CT" in statement:
            tries.append(server.now - begun)
            if len(tries) < 5:
                raise QueryError("refused", 229)

    server.before_read = refuse
    change(server, orders)
    assert make_capture(server, config).stream().troubled == ()
    pauses = [later - earlier for earlier, later in pairwise(tries)][:4]
    assert all(
        FIRST_PAUSE * 2**number <= pause < FIRST_PAUSE * 2**number + timedelta(seconds=3)
        for number, pause in enumerate(pauses)
    ), pauses
    check_rows(server, config, lines, orders)


def test_table_that_failed_and_is_left_out_goes_on_when_it_is_included_again(tmp_path: Path) -> None:
    server, config, lines, orders = started(tmp_path)
    mend = refused(229)(server)
    change(server, orders)
    make_capture(server, config).stream()
    without = replace(config, filters=FilterSettings(table_include=(r"dbo\.lines",)))
    mend()
    make_capture(server, without).stream()
    assert (state(config, orders).status, state(config, orders).gaps) == ("excluded", ())
    check_rows(server, config, lines, orders)


def test_changes_of_a_failed_table_that_are_cleaned_up_are_a_gap(tmp_path: Path) -> None:
    server, config, lines, orders = started(tmp_path)
    last = state(config, orders).position
    mend = refused(229)(server)
    server.commit((orders, "delete", 2, ""))
    server.commit((lines, "insert", 11, "a"))
    make_capture(server, config).stream()
    mend()
    server.clean_up(server.commit((lines, "insert", 12, "a")))
    make_capture(server, config).stream()
    found = state(config, orders)
    assert (found.status, found.gap_after) == ("gap", last)


@pytest.mark.long
@pytest.mark.parametrize("policy", ["fail", "resnapshot"])
def test_gap_ends_where_changes_are_read_again(tmp_path: Path, policy: str) -> None:
    server, config, lines, orders = started(tmp_path, gap_policy=policy)
    last = state(config, orders).position
    server.commit((orders, "delete", 2, ""))
    server.clean_up(server.commit((orders, "insert", 12, "kept by the server")))
    server.commit((orders, "insert", 13, "kept, too"))
    make_capture(server, config).stream()
    make_capture(server, config).snapshot([lines, orders] if policy == "fail" else None)
    found = state(config, orders)
    assert found.gaps == ((last, found.snapshot_lsn),)
    server.commit((orders, "insert", 99, "last"))
    assert make_capture(server, config).stream().troubled == ()
    assert mirrored(config, orders) == wanted(server, orders)


def test_gap_stays_open_if_no_row_is_read(tmp_path: Path) -> None:
    server, config, _, orders = started(tmp_path)
    mirrored(config, orders)
    before = state(config, orders)
    server.commit((orders, "insert", 11, "cleaned"))
    server.clean_up(server.commit((orders, "insert", 12, "skipped")))
    newest = server.commit((orders, "insert", 13, "skipped, too"))
    config = replace(config, snapshot=replace(config.snapshot, mode="when_needed_no_data"))
    make_capture(server, config).snapshot()
    found = state(config, orders)
    assert (found.position, found.gaps) == (newest, ((before.position, newest),))
    assert found.snapshot_lsn == before.snapshot_lsn
    server.commit((orders, "insert", 14, "goes on"))
    make_capture(server, config).stream()
    assert mirrored(config, orders).keys() == {1, 2, 3, 10, 14}, "rows that were not read again stay"


def rounds_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_assets.snapshot.tasks._PAUSE_S", 0.0)
    monkeypatch.setattr("cdc_assets.snapshot.plan.MIN_SLICE", 2)
    monkeypatch.setattr("cdc_assets.snapshot.rounds.MIN_SLICE", 1)
    monkeypatch.setattr("cdc_assets.snapshot.rounds._ROUND_SLICES", 1)


def break_off(server: SimulatedServer, table: TableId, after: int, error: Exception) -> None:
    """Refuse to read a table's rows, but for the first few times."""
    seen = 0

    def refuse(statement: str) -> None:
        nonlocal seen
        if f"FROM {table.quoted}" in statement:
            seen += 1
            if seen > after:
                raise error

    server.before_read = refuse


def partial(path: Path, monkeypatch: pytest.MonkeyPatch, **changes: object):  # type: ignore[no-untyped-def]
    """A table of which a first snapshot read a part before it failed."""
    rounds_of_one(monkeypatch)
    server = SimulatedServer()
    orders = server.create("orders", rows=12)
    server.idle_tick()
    config = make_config(str(path), partitions=4, **changes)
    break_off(server, orders, 2, LockTimeoutError("locked"))
    assert make_capture(server, config).snapshot().failed
    server.before_read = lambda _: None
    assert {1, 2, 3} <= told(config, orders).keys()
    return server, config, orders


@pytest.mark.long
def test_first_snapshot_that_is_planned_again_streams_from_its_first_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, config, orders = partial(tmp_path, monkeypatch)
    low = events_of(config, orders)[0].lsn
    change(server, orders)
    break_off(server, orders, 3, LockTimeoutError("locked"))
    assert make_capture(server, config).snapshot().failed
    server.before_read = lambda _: None
    server.commit((orders, "delete", 5, ""))
    assert make_capture(server, config).snapshot().tables == (orders,)
    assert (state(config, orders).position, state(config, orders).gaps) == (low, ())
    check_rows(server, config, orders)


def test_changes_since_its_first_reads_are_in_an_older_capture_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, config, orders = partial(tmp_path, monkeypatch)
    low = events_of(config, orders)[0].lsn
    change(server, orders)
    server.add_column(orders, "more")
    server.enable(orders)
    server.commit((orders, "update", 5, "changed"))
    assert make_capture(server, config).snapshot().tables == (orders,)
    assert (state(config, orders).position, state(config, orders).gaps) == (low, ())
    check_rows(server, config, orders)


def test_reads_of_a_given_up_snapshot_whose_changes_are_gone_leave_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, config, orders = partial(tmp_path, monkeypatch)
    low = events_of(config, orders)[0].lsn
    server.clean_up(change(server, orders))
    assert make_capture(server, config).snapshot().tables == (orders,)
    found = state(config, orders)
    assert found.gaps == ((low, found.position),)
    server.commit((orders, "insert", 99, "last"))
    make_capture(server, config).stream()
    assert mirrored(config, orders) == wanted(server, orders)


def test_table_that_is_created_again_between_two_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, config, orders = partial(tmp_path, monkeypatch)
    low = events_of(config, orders)[0].lsn
    server.disable("dbo_orders")
    server.schemas[orders] = replace(server.schemas[orders], object_id=777)
    server.rows[orders] = {7: {"id": 7, "note": "of the new table"}}
    server.enable(orders)
    server.idle_tick()
    make_capture(server, config).snapshot()
    found = state(config, orders)
    assert found.gaps == ((low, found.position),)
    server.commit((orders, "insert", 99, "last"))
    make_capture(server, config).stream()
    assert mirrored(config, orders) == wanted(server, orders)


@pytest.mark.parametrize("whole", [True, False])
def test_part_of_a_table_that_is_not_captured_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    rounds_of_one(monkeypatch)
    server = SimulatedServer()
    orders = server.create("orders", rows=12)
    server.idle_tick()
    config = make_config(str(tmp_path), partitions=4)
    make_capture(server, config).snapshot([orders], [0, 1])
    low = events_of(config, orders)[0].lsn
    change(server, orders)
    make_capture(server, config).snapshot([orders] if whole else None)
    assert (state(config, orders).position, state(config, orders).gaps) == (low, ())
    check_rows(server, config, orders)


def test_table_that_was_read_before_it_had_change_data_capture(tmp_path: Path) -> None:
    server = SimulatedServer()
    lines, orders = server.create("lines", rows=3), server.create("orders", captured=False, rows=3)
    server.idle_tick()
    config = make_config(str(tmp_path))
    make_capture(server, config).snapshot()
    low = state(config, orders).snapshot_lsn
    server.rows[orders].pop(2)
    server.enable(orders)
    server.idle_tick()
    make_capture(server, config).snapshot()
    found = state(config, orders)
    assert found.gaps == ((low, found.position),)
    server.commit((orders, "insert", 99, "last"), (lines, "insert", 99, "last"))
    make_capture(server, config).stream()
    assert mirrored(config, orders) == wanted(server, orders)


@pytest.mark.long
def test_repair_that_is_planned_again_streams_from_its_first_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds_of_one(monkeypatch)
    server = SimulatedServer()
    lines, orders = server.create("lines", rows=1), server.create("orders", rows=12)
    server.idle_tick()
    config = make_config(str(tmp_path), partitions=4, gap_policy="resnapshot")
    make_capture(server, config).snapshot()
    mirrored(config, orders)
    start = state(config, orders).position
    server.commit((orders, "delete", 12, ""))
    server.clean_up(server.commit((lines, "insert", 11, "a")))
    break_off(server, orders, 2, LockTimeoutError("locked"))
    [trouble] = make_capture(server, config).stream().troubled
    assert (trouble.table, trouble.status) == (orders, "gap")
    low = max(event.lsn for event in events_of(config, orders))
    change(server, orders)
    server.before_read = lambda _: None
    assert make_capture(server, config).stream().troubled == ()
    assert state(config, orders).gaps == ((start, low),)
    server.commit((orders, "insert", 99, "last"))
    make_capture(server, config).stream()
    assert mirrored(config, orders) == wanted(server, orders)


@pytest.mark.long
def test_database_that_is_away_in_the_middle_of_its_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds_of_one(monkeypatch)
    server = TwoDatabases()
    server.create_other("known", rows=1)
    server.idle_tick()
    config = config_of_two(tmp_path, partitions=4)
    make_capture(server, config).snapshot()
    orders, a, b = server.create("orders", rows=1), server.create_other("a", rows=4), server.create_other("b", rows=80)
    server.idle_tick()
    away = DatabaseAwayError("Database Other is offline.")

    def go_away(statement: str) -> None:
        if "FROM [Other].[dbo].[b]" in statement and events_of(config, b):
            server.troubles["Other"] = away
            raise away

    server.before_read = go_away
    summary = make_capture(server, config).snapshot()
    assert (summary.tables, {trouble.table for trouble in summary.failed}) == ((orders,), {a, b})
    server.before_read = lambda _: None
    make_capture(server, config).stream()
    lows = {events_of(config, table)[0].lsn for table in (a, b)}
    del server.troubles["Other"]
    for table in (a, b):
        change(server, table)
    make_capture(server, config).snapshot()
    assert {state(config, table).position for table in (a, b)} == lows
    check_rows(server, config, orders, a, b)


def test_table_that_is_forgotten_lacks_what_follows(tmp_path: Path) -> None:
    server, config, _, orders = started(tmp_path)
    mirrored(config, orders)
    last = state(config, orders).position
    change(server, orders)
    Reset(config, SystemClock()).forget([orders], fence=True)
    make_capture(server, config).snapshot()
    found = state(config, orders)
    assert found.gaps == ((last, found.position),)
    server.commit((orders, "insert", 99, "last"))
    make_capture(server, config).stream()
    assert mirrored(config, orders) == wanted(server, orders)
