"""`adopt`: a capture that continues behind another reader, over real drivers and the stand-in."""

import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cdc_assets.cli.main import app
from cdc_assets.config.load import load_config
from cdc_assets.core.steps import VARIABLE
from cdc_assets.envelope.plan import ConnectorIdentity
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.e2e import chains
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from cdc_assets_tests.warm import run_module
from mssql_standin.control import StandIn

DATABASE = "SalesDb"
POINTS = os.environ.get("CDC_ADOPT_POINTS", "few")
"""Anything else stops behind every event."""
TABLES = ("lines", "orders")
TRANSACTION = """BEGIN TRAN;
INSERT dbo.orders VALUES (10, N'new'), (11, N'new');
INSERT dbo.lines VALUES (10, N'new');
UPDATE dbo.orders SET note = N'by both';
UPDATE dbo.orders SET id = 12 WHERE id = 11;
DELETE dbo.lines WHERE id = 1;
INSERT dbo.lines VALUES (11, N'last');
COMMIT TRAN"""

Place = tuple[str, str, int]
"""Commit LSN, change LSN and serial number of an event."""


class Site:
    """A server with two tables, and a capture of them in `folder`."""

    def __init__(self, server: StandIn, folder: Path) -> None:
        self.server, self.folder = server, folder
        for name in TABLES:
            self.execute(f"CREATE TABLE dbo.{name} (id int NOT NULL PRIMARY KEY, note nvarchar(20))")
            self.enable(name)
        self.change("INSERT dbo.orders VALUES (1, N'a')", "INSERT dbo.lines VALUES (1, N'a')")

    def execute(self, statement: str) -> None:
        self.server.execute(statement, database=DATABASE)

    def enable(self, name: str) -> None:
        self.execute(
            f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{name}', @role_name = NULL"
        )
        self.server.agent.drain()

    def change(self, *statements: str) -> None:
        for statement in statements:
            self.execute(statement)
        self.server.agent.drain()

    def lsn(self) -> str:
        """The newest LSN, as T-SQL prints it."""
        [[value]] = self.server.execute("SELECT sys.fn_cdc_get_max_lsn()", database=DATABASE)
        return "0x" + bytes(value).hex().upper()

    def file(self, lake: str = "lake", **properties: str) -> Path:
        """A configuration; each lake has its own."""
        path = self.folder / f"{lake}.json"
        own = {
            "topic.prefix": "shop",
            "database.hostname": self.server.host,
            "database.port": str(self.server.port),
            "database.user": self.server.user,
            "database.password": self.server.password,
            "database.names": DATABASE,
            "driver.encrypt": "no",
            "lake.path": str(self.folder / lake),
            "stream.idle.timeout.ms": "1",
        }
        path.write_text(json.dumps(own | {name.replace("_", "."): text for name, text in properties.items()}))
        return path

    def offsets(self, **offset: object) -> Path:
        """A connector's offset as people print it from the topic."""
        path = self.folder / "offsets.txt"
        partition = json.dumps(["shop", {"server": "shop", "database": DATABASE}])
        path.write_text(f"{partition}\t{json.dumps(offset)}\n")
        return path

    def behind(self, place: Place, **more: object) -> Path:
        """The offset of an event."""
        commit, change, serial = place
        return self.offsets(commit_lsn=commit, change_lsn=change, event_serial_no=serial, **more)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with StandIn(databases=(DATABASE,)) as server:
        yield Site(server, tmp_path)


def run(file: Path, *command: str) -> Result:
    return CliRunner().invoke(app, [*command, "--config", str(file)], env={"COLUMNS": "250"})


def adopt(file: Path, *options: str) -> str:
    """Adoption and capture that go well: all that was said."""
    said = ""
    for command in (["adopt", "--yes", *options], ["capture", "--local"]):
        done = run(file, *command)
        assert done.exit_code == 0, done.output
        said += done.output
    return said


def events(file: Path, *, numbered: bool = False) -> list[tuple[Place, str, Any]]:
    """Place, table with operation, and value of each event in the order of the log; tombstones left out."""
    config, found = load_config(file, {}), []
    for name in TABLES:
        for row in rows_of_topic(config, f"shop.{DATABASE}.dbo.{name}"):
            value: Any = row["value"]
            if value is not None:
                source = value["source"]
                place = source["commit_lsn"], source["change_lsn"], source["event_serial_no"]
                shown = value["before"], value["after"], value["transaction"] if numbered else None
                found.append((place, f"{name} {value['op']}", shown))
    return sorted(found, key=lambda event: (event[0], event[1]))


PLACES = {"direct": (0, 3, 6, 9, 10), "function": (3, 6)}
"""Numbers of events behind which a reader stops: 6 is the delete of a changed key, 9 the last of the transaction."""


@pytest.mark.long
@pytest.mark.parametrize("mode", PLACES)
def test_continues_behind_events_of_a_transaction(site: Site, mode: str) -> None:
    properties = {"data.query.mode": mode}
    start = site.lsn()
    site.change(TRANSACTION, "INSERT dbo.orders VALUES (20, N'later')")
    whole = site.file("whole", **properties)
    adopt(whole, "--from-lsn", start)
    log = events(whole)
    assert len(log) == 11
    assert (log[6][1], log[7][1], log[6][0][:2]) == ("orders d", "orders c", log[7][0][:2])
    for number in PLACES[mode] if POINTS == "few" else range(len(log)):
        file = site.file(f"lake{number}", **properties)
        adopt(file, "--offsets", str(site.behind(log[number][0])))
        assert events(file) == log[number + 1 :]


@pytest.mark.long
def test_transaction_is_numbered_on(site: Site) -> None:
    start = site.lsn()
    site.change(TRANSACTION, "INSERT dbo.orders VALUES (20, N'later')")
    metadata = {"provide.transaction.metadata": "true"}
    whole = site.file("whole", **metadata)
    adopt(whole, "--from-lsn", start)
    log = events(whole, numbered=True)
    inside = [number for number, event in enumerate(log) if event[0][0] == log[0][0][0]]
    for number in (inside[4], inside[-1]):
        done = log[: number + 1]
        counts = {f"{DATABASE}.dbo.{name}": sum(event[1].startswith(name) for event in done) for name in TABLES}
        said = {f"transaction_data_collection_order_{table}": count for table, count in counts.items() if count}
        file = site.file(f"lake{number}", **metadata)
        adopt(file, "--offsets", str(site.behind(log[number][0], transaction_id=log[0][0][0], **said)))
        assert events(file, numbered=True) == log[number + 1 :]
        first, second, third = boundaries(file)
        assert (first["status"], first["event_count"]) == ("END", len(inside))
        assert (second["status"], third["status"]) == ("BEGIN", "END")


def boundaries(file: Path) -> list[Any]:
    rows = rows_of_topic(load_config(file, {}), "shop.transaction")
    return [row["value"] for row in sorted(rows, key=lambda row: str(row["position"]))]


def test_plan_writes_nothing_and_names_what_is_new(site: Site) -> None:
    place = site.lsn()
    site.execute("CREATE TABLE dbo.late (id int NOT NULL PRIMARY KEY)")
    site.execute("INSERT dbo.late VALUES (1)")
    site.enable("late")
    site.change("INSERT dbo.orders VALUES (2, N'b')")
    file = site.file()
    done = run(file, "adopt", "--from-lsn", place)
    assert done.exit_code == 0, done.output
    assert "Nothing was written" in done.output
    assert "SalesDb.dbo.late: enabled at" in done.output
    assert not (site.folder / "lake").exists() or not any((site.folder / "lake").iterdir())
    assert "Snapshot: 1 table." in adopt(file, "--from-lsn", place)
    assert [event[1] for event in events(file)] == ["orders c"]


def test_structures_of_the_connector_tell_which_tables_it_knew(site: Site) -> None:
    record = {
        "source": {"server": "shop", "database": DATABASE},
        "position": {"commit_lsn": "0000002c:00000001:0001", "change_lsn": "NULL", "snapshot": "INITIAL"},
        "databaseName": DATABASE,
        "tableChanges": [
            {"type": "CREATE", "id": f'"{DATABASE}"."dbo"."orders"', "table": {"columns": [{"name": "id"}]}}
        ],
    }
    history = site.folder / "history.dat"
    history.write_text(json.dumps(record) + "\n")
    offsets = site.offsets(commit_lsn=printed(site.lsn()), change_lsn="NULL", event_serial_no=0)
    done = run(site.file(), "adopt", "--offsets", str(offsets), "--history", str(history))
    assert "SalesDb.dbo.lines: the connector did not know it: snapshot.mode=initial decides" in done.output
    assert "SalesDb.dbo.orders: events are with note, unlike the connector's structure" in done.output


def printed(lsn: str) -> str:
    digits = lsn.removeprefix("0x").lower()
    return f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"


def test_changes_that_were_cleaned_up_are_a_gap(site: Site) -> None:
    place = site.lsn()
    site.change("INSERT dbo.orders VALUES (2, N'b')", "INSERT dbo.orders VALUES (3, N'c')")
    site.server.agent.cleanup(DATABASE, "dbo_orders", bytes.fromhex(site.lsn().removeprefix("0x")))
    file = site.file()
    done = run(file, "adopt", "--yes", "--from-lsn", place)
    assert "were removed by the clean-up job before they were read" in done.output
    captured = run(file, "capture", "--local")
    assert captured.exit_code == 1
    assert "SalesDb.dbo.orders gap:" in captured.output


def test_time_of_the_server_is_a_position(site: Site) -> None:
    [[time]] = site.server.execute(
        "SELECT CONVERT(nvarchar(30), MAX(tran_end_time), 126) FROM cdc.lsn_time_mapping", database=DATABASE
    )
    sleep(0.02)
    site.change("INSERT dbo.orders VALUES (2, N'b')")
    file = site.file()
    adopt(file, "--from-time", str(time))
    assert [event[1] for event in events(file)] == ["orders c"]
    early = run(site.file("other"), "adopt", "--from-time", "2001-01-01T00:00:00+02:00")
    assert early.exit_code == 2
    assert "changes before it are cleaned up" in early.output


def test_a_time_with_a_zone_means_the_same_moment_after_the_servers_clock_was_changed(site: Site) -> None:
    """Clocks go forward on 28 March 2027; commits are recorded in local time, without the offset of then."""
    clock = site.server.clock

    def at(moment: str, hours: int) -> None:
        clock.offset_minutes = 60 * hours
        clock.shift = datetime.fromisoformat(moment) - datetime.now(UTC).replace(tzinfo=None)

    at("2027-03-27T10:30:00", 1)
    site.change("INSERT dbo.orders VALUES (2, N'before')")
    at("2027-03-27T11:30:00", 1)
    site.change("INSERT dbo.orders VALUES (3, N'within an hour')")
    at("2027-03-28T08:00:00", 2)
    said = adopt(file := site.file(), "--from-time", "2027-03-27T12:00:00+01:00")
    assert "showed 2027-03-27 12:00:00 or 2027-03-27 13:00:00" in said
    assert [event[1] for event in events(file)] == ["orders c"]
    at("2027-03-28T09:00:00", 2)
    site.change("INSERT dbo.orders VALUES (4, N'c')")
    said = adopt(file := site.file("other"), "--from-time", "2027-03-28T10:30:00+02:00")
    assert "showed" not in said
    assert [event[1] for event in events(file)] == ["orders c"]


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        ({"snapshot": "INITIAL", "snapshot_completed": False}, "let the connector finish its snapshot"),
        ({"commit_lsn": "ffffffff:00000001:0001"}, "check that it is the same server"),
        ({"change_lsn": "00000001:00000001:0001", "event_serial_no": 1}, ""),
    ],
)
def test_offsets_that_no_capture_can_continue(site: Site, offset: dict[str, object], said: str) -> None:
    path = site.offsets(**{"commit_lsn": printed(site.lsn()), "change_lsn": "NULL", **offset})
    done = run(site.file(), "adopt", "--offsets", str(path))
    assert done.exit_code == (2 if said else 0), done.output
    assert said in done.output


def test_capture_that_exists_is_not_taken_over(site: Site) -> None:
    file = site.file()
    adopt(file, "--from-lsn", site.lsn())
    done = run(file, "adopt", "--yes", "--from-lsn", site.lsn())
    assert done.exit_code == 2
    assert "has 2 tables with positions of its own" in done.output


def test_capture_whose_positions_were_forgotten_is_not_taken_over(site: Site) -> None:
    older, file = site.lsn(), site.file()
    site.change("INSERT dbo.orders VALUES (2, N'b')")
    adopt(file, "--from-lsn", older)
    assert run(file, "reset", "dbo.orders", "dbo.lines", "--yes").exit_code == 0
    site.change("INSERT dbo.orders VALUES (3, N'c')")
    for place in (older, site.lsn()):
        for option in ((), ("--yes",)):
            done = run(file, "adopt", "--from-lsn", place, *option)
            assert done.exit_code == 2, done.output
            assert "events of SalesDb.dbo.lines, SalesDb.dbo.orders" in done.output.replace("\n", " ")
            assert "cdc-assets reset --capture" in done.output
    assert run(file, "reset", "--capture", "--yes").exit_code == 0
    adopt(file, "--from-lsn", older)
    assert [event[2][1]["id"] for event in events(file)] == [2, 3]


def killed(file: Path, place: str, step: str) -> None:
    """An adoption that dies at a step."""
    arguments = ["adopt", "--yes", "--from-lsn", place, "--config", str(file)]
    done = run_module("cdc_assets.cli.main", *arguments, environment={VARIABLE: step})
    assert done.returncode == -signal.SIGKILL, done.said


def structures(file: Path) -> list[tuple[str, str]]:
    """Kinds and tables of the schema history's entries, in order."""
    config = load_config(file, {})
    history = SchemaHistory(TopicTables.of(config), config.events, config.history, ConnectorIdentity())
    return [(entry.kind, entry.table.table) for _, entry in history.read()]


def schema_events(file: Path) -> list[tuple[str, str]]:
    """The same of the public events."""
    rows = sorted(rows_of_topic(load_config(file, {}), "shop"), key=lambda row: str(row["position"]))
    changes = [row["value"]["tableChanges"][0] for row in rows]  # type: ignore[index]
    return [(change["type"], change["id"].split(".")[-1].strip('"')) for change in changes]


@pytest.mark.parametrize("step", [*chains.ADOPTION, "history-recorded"])
def test_killed_and_repeated(site: Site, step: str) -> None:
    place, file = site.lsn(), site.file()
    site.change(TRANSACTION)
    killed(file, place, step)
    if step == "adoption-complete":
        assert run(file, "capture", "--local").exit_code == 0
    else:
        stopped = run(file, "capture", "--local")
        assert stopped.exit_code == 1
        assert "Its adoption was interrupted" in stopped.output
        adopt(file, "--from-lsn", place)
    assert len(events(file)) == 10
    assert structures(file) == [("CREATE", name) for name in TABLES]
    assert schema_events(file) == [("CREATE", name) for name in TABLES]


def test_interrupted_adoption_that_is_repeated_elsewhere_with_another_structure(site: Site) -> None:
    place, file = site.lsn(), site.file()
    killed(file, place, "history-recorded")
    site.execute("ALTER TABLE dbo.orders ALTER COLUMN note nvarchar(30)")
    site.change(TRANSACTION)
    adopt(file, "--from-lsn", place)
    assert len(events(file)) == 10
    wanted = [("ALTER", "orders"), ("CREATE", "lines"), ("CREATE", "orders")]
    assert sorted(structures(file)) == sorted(schema_events(file)) == wanted
