"""The control plane answers what `core.ports.Source` promises."""

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest

from cdc_assets.adapters.sqlserver import commit_counts, reached
from cdc_assets.adapters.sqlserver.rows import lsn_of
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.sqlserver.table_queries import LOCK_WAIT_MS
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import Captured
from cdc_assets.core.schema import Column
from cdc_assets.errors import (
    CdcDisabledError,
    IncompleteReadError,
    LockTimeoutError,
    LoginError,
    PreflightError,
    ServerBusyError,
)
from cdc_assets.ledger.state import TableRead
from cdc_assets.shared.instances import before
from cdc_assets.streaming.row_counts import check_rows
from cdc_assets_tests.contract.source.conftest import DATABASE, PLAIN, Server, connection, drain, enable, remake, table
from mssql_standin.control import StandIn

pytestmark = pytest.mark.contract


@pytest.fixture
def shop(server: Server) -> Server:
    """Two captured tables with one transaction each, and one table that is not captured."""
    for name in ("a", "b"):
        server.execute(f"CREATE TABLE dbo.{name} (id int NOT NULL PRIMARY KEY, v nvarchar(20))", database=DATABASE)
        enable(server, name)
    server.execute("CREATE TABLE dbo.plain (id int NOT NULL PRIMARY KEY)", database=DATABASE)
    for name in ("a", "b"):
        server.execute(f"INSERT INTO dbo.{name} VALUES (1, N'x'), (2, N'y')", database=DATABASE)
    drain(server)
    return server


def insert(server: Server, name: str, first: int, count: int = 1) -> None:
    """One transaction of so many rows."""
    values = ", ".join(f"({number}, N'v')" for number in range(first, first + count))
    server.execute(f"INSERT INTO dbo.{name} VALUES {values}", database=DATABASE)


def test_databases_in_the_servers_letter_case(server: Server) -> None:
    with SqlServerSource(connection(server, DATABASE.upper())) as source:
        assert source.databases() == (DATABASE,)


def test_database_that_is_not_there(server: Server) -> None:
    with SqlServerSource(connection(server, "Nowhere")) as source:
        found = source.trouble("Nowhere")
    assert isinstance(found, LoginError)
    assert "'Nowhere' is not on" in str(found)
    with SqlServerSource(connection(server, DATABASE, "Nowhere")) as source:
        assert source.databases() == (DATABASE, "Nowhere")
        assert source.trouble(DATABASE) is None
        assert isinstance(source.trouble("Nowhere"), LoginError)


def test_server_time(source: SqlServerSource) -> None:
    now = source.server_time()
    assert now.tzinfo is not None
    assert abs(now - datetime.now(UTC)) < timedelta(minutes=1)


def test_user_tables(shop: Server, source: SqlServerSource) -> None:
    assert source.user_tables(DATABASE) == [table("a"), table("b"), table("plain")]


def test_capture_instances(shop: Server, source: SqlServerSource) -> None:
    a, b = source.capture_instances(DATABASE)
    assert (a.table, a.name, a.columns) == (table("a"), "dbo_a", ("id", "v"))
    assert (b.table, b.name) == (table("b"), "dbo_b")
    assert a.source_object_id == source.table_schema(table("a")).object_id  # type: ignore[union-attr]
    assert a.start_lsn > ZERO_LSN
    assert a.created is not None
    assert source.low_water_marks(DATABASE) == {"dbo_a": a.start_lsn, "dbo_b": b.start_lsn}


def test_an_instance_without_a_start_is_none_yet(shop: Server, source: SqlServerSource) -> None:
    assert source.beginning_tables(DATABASE) == frozenset()
    shop.execute("UPDATE cdc.change_tables SET start_lsn = NULL WHERE capture_instance = N'dbo_a'", database=DATABASE)
    assert source.beginning_tables(DATABASE) == {table("a")}
    assert [instance.name for instance in source.capture_instances(DATABASE)] == ["dbo_b"]


def test_a_captured_table_without_a_name_is_hidden(shop: Server, source: SqlServerSource) -> None:
    assert source.hidden_sources(DATABASE) == frozenset()
    shop.execute(
        "UPDATE cdc.change_tables SET source_object_id = 7 WHERE capture_instance = N'dbo_a'", database=DATABASE
    )
    assert source.hidden_sources(DATABASE) == {7}


def test_second_instance_sorts_behind_the_first(shop: Server, source: SqlServerSource) -> None:
    shop.execute("ALTER TABLE dbo.a ADD w int NULL", database=DATABASE)
    enable(shop, "a", "dbo_a_2")
    names = [(instance.name, instance.columns) for instance in source.capture_instances(DATABASE)]
    assert names == [("dbo_a", ("id", "v")), ("dbo_a_2", ("id", "v", "w")), ("dbo_b", ("id", "v"))]


def test_upper_bounds(shop: Server, source: SqlServerSource) -> None:
    newest = source.max_transaction_lsn(DATABASE, None, 0)
    captured = source.max_captured_lsn(DATABASE)
    assert newest is not None
    assert captured is not None
    assert captured >= newest
    assert source.max_transaction_lsn(DATABASE, newest, 0) is None
    for number in range(10, 15):
        insert(shop, "a", number)
    drain(shop)
    third = source.max_transaction_lsn(DATABASE, newest, 3)
    last = source.max_transaction_lsn(DATABASE, newest, 0)
    assert third is not None
    assert last is not None
    assert newest < third < last
    assert source.max_transaction_lsn(DATABASE, third, 2) == last
    assert source.max_transaction_lsn(DATABASE, third, 50) == last


def test_active_instances(shop: Server, source: SqlServerSource) -> None:
    start = source.max_transaction_lsn(DATABASE, None, 0)
    assert start is not None
    insert(shop, "b", 10)
    drain(shop)
    until = source.max_transaction_lsn(DATABASE, None, 0)
    assert until is not None
    assert source.active_instances(DATABASE, {"dbo_a": start, "dbo_b": start}, until) == {"dbo_b"}
    assert source.active_instances(DATABASE, {"dbo_a": ZERO_LSN, "dbo_b": ZERO_LSN}, start) == {"dbo_a", "dbo_b"}
    assert source.active_instances(DATABASE, {"dbo_b": until}, until) == frozenset()
    assert source.active_instances(DATABASE, {}, until) == frozenset()


def test_rows_of_other_types_than_markers_are_signals(shop: Server, source: SqlServerSource) -> None:
    instance = next(one for one in source.capture_instances(DATABASE) if one.name == "dbo_a")
    start = source.max_transaction_lsn(DATABASE, None, 0)
    assert start is not None
    shop.execute("INSERT INTO dbo.a VALUES (20, N'open'), (21, N'close')", database=DATABASE)
    shop.execute("DELETE FROM dbo.a WHERE v = N'x'", database=DATABASE)
    drain(shop)
    assert not source.has_signals(instance, "v", ("open", "close"), start)
    assert source.has_signals(instance, "v", ("open",), start)
    assert source.has_signals(instance, "v", ("open", "close"), ZERO_LSN)
    shop.execute("INSERT INTO dbo.a VALUES (22, NULL)", database=DATABASE)
    drain(shop)
    assert source.has_signals(instance, "v", ("open", "close"), start), "NULL is not the name of a marker"


def test_an_instance_that_vanished_counts_as_active(shop: Server, source: SqlServerSource) -> None:
    until = source.max_transaction_lsn(DATABASE, None, 0)
    assert until is not None
    bounds = {"dbo_a": until.from_int(int(until) - 1), "gone": ZERO_LSN, "dbo_b": ZERO_LSN}
    assert source.active_instances(DATABASE, bounds, until) == {"gone", "dbo_b"}


def test_who_is_written_to_says_so_with_its_answer(shop: Server, source: SqlServerSource) -> None:
    captured, fork = source.captured_by(DATABASE), source.recovery_fork(DATABASE)
    assert captured == Captured(source.max_captured_lsn(DATABASE), is_of_replica=False)
    assert captured.lsn is not None
    assert fork is not None
    assert not fork.is_of_replica
    with patch.object(SqlServerSource, "_rows", return_value=[(captured.lsn.raw, "READ_ONLY")]):
        assert source.captured_by(DATABASE) == replace(captured, is_of_replica=True)


@pytest.mark.parametrize("ask", ["active_instances", "rows_per_commit"])
def test_a_server_that_lags_says_nothing_about_changes(shop: Server, source: SqlServerSource, ask: str) -> None:
    """As another replica that a connection was routed to when it was made again."""
    newest = source.max_transaction_lsn(DATABASE, None, 0)
    assert newest is not None
    assert not source.is_replica(DATABASE)
    with pytest.raises(IncompleteReadError, match=f"{DATABASE} on .* less than {newest.next()}"):
        getattr(source, ask)(DATABASE, {"dbo_a": ZERO_LSN}, newest.next())
    assert getattr(source, ask)(DATABASE, {"dbo_a": ZERO_LSN}, newest)


def test_a_server_that_lags_says_nothing_about_transactions(shop: Server, source: SqlServerSource) -> None:
    captured, newest = source.max_captured_lsn(DATABASE), source.max_transaction_lsn(DATABASE, None, 0)
    assert captured is not None
    for limit in (0, 1):
        with pytest.raises(IncompleteReadError, match=f"less than {captured.next()}"):
            source.max_transaction_lsn(DATABASE, None, limit, captured.next())
    assert source.max_transaction_lsn(DATABASE, None, 0, captured) == newest


def test_a_server_that_lags_says_nothing_about_structures(shop: Server, source: SqlServerSource) -> None:
    captured = source.max_captured_lsn(DATABASE)
    assert captured is not None
    with pytest.raises(IncompleteReadError, match=f"less than {captured.next()}"):
        source.capture_instances(DATABASE, captured.next())
    assert source.capture_instances(DATABASE, captured) == source.capture_instances(DATABASE)
    known = max(captured, *source.low_water_marks(DATABASE).values())
    with pytest.raises(IncompleteReadError, match=f"less than {known.next()}"):
        source.table_schema(table("a"), known.next())
    assert source.table_schema(table("a"), known) == source.table_schema(table("a"))


def test_a_server_that_lags_says_no_times_and_no_values(shop: Server, source: SqlServerSource) -> None:
    """A lagging one would say earlier times, and not know the newest NULL."""
    captured, [instance, *_] = source.max_captured_lsn(DATABASE), source.capture_instances(DATABASE)
    assert captured is not None
    for known in (captured, captured.next()):
        lags = nullcontext() if known == captured else pytest.raises(IncompleteReadError, match=f"less than {known}")
        with lags:
            source.commit_times(DATABASE, [captured], known)
        with lags:
            source.columns_with_nulls(instance, [Column(instance.columns[0], "int", 1)], ZERO_LSN, known)


@pytest.mark.parametrize("ask", ["lists_as_replica", "beginning_tables", "hidden_sources"])
def test_why_a_table_is_missing_is_said_by_who_does_not_show_it(
    shop: Server, source: SqlServerSource, ask: str
) -> None:
    source.session.close()
    source.capture_instances(DATABASE)
    assert not getattr(source, ask)(DATABASE)
    source.session.close()
    with pytest.raises(IncompleteReadError, match="between two questions"):
        getattr(source, ask)(DATABASE)


def test_each_connection_is_asked_once_how_far_its_log_is(
    shop: Server, source: SqlServerSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest, answers = source.max_transaction_lsn(DATABASE, None, 0), list[object]()
    assert newest is not None
    monkeypatch.setattr(reached, "lsn_of", lambda answer: answers.append(answer) or lsn_of(answer))
    for expected in (1, 1, 2):
        if expected == 2:
            source.session.close()
        source.active_instances(DATABASE, {"dbo_a": ZERO_LSN}, newest)
        assert len(answers) == expected


def test_marks_are_of_the_server_that_said_which_tables_have_changes(shop: Server, source: SqlServerSource) -> None:
    """On another replica the clean-up may not have come as far, so that nothing would show what it has removed."""
    newest = source.max_transaction_lsn(DATABASE, None, 0)
    assert newest is not None
    source.session.close()
    active = source.active_instances(DATABASE, {"dbo_a": ZERO_LSN}, newest)
    assert source.low_water_marks(DATABASE).keys() >= active
    source.active_instances(DATABASE, {"dbo_a": ZERO_LSN}, newest)
    source.session.close()
    with pytest.raises(IncompleteReadError, match="between two questions"):
        source.low_water_marks(DATABASE)
    assert source.low_water_marks(DATABASE).keys() >= active


def test_so_are_marks_where_rows_are_counted_again(
    shop: Server, source: SqlServerSource, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else rows that the clean-up job has removed would be told as removed by hand, and nobody would know of the gap."""
    monkeypatch.setattr(commit_counts, "_TRANSACTIONS", 2)
    newest, count = source.max_transaction_lsn(DATABASE, None, 0), source.rows_per_commit
    assert newest is not None
    read = TableRead(table("a"), "dbo_a", before(source.low_water_marks(DATABASE)["dbo_a"]), newest, rows=2)

    def elsewhere(*asked: Any) -> Mapping[str, Sequence[tuple[Lsn, int]]]:
        found = count(*asked)
        source.session.close()
        return {"dbo_a": found["dbo_a"][1:]}

    with monkeypatch.context() as patched:
        patched.setattr(source, "rows_per_commit", elsewhere)
        with pytest.raises(IncompleteReadError, match="between two questions"):
            check_rows(source, [read], [{}], ())
    with patch.object(source._beside, "rows_behind", side_effect=AssertionError("it may be of another server, too")):
        check_rows(source, [replace(read, rows=3)], [{(table("a"), "dbo_a", False): 2}], ())
    assert "somebody has removed rows" in caplog.text


@pytest.mark.parametrize("many", [1, 2, 6, 1000])
def test_rows_are_counted_by_commit(
    shop: Server, source: SqlServerSource, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """One connection counts few transactions, and two count many."""
    monkeypatch.setattr(commit_counts, "_TRANSACTIONS", many)
    start = source.max_transaction_lsn(DATABASE, None, 0)
    assert start is not None
    commits: list[Lsn] = []
    for number in range(6):
        insert(shop, "ab"[number % 2], 100 + 10 * number, 5)
        drain(shop)
        commits.append(source.max_transaction_lsn(DATABASE, None, 0) or ZERO_LSN)
    bounds = {"dbo_a": start, "dbo_b": commits[2]}
    expected = {"dbo_a": [(lsn, 5) for lsn in commits[::2]], "dbo_b": [(lsn, 5) for lsn in commits[3::2]]}
    assert source.rows_per_commit(DATABASE, bounds, commits[-1]) == expected
    assert source.rows_per_commit(DATABASE, bounds | {"gone": start}, commits[-1]) == expected, "nothing is known of it"
    assert source.rows_per_commit(DATABASE, {"gone": start}, commits[-1]) == {}
    assert source.rows_per_commit(DATABASE, {"dbo_a": commits[-1]}, commits[-1]) == {"dbo_a": []}
    assert source.rows_per_commit(DATABASE, bounds, commits[-1], skipped=[2]) == {"dbo_a": [], "dbo_b": []}
    assert source.rows_per_commit(DATABASE, {}, commits[-1]) == {}


def test_an_error_of_the_second_connection_ends_the_count(
    shop: Server, source: SqlServerSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = source.max_transaction_lsn(DATABASE, None, 0)
    assert until is not None
    monkeypatch.setattr(commit_counts, "_TRANSACTIONS", 2)
    busy = ServerBusyError("given up.")
    with (
        patch.object(source._beside, "rows_behind", side_effect=busy),
        pytest.raises(ServerBusyError, match="given up"),
    ):
        source.rows_per_commit(DATABASE, {"dbo_a": ZERO_LSN}, until)


@pytest.mark.parametrize("step", range(1, 14))
def test_places_divide_a_transaction_and_no_update(shop: Server, source: SqlServerSource, step: int) -> None:
    texts = ["INSERT INTO dbo.a (id) VALUES (201), (202), (203)", "UPDATE dbo.a SET id = id + 100 WHERE id > 200"]
    texts += ["UPDATE dbo.a SET v = N'x' WHERE id > 300", "INSERT INTO dbo.b (id) VALUES (201)"]
    shop.execute(f"BEGIN TRAN; {'; '.join(texts)}; COMMIT", database=DATABASE)
    drain(shop)
    commit = source.max_transaction_lsn(DATABASE, None, 0)
    assert commit is not None
    [*rows] = shop.execute(
        "SELECT [__$command_id], [__$seqval], [__$operation] FROM cdc.dbo_a_CT WHERE [__$start_lsn] = ? ORDER BY 1, 2, 3",
        commit.raw,
        database=DATABASE,
    )
    found = source.positions_in_commit(DATABASE, ["gone", "dbo_a", "dbo_b"], commit, step)
    assert [str(place) for place in found] == sorted(str(place) for place in found)
    last = [(command, bytes(change)) for command, change, _ in rows]
    ends = [0, *(len([row for row in last if row <= (place.command_id, place.change_lsn.raw)]) for place in found)]
    parts = [high - low for low, high in pairwise(ends) if low < high]
    assert len(parts) == len(set(ends)) - 1 >= len(rows) // (step + 1) - 1
    assert all(step <= part <= step + 1 for part in parts)  # one more where the place is that of an update's row 3
    assert len(rows) - ends[-1] <= step + 1


def test_commit_times(shop: Server, source: SqlServerSource) -> None:
    lsn = source.max_transaction_lsn(DATABASE, None, 0)
    assert lsn is not None
    times = source.commit_times(DATABASE, [lsn, lsn, Lsn.from_int(7)])
    assert times.keys() == {lsn}
    assert abs(times[lsn] - datetime.now(UTC)) < timedelta(minutes=1)


def test_time_of_a_place_between_two_commits_is_that_of_the_commit_before_it(
    shop: Server, source: SqlServerSource
) -> None:
    first, second = (source.max_transaction_lsn(DATABASE, None, number) for number in (1, 2))
    assert first is not None
    assert second is not None
    assert first.next() < second
    times = source.commit_times(DATABASE, [first, first.next(), second, second.next(), Lsn.from_int(7)])
    assert set(times) == {first, first.next(), second, second.next()}
    assert times[first] == times[first.next()] <= times[second] == times[second.next()]


def test_row_counts(shop: Server, source: SqlServerSource) -> None:
    schemas = source.table_schemas([table("a"), table("b")])
    gone = replace(schemas[table("a")], table=table("nope"), object_id=7)
    found = source.row_counts([*schemas.values(), gone])
    assert (found[table("a")], found[table("nope")]) == (2, 0)
    assert found.keys() == {table("a"), table("b"), table("nope")}


def test_where_to_cut_a_locked_table_is_asked_without_waiting(
    shop: Server, standin: StandIn, source: SqlServerSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_assets.adapters.sqlserver.ranges.MIN_ROWS_PER_RANGE", 1)
    [schema] = source.table_schemas([table("a")]).values()
    with standin.connect(DATABASE) as other:
        other.execute("BEGIN TRAN; SELECT COUNT(*) FROM dbo.a WITH (TABLOCKX, HOLDLOCK)")
        began = time.monotonic()
        rows = source.row_counts([schema])[schema.table]
        assert len(source.key_ranges(schema, rows, 2)) == 2
        assert time.monotonic() - began < 30
        other.execute("ROLLBACK")


def test_locks_are_waited_for_no_longer_than_allowed(shop: Server, standin: StandIn) -> None:
    settings = connection(shop, DATABASE)
    with SqlServerSource(settings, lock_timeout_ms=100) as source, standin.connect(DATABASE) as other:
        source.databases()
        other.execute("BEGIN TRAN; SELECT COUNT(*) FROM dbo.a WITH (TABLOCKX, HOLDLOCK)")
        began = time.monotonic()
        with pytest.raises(LockTimeoutError, match=r"snapshot\.lock\.timeout\.ms"):
            source.delete_signal(table("a"), "id", "1")
        assert time.monotonic() - began < 30
        other.execute("ROLLBACK")
        [[outside]] = source.session.rows("SELECT @@LOCK_TIMEOUT")
        assert outside == LOCK_WAIT_MS


def test_database_without_cdc(server: Server) -> None:
    remake(server, PLAIN, cdc=False)
    with SqlServerSource(connection(server, PLAIN)) as source:
        assert isinstance(source.trouble(PLAIN), CdcDisabledError)
        for ask in (
            lambda: source.capture_instances(PLAIN),
            lambda: source.max_transaction_lsn(PLAIN, None, 0),
            lambda: source.low_water_marks(PLAIN),
            lambda: source.table_schema(TableId(PLAIN, "dbo", "a"), known=ZERO_LSN.next()),
        ):
            with pytest.raises(PreflightError, match="sp_cdc_enable_db"):
                ask()
