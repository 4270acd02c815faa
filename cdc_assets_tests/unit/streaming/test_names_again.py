"""Capture instances whose names were used before, that look as before, or that are gone when a window is read."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.steps import listening
from cdc_assets.errors import DatabaseAwayError, ServerBusyError
from cdc_assets.overview import CaptureOverview
from cdc_assets_tests.crashes import PowerCutError
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of, rows_of_topic
from cdc_assets_tests.unit.streaming.law import check, state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer
from cdc_assets_tests.unit.streaming.tables import HAND_OVER, refusing, started, stream_until, told

V1, V2, V3 = "dbo_orders", "dbo_orders_v2", "dbo_orders_v3"


def recorded(config: object, table: TableId) -> list[tuple[str, str, int]]:
    """Structures in the history: kind, capture instance and number of columns."""
    rows = [row for row in rows_of_topic(config, "shop.__schema_history") if row["table"] == table.table]  # type: ignore[arg-type]
    rows.sort(key=lambda row: (row["window_id"], row["position"]))
    return [(str(row["type"]), str(row["capture_instance"]), len(row["columns"])) for row in rows]  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.parametrize("names", [(V2, V3, V2), (V2, V1, V2, V1)], ids=["numbered", "default"])
@pytest.mark.parametrize("step", ["", *HAND_OVER, "window-complete"])
def test_a_name_that_is_used_again_is_another_structure(tmp_path: Path, names: Sequence[str], step: str) -> None:
    server, config, _, orders = started(tmp_path)
    made = list(server.instances)
    for number, name in enumerate(names, 1):
        server.add_column(orders, f"c{number}")
        made.append(server.enable(orders, name))
        server.commit((orders, "update", 10, f"after change {number}"))
        stream_until(server, config, step)
        make_capture(server, config).stream()
        server.disable(made[-2].name)
    check(server, config, made)
    assert state_of(config).tables[orders].instance == names[-1]
    assert recorded(config, orders) == [
        ("CREATE", V1, 2),
        *(("ALTER", name, 2 + number) for number, name in enumerate(names, 1)),
    ]


def test_an_instance_with_the_same_columns_has_a_structure_of_its_own_that_is_no_news(tmp_path: Path) -> None:
    server, config, _, orders = started(tmp_path)
    made = list(server.instances)
    before = told(config)
    made.append(server.enable(orders, V2))
    server.commit((orders, "insert", 20, "a"))
    [progress] = [report for report in streamed(server, config) if orders in report.tables]
    assert progress.structures == ()
    assert recorded(config, orders) == [("CREATE", V1, 2), ("ALTER", V2, 2)]
    assert told(config) == before

    server.disable(V1)
    server.commit((orders, "insert", 21, "only the second has it"))
    server.add_column(orders, "c1")
    made.append(server.enable(orders, V3))
    make_capture(server, config).snapshot([orders])  # records the third instance before the second is read to its end
    server.commit((orders, "insert", 22, "b"))
    assert make_capture(server, config).stream().troubled == ()
    assert {event.key: "c1" in (event.after or {}) for event in events_of(config, orders) if event.op == "c"} == {
        10: False, 20: False, 21: False, 22: True,
    }  # fmt: skip


@pytest.mark.long
def test_a_table_goes_on_with_the_newest_instance_also_if_a_snapshot_has_recorded_it_first(tmp_path: Path) -> None:
    server, config, _, orders = started(tmp_path, gap_policy="ignore")
    server.add_column(orders, "c1")
    server.enable(orders, V2)
    server.disable(V1)
    stream_until(server, config, "tables-marked")  # the gap is passed over, and V2 not read yet
    server.add_column(orders, "c2")
    server.enable(orders, V3)
    make_capture(server, config).snapshot([orders])  # records V3 before V2
    for key in (21, 22):
        server.commit((orders, "insert", key, "a"))
        make_capture(server, config).stream()
        assert state_of(config).tables[orders].instance == V3
    assert all("c2" in (event.after or {}) for event in events_of(config, orders) if event.key in (21, 22))


def streamed(server: SimulatedServer, config: object):  # type: ignore[no-untyped-def]
    """The progress reports of a run."""
    reports: list[object] = []
    make_capture(server, config, on_progress=reports.append).stream()  # type: ignore[arg-type]
    return reports


@pytest.mark.long
@pytest.mark.parametrize("step", ["", *HAND_OVER, "tables-marked"])
def test_an_instance_that_is_made_again_has_its_own_columns_behind_the_gap(tmp_path: Path, step: str) -> None:
    server, config, _, orders = started(tmp_path, gap_policy="ignore")
    server.disable(V1)
    server.add_column(orders, "c1")
    server.rows[orders][10]["c1"] = "x"
    made = server.enable(orders, V1)
    server.commit((orders, "update", 10, "b"))
    stream_until(server, config, step)
    make_capture(server, config).stream()
    [*_, last] = events_of(config, orders)
    assert last.after == server.rows[orders][10] == {"id": 10, "note": "b", "c1": "x"}
    state = state_of(config).tables[orders]
    assert (state.identity, len(state.gaps)) == (made.identity, 1)
    assert [event.key for event in events_of(config, orders) if event.op == "u"] == [10]


# an instance is gone after a window over it was planned


def with_nothing_left(server: SimulatedServer, orders: TableId) -> tuple[str, str]:
    server.disable(V1)
    return "failed", "has no capture instance any more"


def with_another_one_left(server: SimulatedServer, orders: TableId) -> tuple[str, str]:
    server.enable(orders, V2)
    server.disable(V1)
    return "gap", f"{V1} was dropped before it was completely read"


def made_again(server: SimulatedServer, orders: TableId) -> tuple[str, str]:
    server.disable(V1)
    server.add_column(orders, "c1")
    server.enable(orders, V1)
    return "gap", f"{V1} was disabled and enabled again"


DROPPED = [with_nothing_left, with_another_one_left, made_again]
Drop = Callable[[SimulatedServer, TableId], tuple[str, str]]


@pytest.mark.long
@pytest.mark.parametrize("transactions", [False, True], ids=["", "transactions"])
@pytest.mark.parametrize("drop", DROPPED, ids=lambda drop: drop.__name__)
@pytest.mark.parametrize("step", ["window-planned", "files-written", "table-committed", "window-complete"])
def test_an_instance_that_is_dropped_after_its_window_was_planned(
    tmp_path: Path, step: str, drop: Drop, transactions: bool
) -> None:
    server, config, lines, orders = started(tmp_path, transaction_metadata=transactions)
    made = list(server.instances)
    server.commit((orders, "insert", 11, "b"))  # alone, so that its commit is the first one
    stream_until(server, config, step)
    status, reason = drop(server, orders)
    server.commit((lines, "insert", 12, "c"), (orders, "insert", 12, "c"))
    make_capture(server, config).stream()
    server.commit((lines, "insert", 13, "d"))
    make_capture(server, config).stream()
    state = state_of(config).tables[orders]
    assert state.status == status
    assert reason in state.reason
    committed = step in ("table-committed", "window-complete")
    assert [event.key for event in events_of(config, orders) if event.op == "c"] == [10, 11][: 1 + committed]
    assert [event.key for event in events_of(config, lines) if event.op == "c"] == [10, 12, 13]
    check(server, config, made)


@pytest.mark.parametrize("drop", DROPPED, ids=lambda drop: drop.__name__)
@pytest.mark.parametrize("when", ["history-written", "cdc-assets: changes"])
def test_an_instance_that_is_dropped_while_its_window_is_carried_out(tmp_path: Path, when: str, drop: Drop) -> None:
    server, config, lines, orders = started(tmp_path)
    server.commit((lines, "insert", 11, "b"), (orders, "insert", 11, "b"))
    done: list[tuple[str, str]] = []

    def play(what: str) -> None:
        if when in what and ("CT" not in what or "orders" in what) and not done:
            done.append(drop(server, orders))

    server.before_read = play
    with listening(play):
        make_capture(server, config).stream()
    server.commit((lines, "insert", 12, "c"))
    make_capture(server, config).stream()
    [(status, reason)] = done
    state = state_of(config).tables[orders]
    assert state.status == status
    assert reason in state.reason
    assert [event.key for event in events_of(config, lines) if event.op == "c"] == [10, 11, 12]
    assert [event.key for event in events_of(config, orders) if event.op == "c"] == [10]


@pytest.mark.parametrize("step", ["window-planned", "history-written", "files-written", "table-committed"])
def test_both_instances_of_a_hand_over_are_gone(tmp_path: Path, step: str) -> None:
    server, config, lines, orders = started(tmp_path)
    server.commit((orders, "insert", 11, "old"))
    server.add_column(orders, "state")
    server.enable(orders, V2)
    server.commit((orders, "insert", 12, "new"))
    stream_until(server, config, step)
    server.disable(V1)
    server.disable(V2)
    server.enable(orders, V3)
    server.commit((lines, "insert", 12, "c"))
    make_capture(server, config).stream()
    state = state_of(config).tables[orders]
    assert state.status == "gap"
    assert "was dropped before it was completely read" in state.reason
    assert [event.key for event in events_of(config, lines) if event.op == "c"] == [10, 12]


# numbers of the history


def test_a_structure_that_could_not_be_read_at_first_is_recorded_by_the_next_window(tmp_path: Path) -> None:
    server, config, lines, orders = started(tmp_path)
    made = list(server.instances)
    for table in (lines, orders):
        server.add_column(table, "state")
        made.append(server.enable(table))
    server.commit((lines, "insert", 11, "b"), (orders, "insert", 11, "b"))
    read, server.table_schema = server.table_schema, refusing(server, orders)  # type: ignore[method-assign]
    stream_until(server, config, "history-written")
    server.table_schema = read  # type: ignore[method-assign]
    make_capture(server, config).stream()
    check(server, config, made)
    assert [entry[0] for table in (lines, orders) for entry in recorded(config, table)] == ["CREATE", "ALTER"] * 2


def two_databases(path: Path, **changes: object):  # type: ignore[no-untyped-def]
    """A server with a table in each of two databases, snapshotted."""
    server = SimulatedServer(names=("SalesDb", "Other"))
    orders = server.create("orders", rows=3)
    items = server.create("items", rows=3, database="Other")
    server.idle_tick()
    config = make_config(str(path), **changes)
    config = dataclasses.replace(
        config, connection=dataclasses.replace(config.connection, databases=("SalesDb", "Other"))
    )
    make_capture(server, config).snapshot()
    return server, config, orders, items


@pytest.mark.long
@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_structures_of_a_snapshot_whose_number_was_passed_are_recorded(tmp_path: Path, known: bool) -> None:
    server, config, orders, items = two_databases(tmp_path, gap_policy="resnapshot")
    server.commit((orders, "insert", 10, "a"), (items, "insert", 10, "a"))
    make_capture(server, config).stream()
    added = items if known else TableId("Other", "dbo", "added")
    busy: list[str] = []

    def come(name: str) -> None:
        """Another table comes while the loop runs, or one of fewer columns loses its instance and is read again."""
        if name != "window-complete" or (added in server.rows and not known) or server.schemas[items].column("c1"):
            return
        if known:
            server.disable("dbo_items")
            server.add_column(items, "c1")
            server.enable(items, "dbo_items")
        else:
            server.create("added", rows=2, database="Other")
        server.commit((added, "insert", 20, "b"))

    def fail_once(tables: Sequence[TableId], known: Lsn = ZERO_LSN) -> object:
        if added in tables and "Other" in state_of(config).snapshots and not busy:
            busy.append("deadlock")
            server.add_column(orders, "more")  # the other database's window records a structure under a later number
            server.enable(orders, V2)
            server.commit((orders, "insert", 30, "n"))
            raise ServerBusyError("deadlock victim")
        return SimulatedServer.table_schemas(server, tables, known)

    server.table_schemas = fail_once  # type: ignore[method-assign,assignment]
    server.commit((orders, "insert", 11, "a"), (items, "insert", 11, "a"))
    with listening(come):
        make_capture(server, config).stream()
    assert busy
    assert (recorded(config, orders)[-1], recorded(config, added)[-1]) == (
        ("ALTER", V2, 3),
        ("CREATE", f"dbo_{added.table}", 3 if known else 2),
    )
    server.commit((added, "insert", 21, "next"))
    assert make_capture(server, config).stream().troubled == ()
    assert events_of(config, added)[-1].after == server.rows[added][21]


@pytest.mark.parametrize("both", [False, True], ids=["one", "both"])
def test_a_committed_window_is_not_read_again_behind_an_instance_with_the_same_columns(
    tmp_path: Path, both: bool
) -> None:
    server, config, orders, items = two_databases(tmp_path)
    made = list(server.instances)
    if both:
        server.commit((items, "insert", 5, "first"))
    made.append(server.enable(items, "items_2"))
    server.commit((items, "insert", 6, "second"))
    if not both:
        make_capture(server, config).stream()
        server.disable("dbo_items")
        server.commit((items, "insert", 7, "third"))
    server.commit((orders, "insert", 6, "six"))
    committed: list[str] = []

    def die(name: str) -> None:
        committed.extend([name] if name == "table-committed" else [])
        if len(committed) == 2:
            raise PowerCutError

    with listening(die), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    server.troubles["Other"] = DatabaseAwayError("Database Other is offline.")
    make_capture(server, config).stream()
    del server.troubles["Other"]
    server.commit((items, "insert", 8, "last"))
    assert make_capture(server, config).stream().troubled == ()
    check(server, config, made)


# which of two is the newer one


def test_the_newer_instance_is_that_with_the_later_start_whatever_the_clock_says(tmp_path: Path) -> None:
    server, config, _, orders = started(tmp_path)
    made = list(server.instances)
    server.add_column(orders, "state")
    late = server.enable(orders, V2)
    first = next(instance for instance in server.instances if instance.name == V1)
    assert first.created is not None
    server.instances[-1] = dataclasses.replace(late, created=first.created.replace(year=2025))
    made.append(server.instances[-1])
    server.commit((orders, "insert", 11, "b"))
    make_capture(server, config).stream()
    assert state_of(config).tables[orders].instance == V2
    check(server, config, made)


@pytest.mark.parametrize("alone", [False, True], ids=["clean-up", "of one instance"])
def test_a_table_never_goes_back_to_an_instance_that_it_has_left(tmp_path: Path, alone: bool) -> None:
    server, config, lines, orders = started(tmp_path)
    server.add_column(orders, "state")
    second = server.enable(orders, V2)
    if not alone:  # its server's clock was set back
        server.instances[-1] = dataclasses.replace(second, created=server.now.replace(year=2025, tzinfo=None))
    reached = server.commit((lines, "insert", 11, "b"), (orders, "insert", 11, "b"))
    make_capture(server, config).stream()
    server.clean_up(reached)  # now both marks are equal
    if alone:
        reached = server.commit((orders, "insert", 12, "c"))
        make_capture(server, config).stream()
        server.instances = [
            dataclasses.replace(found, start_lsn=reached) if found.name == V1 else found for found in server.instances
        ]
    server.commit((orders, "insert", 13, "d"))
    make_capture(server, config).stream()
    server.commit((orders, "insert", 14, "e"))
    assert make_capture(server, config).stream().troubled == ()
    assert state_of(config).tables[orders].instance == V2
    assert [event.after for event in events_of(config, orders)][-1] == {"id": 14, "note": "e", "state": None}
    assert state_of(config).tables[orders].gaps == ()
    [_, drift] = CaptureOverview(config, server).drifts()
    assert (drift.removable, drift.differences) == (V1, ())


def test_a_table_whose_only_instance_has_no_start_yet_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The capture job fills in the start when it comes to the creation of the instance."""
    server, config, lines, orders = started(tmp_path)
    server.disable(V1)
    server.commit((lines, "insert", 11, "b"))

    def begin(database: str) -> frozenset[TableId]:
        if server.beginning:
            server.beginning.clear()
            server.enable(orders)
            return frozenset({orders})
        return frozenset()

    server.beginning.add(orders)
    monkeypatch.setattr(server, "beginning_tables", begin)
    make_capture(server, config).stream()
    state = state_of(config).tables[orders]
    assert state.status == "gap"
    assert "was disabled and enabled again" in state.reason
    assert state_of(config).tables[lines].position == server.captured


def test_the_other_tables_do_not_wait_for_an_instance_that_has_no_start_yet(tmp_path: Path) -> None:
    """The capture job may have hours of the log to read before it comes there."""
    server, config, lines, orders = started(tmp_path)
    server.disable(V1)
    server.beginning.add(orders)
    server.commit((lines, "insert", 11, "b"))
    make_capture(server, config).stream()
    tables = state_of(config).tables
    assert tables[lines].position == server.captured
    assert tables[orders].resumes
    assert "has not reached the start of its capture instance" in tables[orders].reason
    server.beginning.clear()
    server.enable(orders)
    [trouble] = make_capture(server, config).stream().troubled
    assert (trouble.table, trouble.status, trouble.gap_after) == (orders, "gap", tables[orders].position)
    assert ("DROP", "orders") not in told(config)
