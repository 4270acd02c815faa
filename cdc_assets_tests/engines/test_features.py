"""What connectors can send beside plain rows, from real servers: the same as the connector's own JSON, and each once."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from cdc_assets_tests.engines.captures import (
    captured,
    comparable,
    connector_alone,
    log_of,
    ours,
    properties_of,
    quiet,
    sent,
    topics,
)
from cdc_assets_tests.engines.servers import MariaDb, Postgres, Server
from cdc_assets_tests.patience import Patience, wait_until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
POSTGRES_TYPES = """
create type mood as enum ('sad', 'happy');
create table kinds (
    id int primary key, small smallint, big bigint, yes boolean, exact numeric(12,3), free numeric, wide numeric(60,5),
    single real, two double precision, price money, t text, c char(4), raw bytea, day date, clock time(3), zoned timetz,
    moment timestamp(3), fine timestamp(6), at timestamptz, span interval, tree json, binary_tree jsonb, who uuid,
    address inet, net cidr, card macaddr, bits bit(10), one bit(1), more bit varying(20), spot point, feeling mood,
    numbers int[], texts text[], days date[], amounts numeric(8,2)[], ids uuid[], pairs hstore, marks xml, reach int4range,
    path ltree, twice int generated always as (small * 2) stored, counted int default 7,
    tiny numeric(2, 5) default 0.00012, round numeric(5, -2) default 12300)
"""
POSTGRES_ROWS = [
    """insert into kinds values (1, -3, 9000000000, true, -1234.500, 1e30, 12345678901234567890123456789012345678901234567890.12345,
    1.5, 'NaN', '12.34', E'ü"\\n', 'ab', '\\x00ff', '2024-02-29', '23:59:59.123', '12:00:00.5+02', '2024-01-01 10:00:00.123',
    '1969-12-31 23:59:59.999999', '2024-01-01 10:00:00.5+02', '1 year 2 mons 3 days 04:05:06.789', '{"a": [1, null]}', '{"b":  1}',
    '11111111-2222-3333-4444-555555555555', '10.0.0.1/8', '10.0.0.0/8', '08:00:2b:01:02:03', B'1010101010', B'1', B'101',
    '(1.5,-2)', 'happy', '{1,null,3}', '{a,"b c",null}', '{2024-02-29}', '{1.25,-3.10}',
    '{11111111-2222-3333-4444-555555555555}', 'a=>1, b=>NULL', '<a/>', '[1,5)', 'top.sub', default, default)""",
    "insert into kinds (id) values (2)",
    "insert into kinds (id, single, two, numbers, texts, pairs) values (3, '-Infinity', 1e300, '{}', '{}', '')",
]
MARIADB_TYPES = """
create table kinds (
    id int primary key, t1 tinyint, yes boolean, u tinyint unsigned, i8 bigint unsigned, m mediumint unsigned,
    exact decimal(12,3), wide decimal(60,5), unsigned_exact decimal(10,2) unsigned, single float, two double,
    one bit(1), bits bit(12), y year, day date, clock time(6), moment datetime(6), rough datetime, at timestamp(3) null,
    feeling enum('sad','happy'), likes set('a','b','c'), tree json, spot point, shape geometry, c char(4) character set latin1,
    vc varchar(20), raw binary(4), vraw varbinary(20), b blob, t mediumtext, twice int generated always as (t1 * 2) stored,
    counted int default 7)
"""
MARIADB_ROWS = [
    """insert into kinds values (1, -3, true, 255, 18446744073709551615, 16777215, -1234.500,
    1234567890123456789012345678901234567890123456789012345.12345, 9.99, 1.5, 1e300, b'1', b'101010101010', 2024, '2024-02-29',
    '-838:59:59', '1000-01-01 10:00:00.123456', '2024-01-01 10:00:00', '2024-01-01 10:00:00.5', 'happy', 'a,c',
    '{"a": [1, null]}', point(1.5, -2), st_geomfromtext('linestring(0 0, 1 2)'), 'é', 'ü"\\n', x'00ff', x'ff00', x'0001', 'long',
    default, default)""",
    "insert into kinds (id) values (2)",
    "insert into kinds (id, y, clock) values (3, 1999, '12:00:00.000001')",
]
CASES = [
    (Postgres, {"decimal.handling.mode": "precise", "time.precision.mode": "adaptive", "hstore.handling.mode": "json"}),
    (Postgres, {"decimal.handling.mode": "double", "time.precision.mode": "connect", "hstore.handling.mode": "map"}),
    (MariaDb, {"decimal.handling.mode": "precise", "time.precision.mode": "adaptive_time_microseconds"}),
    (MariaDb, {"decimal.handling.mode": "string", "time.precision.mode": "connect", "bigint.unsigned.handling.mode": "precise"}),
]  # fmt: skip


def assert_same(lake: Path, expected: dict[str, list[dict[str, Any]]]) -> None:
    found = topics(lake)
    assert {name: len(events) for name, events in found.items()} == {
        name: len(events) for name, events in expected.items()
    }
    for name, events in expected.items():
        assert [comparable(event) for event in found[name]] == [comparable(event) for event in events], name


def fill(server: Server, rows: Sequence[str]) -> None:
    for row in rows:
        server.execute(row)


@pytest.mark.parametrize(("kind", "modes"), CASES)
def test_types(kind: type[Server], modes: dict[str, str], tmp_path: Path) -> None:
    with kind(tmp_path / "server.log") as server:
        if kind is Postgres:
            server.execute("create extension hstore; create extension ltree")
        server.execute(POSTGRES_TYPES if kind is Postgres else MARIADB_TYPES)
        rows = POSTGRES_ROWS if kind is Postgres else MARIADB_ROWS
        fill(server, rows)
        own, other = (properties_of(server, number) | modes for number in (0, 1))
        with connector_alone(tmp_path / "alone", other) as alone:
            quiet(alone, 2, len(rows))
            assert captured(tmp_path, own) == 0, log_of(tmp_path)
            server.execute("update kinds set id = id + 10")
            server.execute("delete from kinds")
            fill(server, rows)
            quiet(alone, 3, 7 * len(rows))
            assert captured(tmp_path, own) == 0, log_of(tmp_path)
            assert_same(tmp_path / "lake", sent(alone))


EVOLUTION = [
    "create table a (id int primary key, x int, y varchar(20))",
    "insert into a values (1, 2, 'three')",
    "alter table a add column z int",
    "insert into a values (2, 3, 'four', 5)",
    "alter table a drop column x",
    "update a set id = 20 where id = 2",
    "alter table a rename column y to why",
    "insert into a values (3, 'six', null)",
    "alter table a {retype}",
    "insert into a values (4, '7', 8)",
    "truncate table a",
    "create table b (n int)",
    "insert into b values (1)",
    "insert into a values (5, '8', 9)",
    "delete from a where id = 5",
]


@pytest.mark.parametrize("kind", [MariaDb, Postgres])
def test_changing_structures_and_other_operations(kind: type[Server], tmp_path: Path) -> None:
    """Added, dropped, renamed and retyped columns, changed keys, deletions without tombstones, TRUNCATE, messages."""
    is_postgres = kind is Postgres
    retype = "alter column z type text" if is_postgres else "modify z varchar(9)"
    with kind(tmp_path / "server.log") as server:
        server.execute("create table first (id int primary key)")
        server.execute("insert into first values (1)")
        own, other = (
            properties_of(server, number, tombstones__on__delete="false", provide__transaction__metadata="true")
            for number in (0, 1)
        )
        with connector_alone(tmp_path / "alone", other) as alone:
            quiet(alone, 2, 1)
            assert captured(tmp_path, own) == 0, log_of(tmp_path)
            for number, statement in enumerate(EVOLUTION):
                server.execute(statement.format(retype=retype))
                if is_postgres and number % 4 == 1:
                    server.execute("select pg_logical_emit_message(false, 'ours', 'outside')")
                    server.execute("begin; select pg_logical_emit_message(true, 'ours', 'inside'); insert into b select 1 where false; commit" if number > 11 else "select pg_logical_emit_message(true, 'ours', 'inside')")  # fmt: skip
                if number in (4, 9):
                    assert captured(tmp_path, own, CDC_CRASH_AT="batch-planned") == -9, log_of(tmp_path)
            assert captured(tmp_path, own) == 0, log_of(tmp_path)
            quiet(alone, 3, 20)
            expected = sent(alone)
        assert_same(tmp_path / "lake", expected)
        operations = [
            event["value"]["op"] for events in expected.values() for event in events if "op" in event["value"]
        ]
        assert {"r", "c", "u", "d", "t"} - set(operations) <= {"u"}
        assert ("m" in operations) is is_postgres
        assert any(event["headers"] for event in next(e for n, e in expected.items() if n.endswith(".a")))
        assert (tmp_path / "lake").joinpath(next(n for n in expected if n.endswith(".a")) + "@2").is_dir()


SIGNAL_TABLE = "create table signals (id varchar(64) primary key, type varchar(32), data varchar(2048))"


@pytest.mark.parametrize("kind", [MariaDb, Postgres])
@pytest.mark.parametrize("channel", ["source", "source,file"])  # the marks around chunks come by `source` in any case
def test_incremental_snapshots_read_each_row_once(kind: type[Server], channel: str, tmp_path: Path) -> None:
    """Asked for by a row or a file; the run is killed in the middle."""
    schema = "public" if kind is Postgres else "shop"
    with kind(tmp_path / "server.log") as server:
        server.execute(SIGNAL_TABLE)
        server.execute("create table items (id int primary key, n int)")
        server.execute("insert into items values " + ", ".join(f"({number}, 0)" for number in range(60)))
        file = tmp_path / "signals.json"
        file.touch()
        own = properties_of(server, 0) | {
            "signal.data.collection": f"{schema}.signals",
            "signal.enabled.channels": channel,
            "signal.file": str(file),
            "incremental.snapshot.chunk.size": "7",
            "signal.poll.interval.ms": "300",
            "read.only": "false",
            "max.batch.size": "8",
        }
        assert captured(tmp_path, own) == 0, log_of(tmp_path)
        data = {"data-collections": [f"{schema}.items"], "type": "incremental"}
        if channel == "source":
            server.execute(f"insert into signals values ('one', 'execute-snapshot', '{json.dumps(data)}')")
        else:
            file.write_text(json.dumps({"id": "one", "type": "execute-snapshot", "data": data}) + "\n")
        server.execute("update items set n = 1 where id = 3")
        captured(tmp_path, own | {"engine.batch.rows": "9"}, CDC_CRASH_AT="table-committed:4")
        server.execute("update items set n = 2 where id = 4")
        assert captured(tmp_path, own, idle=6) == 0, log_of(tmp_path)
        events = next(found for name, found in topics(tmp_path / "lake").items() if name.endswith(".items"))
        read = [event["key"]["id"] for event in events if event["value"]["source"]["snapshot"] == "incremental"]
        assert sorted(read) == list(range(60))
        assert [event["key"]["id"] for event in events if event["value"]["op"] == "u"] == [3, 4]


@pytest.mark.parametrize("kind", [MariaDb, Postgres])
def test_signals_that_name_no_captured_table_are_told(kind: type[Server], tmp_path: Path) -> None:
    """The connector itself reports both snapshots as complete."""
    schema = "public" if kind is Postgres else "shop"
    with kind(tmp_path / "server.log") as server:
        server.execute(SIGNAL_TABLE)
        server.execute("create table items (id int primary key)")
        server.execute("insert into items values (1)")
        own = properties_of(server, 0) | {"signal.data.collection": f"{schema}.signals"}
        assert captured(tmp_path, own) == 0, log_of(tmp_path)
        for snapshot in ("blocking", "incremental"):
            data = json.dumps({"data-collections": [f"{schema}.itmes"], "type": snapshot})
            server.execute(f"insert into signals values ('{snapshot}', 'execute-snapshot', '{data}')")
        assert captured(tmp_path, own, idle=6) == 1, log_of(tmp_path)
        assert "The blocking snapshot of a signal has read no table" in log_of(tmp_path)
        assert f"by signal 'incremental' has not read '{schema}.itmes'" in log_of(tmp_path)
        assert f"Captured are: {schema}.items" in log_of(tmp_path)


@pytest.mark.parametrize("kind", [MariaDb, Postgres])
@pytest.mark.parametrize("snapshot", ["blocking", "incremental"])
def test_a_table_that_the_lists_let_through_later_counts_as_read_once_a_snapshot_has_read_it_whole(
    kind: type[Server], snapshot: str, tmp_path: Path
) -> None:
    """The connector reports first what its own snapshot did at this start, also if that was nothing."""
    schema = "public" if kind is Postgres else "shop"
    with kind(tmp_path / "server.log") as server:
        server.execute(SIGNAL_TABLE)
        for table in ("items", "late"):
            server.execute(f"create table {table} (id int primary key)")
            server.execute(f"insert into {table} values (1), (2), (3)")
        own = properties_of(server, 0) | {"signal.data.collection": f"{schema}.signals", "read.only": "false"}
        lists = {"table.include.list": f"{schema}.items,{schema}.signals"}
        assert captured(tmp_path, own | lists) == 0, log_of(tmp_path)
        lists["table.include.list"] += f",{schema}.late"
        assert captured(tmp_path, own | lists) == 0, log_of(tmp_path)
        late = "postgres.public.late" if kind is Postgres else "shop.late"
        assert unread_tables(tmp_path) == [late]
        for number, condition in enumerate(({"data-collection": f"{schema}.late", "filter": "id > 1"}, None)):
            data: dict[str, Any] = {"data-collections": [f"{schema}.late"], "type": snapshot}
            if condition:
                statement = {"data-collection": f"{schema}.late", "filter": f"select * from {schema}.late where id > 1"}
                data["additional-conditions"] = [condition if snapshot == "incremental" else statement]
            text = json.dumps(data)
            server.execute(f"insert into signals values ('s{number}', 'execute-snapshot', '{text}')")
            assert captured(tmp_path, own | lists, idle=6) == 0, log_of(tmp_path)
            assert unread_tables(tmp_path) == ([late] if condition else []), log_of(tmp_path)


def unread_tables(folder: Path) -> list[str]:
    """Tables of which `status` says that it is not known whether all of their rows are in the lake."""
    found = status_of(folder)
    return [one["where"] for one in found["unknown"] if "existing rows were not read" in one["what"]]


def purge(server: Server) -> None:
    """Remove all binlogs but the newest; those that a client has open stay for a while."""
    patience = Patience(90)
    while "bin.000001" in server.execute("flush binary logs; show binary logs"):
        assert patience, server.execute("show processlist")
        newest = server.execute("show master status").split()[0]
        server.execute(f"purge binary logs to '{newest}'")
        time.sleep(1)


def status_of(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "cdc_assets.cli.main", "status", "--json", "-c", str(folder / "capture.json")]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    return found


RECREATED = "select pg_drop_replication_slot('slot0')", "select pg_create_logical_replication_slot('slot0', 'pgoutput')"


@pytest.mark.parametrize(
    ("kind", "after"),
    [(MariaDb, ()), (Postgres, RECREATED[:1]), (Postgres, RECREATED)],
    ids=["purged", "dropped", "made-anew"],
)
def test_a_log_that_is_gone_is_told_and_nothing_is_claimed(
    kind: type[Server], after: Sequence[str], tmp_path: Path
) -> None:
    """The binlog was purged, the slot was dropped or made anew: no run reads on as if nothing were missing, and none loses what follows."""
    with kind(tmp_path / "server.log") as server:
        server.execute("create table items (id int primary key)")
        server.execute("insert into items values (1)")
        own = properties_of(server, 0)
        assert captured(tmp_path, own) == 0, log_of(tmp_path)
        server.execute("insert into items values (2)")
        server.execute("insert into items values (3)")
        assert captured(tmp_path, own) == 0, log_of(tmp_path)
        for statement in after[:1]:
            server.execute(statement)
        server.execute("insert into items values (4)")
        for statement in after[1:]:
            server.execute(statement)
        if kind is MariaDb:
            purge(server)
        assert captured(tmp_path, own) != 0, log_of(tmp_path)
        assert "complete only as far as that" in log_of(tmp_path)
        events = next(found for name, found in topics(tmp_path / "lake").items() if name.endswith(".items"))
        assert [event["key"]["id"] for event in events] == [1, 2, 3]
        status = status_of(tmp_path)
        assert {table["condition"] for table in status["tables"]} == {"gap"}
        assert status["health"] == "in trouble"
        assert captured(tmp_path, own | {"snapshot.mode": "when_needed"}) == 0, log_of(tmp_path)
        events = next(found for name, found in topics(tmp_path / "lake").items() if name.endswith(".items"))
        assert [event["key"]["id"] for event in events] == [1, 2, 3, 1, 2, 3, 4]
        [gap] = status_of(tmp_path)["advice"]
        assert gap.startswith(f"Changes between {status['databases'][0]['complete_to']} and ")
        assert status_of(tmp_path)["health"] == "healthy"
        server.execute("insert into items values (5), (6), (7)")
        server.execute("insert into items values (8)")
        assert captured(tmp_path, own) == 0, log_of(tmp_path)
        events = next(found for name, found in topics(tmp_path / "lake").items() if name.endswith(".items"))
        assert [event["key"]["id"] for event in events] == [1, 2, 3, 1, 2, 3, 4, 5, 6, 7, 8], (
            "those after a snapshot are new"
        )


def test_a_connector_that_begins_anew_with_empty_tables_leaves_a_gap(tmp_path: Path) -> None:
    """Its snapshot has no row, and the first event behind it must not pass for one that follows what is in the lake."""
    with Postgres(tmp_path / "server.log") as server:
        server.execute("create table items (id int primary key)")
        server.execute("insert into items values (1)")
        own = properties_of(server, 0, snapshot__mode="when_needed")
        assert captured(tmp_path, own) == 0, log_of(tmp_path)
        server.execute("delete from items")
        server.execute(RECREATED[0])
        process = ours(tmp_path, own | {"lake.path": str(tmp_path / "lake"), "engine.heap": "512m"}, idle=40)
        slots = "select count(*) from pg_replication_slots where active"
        wait_until(lambda: server.execute(slots).strip() == "1", 300, lambda: log_of(tmp_path))
        server.execute("insert into items values (2)")
        assert process.wait(300) == 0, log_of(tmp_path)
        events = next(found for name, found in topics(tmp_path / "lake").items() if name.endswith(".items"))
        assert [event["key"]["id"] for event in events] == [1, 2], "the deletion is lost"
        status = status_of(tmp_path)
        assert any(told.startswith("Changes between ") for told in status["advice"]), status
        assert captured(tmp_path, own) == 0, log_of(tmp_path)
        assert len([told for told in status_of(tmp_path)["advice"] if told.startswith("Changes between ")]) == 1


def test_a_binlog_that_was_reset_and_has_grown_since_is_told(tmp_path: Path) -> None:
    with MariaDb(tmp_path / "server.log") as server:
        server.execute("create table items (id int primary key, t text)")
        server.execute("insert into items values (1, 'before')")
        own = properties_of(server, 0)
        assert captured(tmp_path, own) == 0, log_of(tmp_path)
        assert status_of(tmp_path)["headroom_h"] is None, "this server keeps its binlog until somebody purges it"
        server.execute("set global binlog_expire_logs_seconds = 7200")
        status = status_of(tmp_path)
        assert (status["health"], status["headroom_h"]) == ("healthy", 2.0)
        server.execute("reset master")
        for number in range(2, 40):
            server.execute(f"insert into items values ({number}, repeat('x', {number}))")
        status = status_of(tmp_path)
        assert {table["condition"] for table in status["tables"]} == {"gap"}
        assert "reset" in status["troubles"][0]["what"]
        assert captured(tmp_path, own) != 0, "the connector refuses to read there, too"


def test_an_engine_that_hangs_is_killed(tmp_path: Path) -> None:
    """Its process is stopped, as one that only collects garbage is."""
    with MariaDb(tmp_path / "server.log") as server:
        server.execute("create table items (id int primary key)")
        lake = {"lake.path": str(tmp_path / "lake"), "engine.watchdog.ms": "30000", "engine.heap": "512m"}
        process = ours(tmp_path, properties_of(server, 0) | lake, idle=600)
        wait_until(lambda: "batch 0" in log_of(tmp_path), 120, lambda: log_of(tmp_path))
        [engine] = psutil.Process(process.pid).children()
        engine.suspend()
        assert process.wait(180) != 0
        assert "has not answered" in log_of(tmp_path)
        assert not engine.is_running()


def test_the_postgresql_of_the_examples_is_captured(tmp_path: Path) -> None:
    """The file alone differs from the story on MariaDB."""
    example = json.loads((ROOT / "resources" / "engines" / "postgresql.json").read_text())
    with Postgres(tmp_path / "server.log") as server:
        server.execute("create table items (id int primary key)")
        server.execute("insert into items values (1), (2)")
        server.execute("create role cdc superuser login replication password 'secret'")
        environment = {"SHOP_PORT": str(server.port), "SHOP_PASSWORD": "secret"}
        own = {"lake.path": str(tmp_path / "lake"), "database.dbname": "postgres"}
        assert captured(tmp_path, example | own, **environment) == 0, log_of(tmp_path)
        assert [event["value"]["op"] for event in topics(tmp_path / "lake")["shop.public.items"]] == ["r", "r"]
