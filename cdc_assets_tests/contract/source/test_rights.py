"""The login of docs/rights.md: it captures, and `doctor` names the GRANT for each right that it lacks."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cdc_assets.cli.main import app
from cdc_assets_tests.contract.source.conftest import DATABASE
from mssql_standin.control import StandIn

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.contract

TABLES = """
CREATE TABLE dbo.orders (id int NOT NULL PRIMARY KEY, v nvarchar(20) CONSTRAINT DF_v DEFAULT N'none')
CREATE TABLE dbo.cdc_signal (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048))
CREATE TABLE dbo.secret (id int NOT NULL PRIMARY KEY)
INSERT INTO dbo.orders VALUES (1, N'a'), (2, N'b')
EXEC sys.sp_cdc_enable_table 'dbo', 'orders', @role_name = N'cdc_gate'
EXEC sys.sp_cdc_enable_table 'dbo', 'cdc_signal', @role_name = NULL
"""


def documented() -> list[str]:
    """Statements of the page, for these tables."""
    page = (ROOT / "docs" / "rights.md").read_text(encoding="utf-8")
    [block] = re.findall(r"## Permissions of the login\n.*?```sql\n(.*?)```", page, re.S)
    text = re.sub(r"--[^\n]*", "", block).replace("shop", DATABASE)
    return [statement.strip() for statement in text.split(";") if statement.strip()]


class Reader:
    """A server, the login, and the commands run with it."""

    def __init__(self, server: StandIn, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.texts = {
            "topic.prefix": "shop",
            "database.hostname": server.host,
            "database.port": str(server.port),
            "database.user": "cdc_reader",
            "database.password": "a long one",
            "database.names": DATABASE,
            "driver.encrypt": "no",
            "table.include.list": "dbo.orders",
            "signal.data.collection": f"{DATABASE}.dbo.cdc_signal",
            "stream.idle.timeout.ms": "50",
            "poll.interval.ms": "20",
            "lake.path": str(folder / "lake"),
        }

    def run(self, *arguments: str) -> Result:
        path = self.folder / "shop.json"
        path.write_text(json.dumps(self.texts))
        return CliRunner().invoke(app, [*arguments, "-c", str(path)], env={"COLUMNS": "250"})

    def admin(self, text: str) -> None:
        """As the owner of the server, statement by statement; USE counts for those behind it."""
        database = "master"
        for statement in text.split(";"):
            used = re.fullmatch(r"\s*USE \[?(\w+)\]?\s*", statement)
            if used:
                database = used[1]
            elif statement.strip():
                self.server.execute(statement, database=database)

    def operations(self, table: str = "orders") -> list[str | None]:
        """Of the events of a topic."""
        lines = self.run("tail", table, "-n", "100").output.splitlines()
        return [(json.loads(line)["value"] or {}).get("op") for line in lines if line.startswith("{")]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with StandIn(databases=(DATABASE,)) as server:
        for statement in TABLES.strip().splitlines():
            server.execute(statement, database=DATABASE)
        made = Reader(server, tmp_path)
        made.admin("; ".join(documented()))
        server.agent.drain()
        yield made


def test_what_the_page_grants_is_enough_for_a_capture(reader: Reader) -> None:
    doctor = reader.run("doctor")
    assert doctor.exit_code == 0, doctor.output
    assert "GRANT" not in doctor.output
    first = reader.run("capture", "--local")
    assert first.exit_code == 0, first.output
    reader.admin(f"USE {DATABASE}; UPDATE dbo.orders SET v = N'c' WHERE id = 1; DELETE FROM dbo.orders WHERE id = 2")
    signal = (
        """INSERT INTO dbo.cdc_signal VALUES ('s', 'execute-snapshot', '{{"data-collections": ["{}.dbo.orders"]}}')"""
    )
    reader.admin(f"USE {DATABASE}; {signal.format(DATABASE)}")
    reader.server.agent.drain()
    second = reader.run("capture", "--local")
    assert second.exit_code == 0, second.output
    assert reader.operations() == ["r", "r", "u", "d", None, "r"]


def test_a_right_that_one_table_lacks_stops_no_other(reader: Reader) -> None:
    reader.admin(
        f"USE {DATABASE}; CREATE TABLE dbo.other (id int NOT NULL PRIMARY KEY); "
        "EXEC sys.sp_cdc_enable_table 'dbo', 'other', @role_name = NULL; GRANT SELECT ON dbo.other TO cdc_reader"
    )
    reader.texts["table.include.list"] = "dbo.orders,dbo.other"
    reader.server.agent.drain()
    assert reader.run("capture", "--local").exit_code == 0
    reader.admin(f"USE {DATABASE}; DENY SELECT ON cdc.dbo_orders_CT TO cdc_reader")
    reader.admin(f"USE {DATABASE}; DELETE FROM dbo.orders WHERE id = 2; INSERT INTO dbo.other VALUES (1)")
    reader.server.agent.drain()
    denied = reader.run("capture", "--local")
    assert denied.exit_code != 0
    assert "The SELECT permission was denied" in " ".join(denied.output.split())
    assert reader.operations("other") == ["c"], denied.output
    assert reader.operations() == ["r", "r"]
    status = json.loads(reader.run("status", "--json").stdout)
    conditions = {table["table"].split(".")[-1]: table["condition"] for table in status["tables"]}
    assert (conditions["orders"], conditions["other"]) == ("failed", "streaming")
    reader.admin(f"USE {DATABASE}; GRANT SELECT ON cdc.dbo_orders_CT TO cdc_reader")
    assert reader.run("capture", "--local").exit_code == 0
    assert reader.operations() == ["r", "r", "d", None]


def test_a_table_that_the_login_no_longer_sees_is_not_dropped(reader: Reader) -> None:
    other = "CREATE TABLE dbo.other (id int NOT NULL PRIMARY KEY); EXEC sys.sp_cdc_enable_table 'dbo', 'other', @role_name = NULL"
    reader.admin(f"USE {DATABASE}; {other}")
    reader.texts["table.include.list"] = "dbo.orders,dbo.other"
    reader.server.agent.drain()
    assert reader.run("capture", "--local").exit_code == 0
    reader.admin(f"USE {DATABASE}; DENY SELECT, VIEW DEFINITION ON dbo.orders TO cdc_reader")
    reader.admin(f"USE {DATABASE}; DELETE FROM dbo.orders WHERE id = 2; INSERT INTO dbo.other VALUES (1)")
    reader.server.agent.drain()
    denied = reader.run("capture", "--local")
    assert denied.exit_code != 0
    assert "the login does not see it" in " ".join(denied.output.split())
    assert (reader.operations(), reader.operations("other")) == (["r", "r"], ["c"])
    status = json.loads(reader.run("status", "--json").stdout)
    conditions = {table["table"].split(".")[-1]: table["condition"] for table in status["tables"]}
    assert (conditions["orders"], conditions["other"]) == ("failed", "streaming")
    reader.admin(f"USE {DATABASE}; GRANT SELECT, VIEW DEFINITION ON dbo.orders TO cdc_reader")
    assert reader.run("capture", "--local").exit_code == 0
    assert reader.operations() == ["r", "r", "d", None]


def granted(reader: Reader) -> str:
    """What `doctor --grants` prints, asked by the owner of the server, with the password that it made."""
    owner = reader.texts | {"database.user": "sa", "database.password": reader.server.password}
    path = reader.folder / "owner.json"
    path.write_text(json.dumps(owner))
    found = CliRunner().invoke(app, ["doctor", "--grants", "--login", "least", "-c", str(path)])
    assert found.exit_code == 0, found.output
    return found.stdout


def least(reader: Reader) -> str:
    """Make the login that `doctor --grants` describes, and use it from now on; returns the text."""
    text = granted(reader)
    reader.admin(text)
    [password] = re.findall(r"PASSWORD = N'([^']*)'", text)
    reader.texts |= {"database.user": "least", "database.password": password}
    return text


@pytest.mark.parametrize("mode", ["direct", "function"])
def test_what_doctor_grants_is_enough_and_not_more(reader: Reader, mode: str) -> None:
    reader.texts |= {"data.query.mode": mode}
    least(reader)
    doctor = reader.run("doctor")
    assert (doctor.exit_code, "GRANT" in doctor.output) == (0, False), doctor.output
    assert reader.run("capture", "--local").exit_code == 0
    assert reader.operations() == ["r", "r"]
    reader.texts |= {"table.include.list": "dbo.secret"}
    assert reader.run("doctor").exit_code == 1, "it may not read what is not captured"


def test_what_doctor_grants_is_enough_for_every_command(reader: Reader) -> None:
    reader.texts |= {"mirror.enabled": "true"}
    least(reader)
    assert reader.run("capture", "--local").exit_code == 0
    reader.admin(f"USE {DATABASE}; UPDATE dbo.orders SET v = N'c' WHERE id = 1")
    asked = reader.run("signal", "execute-snapshot", "dbo.orders")
    assert asked.exit_code == 0, asked.output
    reader.server.agent.drain()
    again = reader.run("capture", "--local")
    assert again.exit_code == 0, again.output
    assert sorted(filter(None, reader.operations())) == ["r", "r", "r", "r", "u"]
    status = json.loads(reader.run("status", "--json").stdout)
    assert (status["health"], status["troubles"]) == ("healthy", [])
    for command in (["mirror", "--local"], ["reconcile", "dbo.orders", "--local"], ["summary"]):
        found = reader.run(*command)
        assert found.exit_code == 0, found.output


def test_doctor_misses_each_right_that_it_grants(reader: Reader) -> None:
    text = least(reader)
    database = "master"
    missed = {}
    for statement in (line.strip().rstrip(";") for line in text.splitlines()):
        database = statement[5:-1] if statement.startswith("USE [") else database
        if statement.startswith("GRANT ") and "VIEW ANY DATABASE" not in statement:  # which public has
            taken = re.sub(r"^GRANT (.*) TO", r"REVOKE \1 FROM", statement)
            reader.admin(f"USE {database}; {taken}")
            missed[statement] = reader.run("doctor").output
            reader.admin(f"USE {database}; {statement}")
    assert len(missed) == 5
    assert [statement for statement, output in missed.items() if "GRANT" not in output] == []


@pytest.mark.parametrize(
    ("taken", "named", "code"),
    [
        ("USE {db}; REVOKE CONNECT FROM cdc_reader", None, 1),
        ("USE {db}; DROP USER cdc_reader", "USE [{db}]; CREATE USER [cdc_reader] FOR LOGIN [cdc_reader];", 1),
        ("USE {db}; REVOKE SELECT ON SCHEMA::cdc FROM cdc_reader", "USE [{db}]; GRANT SELECT ON SCHEMA::[cdc] TO [cdc_reader];", 1),
        ("USE {db}; DENY SELECT ON dbo.orders TO cdc_reader", "USE [{db}]; GRANT SELECT ON [dbo].[orders] TO [cdc_reader];", 1),
        ("USE {db}; REVOKE SELECT, VIEW DEFINITION ON SCHEMA::dbo FROM cdc_reader", "instance dbo_orders", 1),
        ("USE {db}; REVOKE VIEW DEFINITION ON SCHEMA::dbo FROM cdc_reader", "USE [{db}]; GRANT VIEW DEFINITION ON [dbo].[orders] TO [cdc_reader];", 0),
        ("USE {db}; REVOKE INSERT ON dbo.cdc_signal FROM cdc_reader", "USE [{db}]; GRANT INSERT ON [dbo].[cdc_signal] TO [cdc_reader];", 0),
        ("USE {db}; DENY VIEW DATABASE STATE TO cdc_reader", "USE [{db}]; GRANT VIEW DATABASE STATE TO [cdc_reader];", 0),
        ("REVOKE VIEW SERVER STATE FROM cdc_reader", "USE [master]; GRANT VIEW SERVER STATE TO [cdc_reader];", 0),
        ("DENY VIEW ANY DATABASE TO public", None, 1),
    ],
)  # fmt: skip
def test_doctor_names_the_right_that_is_missing(reader: Reader, taken: str, named: str | None, code: int) -> None:
    reader.admin(taken.format(db=DATABASE))
    doctor = reader.run("doctor")
    assert doctor.exit_code == code, doctor.output
    assert not doctor.exception or isinstance(doctor.exception, SystemExit)
    if named is not None:
        assert named.format(db=DATABASE) in doctor.output


def test_doctor_names_the_role_that_gates_the_change_functions(reader: Reader) -> None:
    reader.texts["data.query.mode"] = "function"
    assert "gated by the role cdc_gate" in reader.run("doctor").output
    reader.admin(f"USE {DATABASE}; ALTER ROLE cdc_gate ADD MEMBER cdc_reader")
    assert reader.run("doctor").exit_code == 0
    assert reader.run("capture", "--local").exit_code == 0
    reader.admin(f"USE {DATABASE}; INSERT INTO dbo.orders (id) VALUES (3)")
    reader.server.agent.drain()
    assert reader.run("capture", "--local").exit_code == 0
    assert reader.operations() == ["r", "r", "c"]
