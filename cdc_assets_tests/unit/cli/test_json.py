"""What scripts read: documents with the fields that the page lists, completion, and watching."""

import json
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from cdc_assets.cli import status
from cdc_assets.cli.bars import SnapshotBars
from cdc_assets.cli.main import COMMANDS, app
from cdc_assets.core.lsn import ZERO_LSN
from cdc_assets.overview.checks.sqlserver import CHECKS
from cdc_assets.shared.progress import Progress, TableProgress
from cdc_assets_tests.unit.snapshot.world import World
from mssql_standin.control import StandIn

PAGE = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with StandIn(databases=("SalesDb",)) as server:
        world = World(server, str(tmp_path_factory.mktemp("json") / "lake"))
        world.make("orders", 3)
        world.snapshot()
        world.sql("INSERT INTO dbo.orders VALUES (50, 'new')")
        world.stream()
        world.sql("ALTER TABLE dbo.orders ADD extra int")
        yield world


def run(world: World, *arguments: str, **changes: str) -> tuple[int, str]:
    path = Path(world.lake).parent / "shop.json"
    path.write_text(json.dumps(world.given | {name.replace("__", "."): text for name, text in changes.items()}))
    config = [] if arguments[0] == "spark" else ["-c", str(path)]
    result = CliRunner().invoke(app, [*arguments, *config], env={"COLUMNS": "400"})
    return result.exit_code, result.stdout


def names(document: object) -> set[str]:
    """All fields; those below `operations` and `by_operation` are data."""
    if isinstance(document, list):
        return {name for entry in document for name in names(entry)}
    if not isinstance(document, dict):
        return set()
    data = ("operations", "by_operation")
    inner = (names(value) for name, value in document.items() if name not in data)
    return {*document, *(name for found in inner for name in found)}


def listed(command: str) -> set[str]:
    """Fields that the page lists."""
    row = re.search(rf"^\| `{command}` \| (.*) \|$", PAGE, re.MULTILINE)
    assert row is not None
    return set(re.findall(r"`(\w+)`", row[1]))


@pytest.mark.parametrize("command", ["status", "summary", "doctor"])
def test_documents_have_the_fields_of_the_page(world: World, command: str) -> None:
    code, text = run(world, command, "--json")
    queue = {"reached", "rows", "paused", "passed", "warned", "failed"}
    kafka = {"window", "waiting", "behind_s", "per_second", "stopped", "held", "problem"}
    absent = queue | kafka if command == "status" else set()  # nothing is queued here, nor written to Kafka
    assert (code, names(json.loads(text)) | absent) == (int(command == "status"), listed(command)), (
        "the table has drifted"
    )


def test_mirrors_have_the_fields_of_the_page(world: World) -> None:
    code, text = run(world, "mirror", "--local", "--json", mirror__enabled="true")
    [document] = json.loads(text)
    assert (code, set(document)) == (0, listed("mirror"))
    assert (document["topic"], document["problem"]) == ("shop.SalesDb.dbo.orders", None)
    assert document["complete_to"]


def test_properties_have_the_fields_of_the_page(world: World) -> None:
    found = names(json.loads(CliRunner().invoke(app, ["properties", "gap", "--json"]).stdout))
    assert found | names(json.loads(run(world, "properties", "--json")[1])) == listed("properties")


def test_status_as_json_says_what_the_page_says(world: World) -> None:
    document = json.loads(run(world, "status", "--json")[1])
    [orders] = document["tables"]
    assert (orders["condition"], orders["complete_to"]) == ("drifted", str(world.position(world.tables[0])))
    assert (orders["table"], document["health"]) == ("SalesDb.dbo.orders", "in trouble")
    assert "extra" in document["headline"]
    [drift] = [check for check in document["checks"] if check["check"] == "schema_drift"]
    assert (drift["table"], drift["result"], "extra" in drift["text"]) == ("SalesDb.dbo.orders", "warned", True)
    assert {check["check"] for check in document["checks"]} == {
        one.name for one in CHECKS if one.when in ("half-hourly", "seconds") and one.of != "kafka"
    }
    assert json.loads(run(world, "summary", "--json")[1])["topics"][0]["operations"] == {"read": 3, "create": 1}


def test_exit_code_says_whether_all_is_well(world: World) -> None:
    """In trouble is never said of what nobody could ask."""
    code, text = run(world, "status")
    assert code == 1, "the table has drifted"
    assert "checks failed: health\nchecks warned: schema_drift of SalesDb.dbo.orders\nchecks passed:" in text
    code, text = run(world, "status", database__password="${env:CDC_NO_SUCH_VARIABLE}")
    assert code == 2
    assert "shop is not known" in text
    assert "in trouble" not in text
    world.server.execute(f"ALTER TABLE {world.tables[0].quoted} DROP COLUMN extra")
    code, text = run(world, "status")
    assert (code, "shop is healthy" in text) == (0, True), text


@pytest.mark.parametrize("command", ["status", "summary", "tail"])
def test_the_lake_is_read_without_secrets(world: World, command: str) -> None:
    arguments = [command, "orders"] if command == "tail" else [command, "--json"]
    code, text = run(world, *arguments, database__password="${env:CDC_NO_SUCH_VARIABLE}")
    assert (code, "orders" in text) == (2 if command == "status" else 0, True), "the server cannot be asked"


def test_a_configuration_as_json_hides_secrets(world: World) -> None:
    found = {row["name"]: row["value"] for row in json.loads(run(world, "properties", "--json")[1])}
    assert found["topic.prefix"] == "shop"
    assert world.server.password not in found["database.password"]


def test_a_signal_is_answered_with_its_id(world: World) -> None:
    answer = json.loads(run(world, "signal", "log", "--message", "hello", "--json")[1])
    assert list(answer) == ["id", "type", "unmatched"]
    assert answer["type"] == "log"


def test_watching_shows_one_document_a_line_until_it_is_interrupted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(status, "sleep", sleep)
    code, text = run(world, "status", "--watch", "2", "--json")
    lines = [json.loads(line) for line in text.splitlines()]
    assert (code, waits) == (0, [2.0] * 3)
    assert [line["capture"] for line in lines] == ["shop"] * 3


@pytest.mark.long
def test_shells_complete_commands_and_options() -> None:
    def complete(words: str) -> str:
        environment = {**os.environ, "_CDC_ASSETS_COMPLETE": "complete_bash", "COMP_WORDS": words}
        environment["COMP_CWORD"] = str(words.count(" "))
        code = "import sys; sys.argv[0] = 'cdc-assets'; from cdc_assets.cli.main import main; main()"
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=240, check=True
        ).stdout

    assert set(complete("cdc-assets s").split()) == {name for name in COMMANDS if name.startswith("s")}
    assert complete("cdc-assets capture --snap").split() == ["--snapshot-only"]


def test_bars_show_percent_rows_and_rate_on_a_terminal_alone(world: World) -> None:
    [table] = world.tables

    def round_(done: int) -> Progress:
        rows = {table: TableProgress({"r": 1500}, 1, None, ZERO_LSN)}
        return Progress("snapshot", "SalesDb", 1, ZERO_LSN, ZERO_LSN, rows, slices_done=done, slices=4)

    shown = StringIO()
    with SnapshotBars(Console(file=shown, force_terminal=True, width=120)) as bars:
        assert all(bars.note(round_(done)) for done in range(1, 5))
    text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown.getvalue())
    assert "SalesDb snapshot" in text
    assert "6,000 rows" in text
    assert "rows/s" in text
    assert "100%" in text
    with SnapshotBars(Console(file=(silent := StringIO()))) as bars:
        assert not bars.note(round_(1))
    assert silent.getvalue() == ""
