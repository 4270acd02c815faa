"""Every command is documented, and every error is one message with an exit code."""

import errno
import json
import socket
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from typer.testing import CliRunner

from cdc_assets import __version__
from cdc_assets.cli import main, properties
from cdc_assets.cli.console import TRACEBACK_VARIABLE
from cdc_assets.cli.main import COMMANDS, app, function_of
from cdc_assets.config.document import markdown
from cdc_assets.lake.location import trouble

RUN = CliRunner()
PAGE = Path(__file__).parents[3] / "docs" / "command-line.md"


def configuration(folder: Path, **changes: str) -> str:
    texts = {
        "topic.prefix": "shop",
        "database.hostname": "127.0.0.1",
        "database.user": "reader",
        "database.password": "s3cret!",
        "database.names": "Sales",
        "driver.encrypt": "no",
        "connection.validation.timeout.ms": "1000",
        "lake.path": str(folder / "lake"),
    }
    path = folder / "shop.json"
    path.write_text(json.dumps(texts | {name.replace("__", "."): text for name, text in changes.items()}))
    return str(path)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_documentation(name: str) -> None:
    result = RUN.invoke(app, [name, "--help"])
    assert result.exit_code == 0
    assert (function_of(name).__doc__ or "").split(".")[0].split()[0] in result.output
    assert f"## cdc-assets {name}\n" in PAGE.read_text(encoding="utf-8")


def test_documentation_names_no_other_command() -> None:
    headings = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("## cdc-assets ")]
    assert {line.removeprefix("## cdc-assets ") for line in headings} == set(COMMANDS)


@pytest.mark.parametrize("command", ["status", "summary"])
def test_lake_is_read_without_the_secrets_of_the_server(tmp_path: Path, command: str) -> None:
    file = configuration(
        tmp_path,
        database__password="${env:CDC_NO_SUCH_VARIABLE}",
        database__hostname="${file:/no/such/file}",
        database__port="${env:CDC_NO_SUCH_VARIABLE}",
    )
    result = RUN.invoke(app, [command, "--config", file])
    expected = 2 if command == "status" else 0  # nothing is known
    assert (result.exit_code, "Nothing captured yet" in result.output) == (expected, True)


def test_reference_that_the_lake_needs_must_be_there(tmp_path: Path) -> None:
    file = configuration(tmp_path, lake__path="${env:CDC_NO_SUCH_VARIABLE}")
    result = RUN.invoke(app, ["summary", "--config", file])
    assert result.exit_code == 2
    assert "set the environment variable CDC_NO_SUCH_VARIABLE" in result.output


def test_version() -> None:
    assert RUN.invoke(app, ["--version"]).output.strip() == f"cdc-assets {__version__}"


def test_properties_as_page_list_and_detail() -> None:
    assert RUN.invoke(app, ["properties", "--markdown"]).output == markdown()
    assert "snapshot.isolation.mode" in RUN.invoke(app, ["properties", "snapshot"], env={"COLUMNS": "160"}).output
    detail = RUN.invoke(app, ["properties", "gap.policy"]).output
    assert "fail, resnapshot, ignore" in detail
    assert "CDC_GAP_POLICY" in detail


@pytest.mark.parametrize(
    ("arguments", "code", "needles"),
    [
        (["properties", "gap.polici"], 2, ["gap.polici", "gap.policy"]),
        (["status", "--config", "/nowhere"], 2, ["/nowhere", "CDC_CONFIG"]),
        (["nonsense"], 2, ["nonsense"]),
    ],
)
def test_wrong_use(arguments: list[str], code: int, needles: list[str]) -> None:
    result = RUN.invoke(app, arguments)
    assert result.exit_code == code
    assert "Traceback" not in result.output
    for needle in needles:
        assert needle in result.output


def test_configuration_typo(tmp_path: Path) -> None:
    result = RUN.invoke(app, ["doctor", "-c", configuration(tmp_path, snapshot__moed="initial")])
    assert result.exit_code == 2
    assert "did you mean snapshot.mode" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["mirror"],
        ["publish"],
        ["reset", "--capture"],
        ["reconcile", "dbo.orders"],
        ["signal", "log", "--message", "hi"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_command_that_knows_sql_server_alone(tmp_path: Path, arguments: list[str]) -> None:
    config = configuration(
        tmp_path, connector__class="io.debezium.connector.mysql.MySqlConnector", engine__batch__ms="9"
    )
    result = RUN.invoke(app, [*arguments, "-c", config])
    assert result.exit_code == 2, result.output
    text = " ".join(result.output.split())
    assert "connector.class" in text
    assert "use capture, status, summary, tail or doctor" in text
    assert "engine.batch.ms" not in text, "what is right for that connector is not called wrong"


def test_properties_of_another_connector_are_checked_as_such(tmp_path: Path) -> None:
    config = configuration(
        tmp_path, connector__class="io.debezium.connector.mysql.MySqlConnector", engine__batch__ms="9"
    )
    result = RUN.invoke(app, ["properties", "-c", config])
    assert (result.exit_code, "engine.batch.ms" in result.output, "s3cret!" in result.output) == (0, True, False)
    wrong = configuration(
        tmp_path, connector__class="io.debezium.connector.mysql.MySqlConnector", engine__batch__ms="x"
    )
    assert RUN.invoke(app, ["properties", "-c", wrong]).exit_code == 2


def test_several_configurations(tmp_path: Path) -> None:
    first = Path(configuration(tmp_path))
    (tmp_path / "other.json").write_text(first.read_text())
    result = RUN.invoke(app, ["status", "-c", str(tmp_path)])
    assert result.exit_code == 2
    assert "other.json, shop.json" in result.output


def test_ignored_properties_are_named(tmp_path: Path) -> None:
    result = RUN.invoke(app, ["summary", "-c", configuration(tmp_path, tasks__max="1")])
    assert result.exit_code == 0
    assert "tasks.max has no effect" in result.output


def test_host_down(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = str(unused.getsockname()[1])
        result = RUN.invoke(app, ["doctor", "-c", configuration(tmp_path, database__port=port)])
    assert result.exit_code == 1
    assert "Cannot reach 127.0.0.1" in result.output
    assert "s3cret!" not in result.output
    assert not (tmp_path / "lake").exists()


def test_capture_says_first_who_keeps_mirrors(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = str(unused.getsockname()[1])
        own = configuration(tmp_path, mirror__enabled="true", database__port=port, errors__max__retries="0")
        result = RUN.invoke(app, ["capture", "--local", "-c", own])
    assert result.exit_code != 0
    assert result.output.startswith("This command does not update mirrors.")


@pytest.mark.parametrize("broken", ['{"name": }', '{"name": "a", "name": "b"}', "[1]"])
def test_broken_configuration_is_reported_with_its_file(tmp_path: Path, broken: str) -> None:
    path = Path(configuration(tmp_path))
    path.write_text(broken)
    result = RUN.invoke(app, ["status", "-c", str(path)])
    assert result.exit_code == 2
    assert str(path) in result.output.replace("\n", "")


def test_signal_that_writes_into_the_log_asks_for_its_text(tmp_path: Path) -> None:
    result = RUN.invoke(app, ["signal", "log", "-c", configuration(tmp_path)])
    assert (result.exit_code, "--message" in result.output) == (2, True)


@pytest.mark.parametrize(("arguments", "code"), [(["status"], 2), (["summary"], 0), (["tail", "orders"], 1)])
def test_looking_at_nothing(tmp_path: Path, arguments: list[str], code: int) -> None:
    result = RUN.invoke(app, [*arguments, "-c", configuration(tmp_path)])
    assert result.exit_code == code
    assert "Nothing captured yet" in result.output
    assert not (tmp_path / "lake").exists()


def test_lake_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "lake" / "shop.__windows" / "_delta_log").mkdir(parents=True)
    (tmp_path / "lake" / "shop.__windows" / "_delta_log" / f"{0:020}.json").write_text("{broken")
    result = RUN.invoke(app, ["status", "-c", configuration(tmp_path)])
    assert result.exit_code == 1
    assert "shop.__windows" in result.output
    assert "bug in cdc-assets" not in result.output


def test_a_fault_of_ours_is_reported_without_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(search: str) -> None:
        raise ZeroDivisionError(search)

    monkeypatch.setattr(properties, "_matching", broken)
    result = RUN.invoke(app, ["properties", "x"])
    assert result.exit_code == 1
    assert "bug in cdc-assets" in result.output
    assert TRACEBACK_VARIABLE in result.output
    monkeypatch.setenv(TRACEBACK_VARIABLE, "1")
    assert isinstance(RUN.invoke(app, ["properties", "x"]).exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("error", "more"),
    [
        (MemoryError(), "memory"),
        (pa.ArrowMemoryError("malloc of size 1000 failed"), "memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory"),
        (ImportError("libarrow.so: failed to map segment from shared object"), "memory"),
        (DeltaError("Unable to walk dir: Cannot allocate memory (os error 12)"), "memory"),
        (RuntimeError("can't start new thread"), "memory or threads"),
        (OSError(errno.EMFILE, "Too many open files"), "open files"),
    ],
)
def test_a_machine_that_is_too_small_is_no_fault_of_ours(
    monkeypatch: pytest.MonkeyPatch, error: Exception, more: str
) -> None:
    monkeypatch.setattr(properties, "_matching", Mock(side_effect=error))
    result = RUN.invoke(app, ["properties", "x"])
    assert result.exit_code == 1
    text = result.output.replace("\n", " ")
    assert f"give it more {more}" in text
    assert "Nothing is lost" in text
    assert "bug" not in text
    assert ": ." not in text
    assert more in str(trouble("A file cannot be written", error, "check its rights"))


def test_memory_that_is_not_enough_for_the_imports_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "function_of", Mock(side_effect=MemoryError))
    result = RUN.invoke(app, ["status"])
    assert result.exit_code == 1
    assert "give it more memory" in result.output.replace("\n", " ")


@pytest.mark.parametrize(("arguments", "code", "text"), [("--version", 0, __version__), ("nonsense", 2, "No such")])
def test_process_ends_with_the_commands_code_and_its_whole_text(arguments: str, code: int, text: str) -> None:
    command = [sys.executable, "-m", "cdc_assets.cli.main", arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == code
    assert text in done.stdout + done.stderr
