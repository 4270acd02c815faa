"""The operator's page on schema changes, step by step as it is written, on the stand-in."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.cli.main import app
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.steps import listening
from cdc_assets.history.drift import Drift
from cdc_assets.overview import CaptureOverview
from cdc_assets_tests.contract.capture_file import properties_of
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.child import DATABASE, config_of, run
from cdc_assets_tests.unit.streaming.lake_reader import events_of, rows_of_topic
from cdc_assets_tests.unit.streaming.law import state_of
from mssql_standin.control import StandIn

PAGE = (Path(__file__).parents[2] / "docs" / "schema-changes.md").read_text()
STEPS = [re.sub(r"^ +", "", text, flags=re.MULTILINE) for text in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)]
INVOICES = TableId(DATABASE, "dbo", "invoices")


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


@pytest.mark.long
def test_every_step_does_what_the_page_says(server: StandIn, tmp_path: Path) -> None:
    config = config_of(server.port, server.password, str(tmp_path))
    first, alter, second, last = STEPS

    def step(text: str) -> None:
        for statement in text.strip().splitlines():
            server.execute(statement, database=DATABASE)
        server.agent.drain()

    def look() -> Drift:
        with SqlServerSource(config.connection) as source:
            [drift] = CaptureOverview(config, source).drifts()
        return drift

    step(first)
    run(config, "snapshot")
    run(config, "stream")
    assert look().differences == ()

    step(alter)
    run(config, "stream")
    drift = look()
    assert [str(found) for found in drift.differences] == ["currency added (char(3))"]
    assert any("currency" in statement for statement in drift.statements)
    assert drift.remedy == second.splitlines()[0]

    step(second)
    assert look().removable is None
    run(config, "stream")
    drift = look()
    assert (drift.differences, drift.removable) == ((), "dbo_invoices")
    assert drift.removal == last.splitlines()[0]
    history = sorted(rows_of_topic(config, "shop.__schema_history"), key=lambda row: str(row["position"]))
    assert [row["type"] for row in history] == ["CREATE", "ALTER"]

    step(last)
    run(config, "stream")
    assert look().removable is None
    rows = [event.after for event in events_of(config, INVOICES)]
    assert [(row["id"], row.get("currency")) for row in rows if row] == [(1, None), (2, None), (3, "USD"), (4, "GBP")]
    assert "currency" not in (rows[1] or {})


@pytest.mark.long
def test_what_is_printed_can_be_run_as_it_stands_and_keeps_what_the_first_instance_was_made_with(
    server: StandIn, tmp_path: Path
) -> None:
    config = config_of(server.port, server.password, str(tmp_path))
    for statement in (
        "CREATE TABLE dbo.[odd ]]name's] (id int NOT NULL PRIMARY KEY, [a, b] int NOT NULL, secret int NULL, note int NULL)",
        "CREATE UNIQUE INDEX [by, two] ON dbo.[odd ]]name's] ([a, b])",
        "EXEC sys.sp_cdc_enable_table N'dbo', N'odd ]name''s', @role_name = N'the ''reader', @supports_net_changes = 1, "
        "@index_name = N'by, two', @captured_column_list = N'id, [a, b], note', @filegroup_name = N'PRIMARY'",
    ):
        server.execute(statement, database=DATABASE)
    server.agent.drain()
    run(config, "snapshot")
    server.execute("ALTER TABLE dbo.[odd ]]name's] ADD [new, one] int NULL", database=DATABASE)
    with SqlServerSource(config.connection) as source:
        [drift] = CaptureOverview(config, source).drifts()
        server.execute(drift.remedy)
        old, new = source.instance_options(DATABASE).values()
        columns = [instance.columns for instance in source.capture_instances(DATABASE)]
    assert old == new
    assert (new.role, new.net_changes, new.index, new.filegroup) == ("the 'reader", True, "by, two", "PRIMARY")
    assert columns == [("id", "a, b", "note"), ("id", "a, b", "note", "new, one")]
    server.execute("INSERT INTO dbo.[odd ]]name's] VALUES (1, 2, 3, 4, 5)", database=DATABASE)
    server.agent.drain()
    run(config, "stream")
    file = tmp_path / "capture.json"
    file.write_text(json.dumps(properties_of(server, tmp_path)))
    told = CliRunner().invoke(app, ["status", "-c", str(file)], env={"COLUMNS": "200"}).output
    assert "is completely read here; unless another capture, or a connector, reads it still: EXEC" in told.replace(
        "\n", " "
    )
    with SqlServerSource(config.connection) as source:
        [drift] = CaptureOverview(config, source).drifts()
        server.execute(drift.removal)
        assert [instance.name for instance in source.capture_instances(DATABASE)] == ["dbo_odd ]name's_v2"]


@pytest.mark.parametrize("command", ["doctor", "status"])
def test_commands_tell_drift(server: StandIn, tmp_path: Path, command: str) -> None:
    config = config_of(server.port, server.password, str(tmp_path / "lake"))
    for statement in STEPS[0].strip().splitlines():
        server.execute(statement, database=DATABASE)
    server.agent.drain()
    run(config, "snapshot")
    file = tmp_path / "capture.json"
    file.write_text(json.dumps(properties_of(server, tmp_path / "lake")))

    def told() -> str:
        return CliRunner().invoke(app, [command, "-c", str(file)], env={"COLUMNS": "200"}).output

    assert "currency" not in told()
    server.execute(STEPS[1].splitlines()[0], database=DATABASE)
    found = told()
    assert "currency added (char(3))" in found
    assert STEPS[2].splitlines()[0] in found
    server.stop()
    if command == "status":
        found = told()
        assert "is not known" in found
        assert "The server cannot be queried, so changes that it still keeps" in found
    server.start()


def test_a_table_that_is_altered_while_it_is_read_is_taken_along_by_the_next_window(
    server: StandIn, tmp_path: Path
) -> None:
    config = config_of(server.port, server.password, str(tmp_path))
    execute = partial(server.execute, database=DATABASE)
    for statement in STEPS[0].strip().splitlines():
        execute(statement)
    server.agent.drain()
    run(config, "snapshot")
    execute("INSERT INTO dbo.invoices VALUES (2, N'Bob', 20.00)")
    server.agent.drain()

    def alter(step: str) -> None:
        if step == "history-written" and len(altered) < 1:
            altered.append(step)
            execute("ALTER TABLE dbo.invoices ALTER COLUMN amount bigint NULL")

    altered: list[str] = []
    with listening(alter):
        run(config, "stream")
    execute("INSERT INTO dbo.invoices VALUES (3, N'Eve', 5000000000)")
    server.agent.drain()
    run(config, "stream")
    changes = [event for event in events_of(config, INVOICES) if event.op != "r"]
    assert [(event.key, event.after["amount"]) for event in changes if event.after] == [(2, 20), (3, 5000000000)]
    assert state_of(config).tables[INVOICES].status == "healthy"
    history = sorted(rows_of_topic(config, "shop.__schema_history"), key=lambda row: str(row["position"]))
    assert [row["type"] for row in history] == ["CREATE", "ALTER"]
    assert str(history[1]["commit_lsn"]) <= changes[0].position[:22]


def test_a_table_that_is_altered_between_a_crash_and_the_repeat_is_taken_along_by_the_next_window(
    server: StandIn, tmp_path: Path
) -> None:
    config = config_of(server.port, server.password, str(tmp_path))
    execute = partial(server.execute, database=DATABASE)
    for statement in [*STEPS[0].strip().splitlines(), *STEPS[0].replace("invoices", "orders").strip().splitlines()]:
        execute(statement)
    server.agent.drain()
    run(config, "snapshot")
    for table in ("invoices", "orders"):
        execute(f"ALTER TABLE dbo.{table} ALTER COLUMN amount decimal(12, 4) NULL")
        execute(f"INSERT INTO dbo.{table} VALUES (2, N'Bob', 20.0001)")
    server.agent.drain()

    with cut_at("history-written"), pytest.raises(PowerCutError):
        run(config, "stream")
    execute("ALTER TABLE dbo.invoices ALTER COLUMN amount nvarchar(30) NULL")
    run(config, "stream")
    for table in (INVOICES, TableId(DATABASE, "dbo", "orders")):
        assert state_of(config).tables[table].status == "healthy"
        changes = [event for event in events_of(config, table) if event.op != "r"]
        assert [(event.key, str(event.after["amount"])) for event in changes if event.after] == [(2, "20.0001")]
    history = sorted(rows_of_topic(config, "shop.__schema_history"), key=lambda row: int(str(row["window_id"])))
    told = [(row["type"], row["table"]) for row in history if row["snapshot"] is None]
    assert told == [("ALTER", "invoices"), ("ALTER", "orders"), ("ALTER", "invoices")]


@pytest.mark.long
def test_tail_prints_events_of_all_generations_in_order(server: StandIn, tmp_path: Path) -> None:
    config = config_of(server.port, server.password, str(tmp_path / "lake"))
    for statement in STEPS[0].strip().splitlines():
        server.execute(statement, database=DATABASE)
    server.agent.drain()
    run(config, "snapshot")
    for key, kind in ((2, "bigint"), (3, "decimal(10, 2)"), (4, "bigint")):
        server.execute(f"ALTER TABLE dbo.invoices ALTER COLUMN amount {kind} NULL", database=DATABASE)
        server.execute(f"INSERT INTO dbo.invoices VALUES ({key}, N'Bob', {key})", database=DATABASE)
        server.agent.drain()
        run(config, "stream")
    file = tmp_path / "capture.json"
    file.write_text(json.dumps(properties_of(server, tmp_path / "lake")))

    def told(number: int) -> list[int]:
        result = CliRunner().invoke(app, ["tail", "invoices", "-n", str(number), "-c", str(file)])
        return [json.loads(line)["key"]["id"] for line in result.stdout.splitlines()]

    assert told(10) == [1, 2, 3, 4]
    assert told(3) == [2, 3, 4]
    assert told(1) == [4]
    assert told(0) == []
