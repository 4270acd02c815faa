"""The command line against a server: a capture from start to end, and each bad input as one clear error."""

import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from cdc_assets.cli import tail
from cdc_assets_tests.contract.source.conftest import DATABASE, PLAIN, Server, drain, remake
from cdc_assets_tests.contract.source.shop import Shop, change
from mssql_standin.control import StandIn

pytestmark = pytest.mark.contract


@pytest.fixture
def shop(server: Server, tmp_path: Path) -> Shop:
    for name in ("orders", "lines"):
        server.execute(f"CREATE TABLE dbo.{name} (id int NOT NULL PRIMARY KEY, v nvarchar(20))", database=DATABASE)
        server.execute(f"INSERT INTO dbo.{name} VALUES (1, N'a'), (2, N'b')", database=DATABASE)
        server.execute(
            "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = ?, @role_name = NULL",
            name,
            database=DATABASE,
        )
    drain(server)
    return Shop(server, tmp_path)


def test_capture_that_begins_before_there_is_a_table(server: Server, tmp_path: Path) -> None:
    early = Shop(server, tmp_path)
    told = early.run("doctor")
    assert told.exit_code == 0, told.output
    assert "enable it: USE [CdcContractSource]; EXEC sys.sp_cdc_enable_table" in told.output
    begun = early.run("capture", "--local")
    assert begun.exit_code == 0, begun.output
    assert "No table is enabled for change data capture yet" in begun.output
    assert "No table to stream." in begun.output
    change(early, "CREATE TABLE dbo.orders (id int NOT NULL PRIMARY KEY)")
    change(early, "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'orders', @role_name = NULL")
    change(early, "INSERT INTO dbo.orders VALUES (1)")
    assert "Snapshot: 1 table." in early.run("capture", "--local").output
    assert "healthy" in early.run("status").output


@pytest.mark.parametrize("option", ["--local", "--snapshot-only"])
def test_capture_whose_list_matches_no_table_ends_with_an_error(server: Server, tmp_path: Path, option: str) -> None:
    """No table is enabled yet, so that one may come while it runs."""
    server.execute("CREATE TABLE dbo.orders (id int NOT NULL PRIMARY KEY)", database=DATABASE)
    early = Shop(server, tmp_path)
    found = early.run("capture", option, table__include__list="dbo.ordres")
    assert found.exit_code == 2, found.output
    assert "'table include dbo.ordres' is not valid: expected filters that match a table" in found.output
    assert "the databases have: dbo.orders. Next: correct the filters" in found.output
    assert early.run("capture", option, table__include__list="dbo.orders").exit_code == 0


def test_capture_from_start_to_end(shop: Shop) -> None:
    first = shop.run("capture", "--local")
    assert first.exit_code == 0, first.output
    assert "Snapshot: 2 tables." in first.output
    change(shop, "UPDATE dbo.orders SET v = N'c' WHERE id = 1; DELETE FROM dbo.orders WHERE id = 2")
    second = shop.run("capture", "--local")
    assert second.exit_code == 0, second.output
    assert "Snapshot: nothing to read." in second.output
    assert "3 events" in second.output  # update, delete, tombstone

    events = [json.loads(line) for line in shop.run("tail", "orders", "-n", "100").output.splitlines()]
    assert [(event["key"]["id"], (event["value"] or {}).get("op")) for event in events] == [
        (1, "r"),
        (2, "r"),
        (1, "u"),
        (2, "d"),
        (2, None),
    ]
    assert events[2]["value"]["before"] == {"id": 1, "v": "a"}
    assert events[2]["value"]["after"] == {"id": 1, "v": "c"}
    assert len(shop.run("tail", f"shop.{DATABASE}.dbo.lines", "-n", "1").output.splitlines()) == 1
    with_schema = json.loads(shop.run("tail", "orders", "-n", "1", "--schemas", "--headers").output)
    assert with_schema["key"]["schema"]["type"] == "struct"
    assert with_schema["headers"]

    for nothing in ("order", "../lake", "\udcff", "a\0"):
        assert "one of shop." in shop.run("tail", nothing).output

    status = shop.run("status").output
    assert "shop is healthy" in status
    assert status.count("streaming") == 2
    assert f"{DATABASE} is complete to" in status
    row = next(line for line in shop.run("summary").output.splitlines() if "dbo.orders" in line)
    assert row.split()[1:] == ["2", "0", "1", "1", "1", "5"]


def test_table_that_cannot_be_read_is_reported_and_the_others_are_captured(shop: Shop) -> None:
    override = "snapshot.select.statement.overrides"
    shop.texts |= {override: "dbo.lines", f"{override}.dbo.lines": "SELECT * FROM dbo.nowhere"}
    result = shop.run("capture", "--local")
    assert result.exit_code == 1, result.output
    assert "Snapshot: 1 table." in result.output
    assert f"{DATABASE}.dbo.lines failed: QueryError" in result.output
    assert "dbo.nowhere" in result.output
    del shop.texts[override], shop.texts[f"{override}.dbo.lines"]
    change(shop, "INSERT INTO dbo.orders VALUES (3, N'c')")
    again = shop.run("capture", "--local")
    assert (again.exit_code, "Snapshot: 1 table." in again.output) == (0, True), again.output


@pytest.fixture
def defaults(shop: Shop) -> Shop:
    """A captured table with a default: a row of a snapshot, then an update, a delete and an insert."""
    shop.server.execute(
        "CREATE TABLE dbo.stock (id int NOT NULL PRIMARY KEY, n decimal(9, 2) NULL DEFAULT 1.25)", database=DATABASE
    )
    shop.server.execute("INSERT INTO dbo.stock VALUES (1, 2)", database=DATABASE)
    shop.server.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'stock', @role_name = NULL",
        database=DATABASE,
    )
    drain(shop.server)
    shop.texts |= {"table.include.list": "dbo.stock", "decimal.handling.mode": "string"}
    assert shop.run("capture", "--local").exit_code == 0
    change(shop, "UPDATE dbo.stock SET n = NULL; DELETE FROM dbo.stock; INSERT INTO dbo.stock VALUES (2, 3)")
    assert shop.run("capture", "--local").exit_code == 0
    return shop


def records(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def test_tail_prints_flat_records(defaults: Shop) -> None:
    lake = defaults.lake()
    flat = records(defaults.run("tail", "stock", value__format="flinkx"))
    numbers = [record.pop("ts") for record in flat]
    assert numbers == sorted(set(numbers))
    positions = [record.pop("lsn") for record in flat]
    assert positions == sorted(positions)
    head = {"schema": "dbo", "table": "stock"}
    assert flat == [
        {"type": "insert", **head, "after_id": 1, "after_n": "2.00"},
        {"type": "update", **head, "before_id": 1, "before_n": "2.00", "after_id": 1, "after_n": None},
        {"type": "delete", **head, "before_id": 1, "before_n": None},
        {"type": "insert", **head, "after_id": 2, "after_n": "3.00"},
    ]
    split = records(defaults.run("tail", "stock", "--format", "flinkx", flinkx__paving="false", flinkx__split="true"))
    assert [record["type"] for record in split] == ["insert", "update_before", "update_after", "delete", "insert"]
    assert split[2]["after"] == {"id": 1, "n": None}
    assert "before" not in split[2]
    assert (
        "op"
        in records(defaults.run("tail", "stock", "-n", "1", "--format", "debezium", value__format="flinkx"))[0]["value"]
    )
    assert defaults.lake() == lake


def test_flat_records_have_no_schema(defaults: Shop) -> None:
    result = defaults.run("tail", "stock", "--format", "flinkx", "--schemas")
    assert result.exit_code == 2
    assert "--schemas" in result.output


def test_converter_properties_steer_the_text(defaults: Shop) -> None:
    def update(**changes: str) -> dict[str, Any]:
        (found,) = [
            event for event in records(defaults.run("tail", "stock", **changes)) if '"op": "u"' in json.dumps(event)
        ]
        return found

    assert update()["value"]["after"] == {"id": 1, "n": "1.25"}
    assert update(value__converter__replace__null__with__default="false")["value"]["after"]["n"] is None
    assert update(key__converter__replace__null__with__default="false")["value"]["after"]["n"] == "1.25"
    only_key = update(key__converter__schemas__enable="true")
    assert only_key["key"]["payload"] == {"id": 1}
    assert only_key["value"]["op"] == "u"
    only_value = update(value__converter__schemas__enable="true")
    assert only_value["key"] == {"id": 1}
    assert only_value["value"]["schema"]["type"] == "struct"


def test_tail_follows_behind_the_last_event(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shop.run("capture", "--local").exit_code == 0

    def capture_once(_: float) -> None:
        if shop.lake() != begun:
            raise KeyboardInterrupt
        change(shop, "INSERT INTO dbo.orders VALUES (3, N'c')")
        assert Shop(shop.server, shop.folder).run("capture", "--local").exit_code == 0

    begun = shop.lake()
    monkeypatch.setattr(tail, "sleep", capture_once)
    result = shop.run("tail", "orders", "-n", "0", "--follow")
    assert result.exit_code == 130
    followed = [line for line in result.output.splitlines() if line.startswith("{")]
    assert [json.loads(line)["key"]["id"] for line in followed] == [3]


def test_capture_of_chosen_tables_again(shop: Shop) -> None:
    shop.run("capture", "--local")
    again = shop.run("capture", "--local", "--table", "DBO.lines", "--snapshot-only")
    assert "Snapshot: 1 table." in again.output
    events = [json.loads(line)["value"]["op"] for line in shop.run("tail", "lines", "-n", "9").output.splitlines()]
    assert events == ["r"] * 4
    wrong = shop.run("capture", "--local", "--table", "dbo.nope")
    assert wrong.exit_code == 2
    assert "dbo.orders" in wrong.output


def test_tail_of_an_unknown_topic(shop: Shop) -> None:
    shop.run("capture", "--local")
    result = shop.run("tail", "nope")
    assert result.exit_code == 2
    assert f"shop.{DATABASE}.dbo.orders" in result.output


def closed_port() -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return str(unused.getsockname()[1])


BAD_INPUT = {
    "wrong password": ({"database__password": "wr0ng"}, 1, ["Login failed", "database.password"]),
    "host down": ({"database__port": closed_port()}, 1, ["Cannot reach 127.0.0.1"]),
    "unknown host": ({"database__hostname": "nowhere.invalid"}, 1, ["Cannot reach nowhere.invalid"]),
    "unknown database": ({"database__names": "Nope"}, 1, ["Nope", "database.names"]),
    "database without CDC": ({"database__names": PLAIN}, 1, [PLAIN, "sp_cdc_enable_db"]),
    "filter that matches nothing": ({"table__include__list": "dbo.x"}, 2, ["dbo.x", "dbo.lines, dbo.orders"]),
    "typo": ({"snapshot__moed": "initial"}, 2, ["snapshot.moed", "snapshot.mode"]),
    "wrong value": ({"decimal__handling__mode": "x"}, 2, ["decimal.handling.mode", "precise, double, string"]),
    "wrong number": ({"poll__interval__ms": "soon"}, 2, ["poll.interval.ms", "'soon'", "whole number"]),
    "regex that does not compile": ({"table__include__list": "dbo.("}, 2, ["table.include.list", "'dbo.('", "compile"]),
    "regex of a mask": ({"column__mask__with__3__chars": "dbo.["}, 2, ["column.mask.with", "'dbo.['", "compile"]),
    "regex of a key": ({"message__key__columns": "dbo.(:id"}, 2, ["message.key.columns", "compile"]),
    "regex of topic names": ({"topic__sanitize__pattern": "["}, 2, ["topic.sanitize.pattern", "compile"]),
    "key without columns": ({"message__key__columns": "dbo.orders"}, 2, ["message.key.columns", "table regex"]),
    "tables of one topic": (
        {"topic__sanitize__pattern": "orders|lines"},
        2,
        ["one table per topic", f"{DATABASE}.dbo.orders", f"{DATABASE}.dbo.lines", "topic.sanitize.pattern"],
    ),
    "no encryption": ({"driver__encrypt": "yes"}, 1, ["driver.encrypt"]),
}


@pytest.mark.parametrize("case", BAD_INPUT)
@pytest.mark.parametrize("begun", [False, True], ids=["new lake", "lake in use"])
def test_bad_input_is_one_clear_error_and_changes_nothing(shop: Shop, case: str, begun: bool) -> None:
    remake(shop.server, PLAIN, cdc=False)
    shop.server.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)", database=PLAIN)
    if begun:
        assert shop.run("capture", "--local").exit_code == 0
    if case == "no encryption" and not isinstance(shop.server, StandIn):
        pytest.skip("a real server encrypts")
    before = shop.lake()
    changes, code, needles = BAD_INPUT[case]
    result = shop.run("capture", "--local", **changes)
    assert result.exit_code == code, result.output
    assert result.output.count("error ") == 1
    assert "Traceback" not in result.output
    assert "bug in cdc-assets" not in result.output
    for needle in needles:
        assert needle in result.output
    assert "wr0ng" not in result.output
    assert shop.lake() == before


def test_lake_that_cannot_be_written(shop: Shop) -> None:
    (shop.folder / "lake").write_text("a file where a folder should be")
    result = shop.run("capture", "--local")
    assert result.exit_code == 1
    assert str(shop.folder / "lake") in result.output
    assert "bug in cdc-assets" not in result.output


def test_interrupted_command(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cdc_assets.capture.capture.Capture.stream", interrupt)
    result = shop.run("capture", "--local", "--follow")
    assert result.exit_code == 130
    assert "interrupted" in result.output
    assert os.environ.get("CDC_TRACEBACK") is None


def test_modes_after_a_lost_history_and_a_gap(shop: Shop) -> None:
    """`recovery` rebuilds the history and keeps the position; `when_needed` reads again what was cleaned up unread."""
    if not isinstance(shop.server, StandIn):
        pytest.skip("the test cleans up change tables as the job does")
    shop.run("capture", "--local")
    shutil.rmtree(shop.folder / "lake" / "shop.__schema_history")
    assert shop.run("capture", "--local", snapshot__mode="recovery").exit_code == 0
    change(shop, "INSERT INTO dbo.orders VALUES (3, N'c')")
    assert "1 event." in shop.run("capture", "--local").output

    change(shop, "INSERT INTO dbo.orders VALUES (4, N'd')")
    change(shop, "INSERT INTO dbo.orders VALUES (5, N'e')")
    [(newest,)] = shop.server.execute("SELECT sys.fn_cdc_get_max_lsn()", database=DATABASE)
    shop.server.agent.cleanup(DATABASE, "dbo_orders", newest)
    stopped = shop.run("capture", "--local")
    assert stopped.exit_code == 1
    assert "removed by the clean-up job" in stopped.output
    repaired = shop.run("capture", "--local", snapshot__mode="when_needed")
    assert repaired.exit_code == 0, repaired.output
    assert "Snapshot: 1 table." in repaired.output
    keys = [json.loads(line)["key"]["id"] for line in shop.run("tail", "orders", "-n", "5").output.splitlines()]
    assert keys == [1, 2, 3, 4, 5]
