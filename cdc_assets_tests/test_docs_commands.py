"""Commands of the documents: each parses, and those of the quick starts and the runbook are played against the stand-in.

The quick start makes the capture on one server and one lake; the pages of the runbook are then played on it. What cannot be played
here is listed with its reason, so a new line on a page has to be played or explained.
"""

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner, Result

from cdc_assets.cli.main import app
from mssql_standin.control import StandIn

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in DOCS.rglob("*.md") if path.parent.name != "spec"),
    ROOT / "standin" / "README.md",
]
PLAYED = sorted([*(DOCS / "start").glob("*.md"), *(DOCS / "runbook").glob("*.md")])

SHELL = {"|", "||", "&&", ">", "<", ";"}
VALUED = {"--config", "--from-lsn", "--timeout", "--offsets", "--history", "--ranges"}
"""Options that pages also name without their value."""
NOT_PLAYED = {
    "make setup": "is how the tests came here",
    "export ": "the fixture sets these variables",
    "pip install": "test_packaging.py and `make test-install` do",
    "dg scaffold": "`make test-install` does",
    "dg dev": "`make test-daemon` does",
    "cdc-assets status --watch": "never ends; unit/cli tests watch",
    "cdc-assets publish --follow": "needs a broker: `make test-kafka`",
    "sqlcmd": "no such program; contract/source tests change passwords",
    "printf": "writes to /run",
    "systemctl": "no services here",
    "du ": "of the system",
    "df ": "of the system",
}
"""Beginnings of lines, with the reason for which they are not played."""

NOT_PLAYED_SQL = {
    "ALTER AVAILABILITY GROUP": "the stand-in has no second server",
    "SELECT w.session_id": "the stand-in answers no questions about waits",
}


def blocks(page: Path, language: str) -> list[str]:
    """Texts of a page's blocks in a language; "" for those that name none."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    return [block for name, block in found if name == language]


def shell_lines(page: Path) -> list[str]:
    """Lines of shell, continued ones joined, without comments."""
    text = "".join(blocks(page, "sh")).replace("\\\n", " ")
    return [line for line in (re.sub(r"\s+#.*$", "", line).strip() for line in text.splitlines()) if line]


def calls(page: Path) -> list[list[str]]:
    """Arguments of calls of `cdc-assets`, in blocks and between words, without what a shell does with them."""
    text = page.read_text(encoding="utf-8")
    lines = shell_lines(page) + re.findall(r"`(cdc-assets [^`\n]+)`", text)
    found = [shlex.split(match[0])[1:] for line in lines if (match := re.search(r"cdc-assets .*", line))]
    commands = [list(takewhile(lambda part: part not in SHELL, parts)) for parts in found]
    return [parts for parts in commands if not {"…", "COMMAND"} & {*parts} and not parts[0].startswith("-")]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_of_a_page_parses(page: Path) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for name, *arguments in calls(page):
        command = group.get_command(typer.Context(group), name)
        assert command is not None, name
        if "--help" not in arguments:
            command.make_context(name, complete(name, arguments))


def complete(name: str, arguments: list[str]) -> list[str]:
    """With what a page leaves out because it speaks of one option only."""
    required = {"reconcile": "dbo.orders", "tail": "orders", "signal": "log"}
    if arguments and arguments[-1] in VALUED:
        arguments = [*arguments, "1"]
    bare = [part for part in arguments if not part.startswith("-")]
    return [*arguments, required[name]] if name in required and not bare else arguments


def test_the_pages_have_commands() -> None:
    assert sum(len(calls(page)) for page in PAGES) > 100


class Shop:
    """The server and the lake of the quick start.

    Args:
        server: has an empty database `Erp`.
        folder: for the configuration and the lake.
    """

    def __init__(self, server: StandIn, folder: Path) -> None:
        self.server, self.folder, self.lake = server, folder, folder / "lake"
        page = DOCS / "start" / "server.md"
        given = json.loads(blocks(page, "json")[0])
        given |= {"database.hostname": server.host, "database.port": str(server.port), "driver.encrypt": "no"}
        given |= {"lake.path": str(self.lake), "stream.idle.timeout.ms": "50", "poll.interval.ms": "20"}
        given |= {"mirror.reconcile.settle.ms": "200"}
        (folder / "erp.json").write_text(json.dumps(given))
        self.variables = {"CDC_CONFIG": str(folder / "erp.json"), "ERP_PASSWORD": server.password, "COLUMNS": "200"}
        self.sql(
            "CREATE TABLE dbo.orders (id int PRIMARY KEY, state varchar(9)); INSERT INTO dbo.orders VALUES (1, 'open')"
        )
        for statement in blocks(page, "sql")[0].split(";"):
            if statement.strip() and not statement.strip().startswith("USE "):
                self.sql(statement)

    def sql(self, statement: str) -> None:
        self.server.execute(statement, database="Erp")
        self.server.agent.drain()

    def run(self, line: str) -> Result:
        """A call of `cdc-assets`; a snapshot and a stream need no Java here."""
        name, *arguments = shlex.split(line.partition(" > ")[0])[1:]
        if name in ("capture", "mirror", "reconcile") and "--local" not in arguments:
            arguments.append("--local")
        return CliRunner().invoke(app, [name, *arguments], env=self.variables)

    def play(self, line: str) -> None:
        """A line of a page, with the paths of this test."""
        if line.startswith("mv "):
            shutil.copytree(self.lake, self.folder / "backup")
            self.lake.rename(self.folder / "damaged")
        elif line.startswith("cp -a "):
            (self.folder / "backup").rename(self.lake)
        else:
            result = self.run(line)
            assert result.exit_code == 0, (line, result.output)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("pages")
    before = os.environ.get("CDC_STATE_DIR")
    os.environ["CDC_STATE_DIR"] = str(folder / "state")
    try:
        with StandIn(databases=("Erp",), cdc=False, user="cdc_reader") as server:
            yield Shop(server, folder)
    finally:
        os.environ.pop("CDC_STATE_DIR") if before is None else os.environ.update(CDC_STATE_DIR=before)


def played(page: Path) -> list[str]:
    return [line for line in shell_lines(page) if not line.startswith(tuple(NOT_PLAYED))]


def test_the_quick_start_with_a_server_of_your_own(shop: Shop) -> None:
    lines = played(DOCS / "start" / "server.md")
    assert lines.count("cdc-assets capture --local") == 2
    changed = False
    for line in lines:
        if line == "cdc-assets tail orders -n 1":
            assert json.loads(shop.run(line).stdout)["value"]["op"] == "u"
        shop.play(line)
        if line == "cdc-assets status" and not changed:
            shown = shop.run(line).stdout
            expected = blocks(DOCS / "start" / "server.md", "")[0].splitlines()
            assert shown.splitlines()[0] == expected[0]
            assert shown.splitlines()[1].split() == expected[1].split()
            assert [*shown.splitlines()[2].split()[:2]] == [*expected[2].split()[:2]]
            shop.sql("UPDATE dbo.orders SET state = 'paid'")
            changed = True


@pytest.mark.parametrize(
    "page", [page for page in PLAYED if page.name != "server.md" and played(page)], ids=lambda page: page.stem
)
def test_commands_of_the_page_succeed_when_all_is_well(shop: Shop, page: Path) -> None:
    if not shop.lake.exists():
        assert shop.run("cdc-assets capture").exit_code == 0
    if "reconcile" in page.read_text():
        assert shop.run("cdc-assets mirror").exit_code == 0
    for line in played(page):
        shop.play(line)


@pytest.mark.parametrize("page", [page for page in PLAYED if blocks(page, "sql")], ids=lambda page: page.stem)
def test_statements_of_the_page_run(shop: Shop, page: Path) -> None:
    if page.name == "server.md":
        return  # the fixture runs them
    for statement in "".join(blocks(page, "sql")).split(";"):
        text = re.sub(r"--[^\n]*", "", statement).strip()
        if text and not text.startswith(tuple(NOT_PLAYED_SQL)):
            shop.server.execute(text, database="Erp")


def test_nothing_is_excused_that_no_page_says() -> None:
    lines = [line for page in PLAYED for line in shell_lines(page)]
    assert not [start for start in NOT_PLAYED if not any(line.startswith(start) for line in lines)]
