"""The command line killed at every step of a hand-over, round after round on the same tables.

Each round both tables get a column, and one of them the column `amount` anew in another type,
so that its topic opens a generation; then a second capture instance, with changes before, between
and behind. All of it falls into one window, in which the process dies by SIGKILL at one step. The
next round drops the older instance. After all rounds the topics hold every change once, each with
the columns that its instance has, and the history agrees.
"""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_assets.config.load import load_config
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.steps import STEPS, VARIABLE
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.contract.capture_file import properties_of
from cdc_assets_tests.unit.streaming.child import DATABASE
from cdc_assets_tests.unit.streaming.lake_reader import Event, events_of, rows_of_topic
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.warm import run_module
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.crash, pytest.mark.daemon, pytest.mark.timeout(300)]

TABLES = ("lines", "orders")
KILLS = [
    "window-planned",
    "history-recorded",
    "history-written",
    "files-written",
    "table-committed:1",
    "table-committed:2",
    "table-committed:3",
    "transactions-committed",
    "window-complete",
]
AMOUNTS = {0: "int", 1: "nvarchar(20)"}
"""Type of `orders.amount` in even and odd rounds."""


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


class Rounds:
    """The server's side, and what the topics must hold.

    Args:
        server: with an empty database.
    """

    def __init__(self, server: StandIn) -> None:
        self._server = server
        self.wanted: dict[str, list[tuple[int, set[str], object]]] = {name: [] for name in TABLES}
        """Of each change the key, the columns and the amount."""
        self._columns = {name: ["id", "amount"] for name in TABLES}
        self._captured = {name: ["id", "amount"] for name in TABLES}
        self._keys = 0
        for name in TABLES:
            self.execute(f"CREATE TABLE dbo.{name} (id int NOT NULL PRIMARY KEY, amount int NULL)")
            self._enable(name, 0)
        server.agent.drain()

    def execute(self, statement: str) -> None:
        self._server.execute(statement, database=DATABASE)

    def play(self, number: int) -> None:
        """A round, from the last round's older instance to this round's second one."""
        for name in TABLES:
            if number > 1:
                self._procedure("disable", name, number - 2)
            self._insert(name, AMOUNTS[(number - 1) % 2] if name == "orders" else "int")
            self.execute(f"ALTER TABLE dbo.{name} ADD added_{number} int NULL")
            self._columns[name].append(f"added_{number}")
            self._insert(name, AMOUNTS[(number - 1) % 2] if name == "orders" else "int")
        self.execute("ALTER TABLE dbo.orders DROP COLUMN amount")
        self.execute(f"ALTER TABLE dbo.orders ADD amount {AMOUNTS[number % 2]} NULL")
        for name in TABLES:
            self._enable(name, number)
            self._captured[name] = list(self._columns[name])
            self._insert(name, AMOUNTS[number % 2] if name == "orders" else "int")
        self._server.agent.drain()

    def _insert(self, name: str, kind: str) -> None:
        self._keys += 1
        amount: object = self._keys if kind == "int" else f"no. {self._keys}"
        value = f"N'{amount}'" if kind != "int" else str(amount)
        self.execute(f"INSERT INTO dbo.{name} (id, amount) VALUES ({self._keys}, {value})")
        self.wanted[name].append((self._keys, set(self._captured[name]), amount))

    def _enable(self, name: str, number: int) -> None:
        self._procedure("enable", name, number, ", @role_name = NULL")

    def _procedure(self, what: str, name: str, number: int, more: str = "") -> None:
        self.execute(
            f"EXEC sys.sp_cdc_{what}_table @source_schema = N'dbo', @source_name = N'{name}', "
            f"@capture_instance = N'{name}_{number}'{more}"
        )


def capture(file: Path, step: str = "") -> None:
    """The command, killed at a step."""
    arguments = ["capture", "--local", "--config", str(file)]
    done = run_module("cdc_assets.cli.main", *arguments, environment={VARIABLE: step})
    assert done.returncode == (-signal.SIGKILL if step else 0), f"{step}: {done.said}"


def test_hand_overs_killed_at_each_step(server: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "capture.json"
    file.write_text(
        json.dumps(
            properties_of(server, tmp_path / "lake")
            | {"provide.transaction.metadata": "true", "stream.idle.timeout.ms": "1"}
        )
    )
    rounds = Rounds(server)
    capture(file)
    for number, step in enumerate(KILLS, 1):
        rounds.play(number)
        capture(file, step)
        capture(file)
    config = load_config(file, {})
    starts = {}
    for name in TABLES:
        table = TableId(DATABASE, "dbo", name)
        assert state_of(config).tables[table].status == "healthy"
        events = events_of(config, table)
        assert [seen(event) for event in events] == rounds.wanted[name]
        assert len({event.position for event in events}) == len(events)
        starts[name] = [event.lsn for event in events][2::3]
    history = sorted(rows_of_topic(config, "shop.__schema_history"), key=lambda row: str(row["position"]))
    public = rows_of_topic(config, "shop")
    assert len(history) == len(public) == len(TABLES) * (1 + len(KILLS))
    for name in TABLES:
        own = [row for row in history if row["table"] == name]
        assert [row["type"] for row in own] == ["CREATE"] + ["ALTER"] * len(KILLS)
        assert [row["capture_instance"] for row in own] == [f"{name}_{number}" for number in range(1 + len(KILLS))]
        for row, first, before in zip(own[1:], starts[name], [None, *starts[name]], strict=False):
            assert Lsn.parse(str(row["commit_lsn"])) <= first
            assert before is None or Lsn.parse(str(row["commit_lsn"])) > before
    ends = [row["value"]["id"] for row in rows_of_topic(config, "shop.transaction") if row["value"]["status"] == "END"]  # type: ignore[index]
    assert len(ends) == len(set(ends)) == sum(len(wanted) for wanted in rounds.wanted.values())
    generations = TopicTables(Location.of(config.lake), "reader").generations(f"shop.{DATABASE}.dbo.orders")
    assert len(generations) == len(AMOUNTS)


def seen(event: Event) -> tuple[int, set[str], object]:
    """An event as it is wanted."""
    assert event.after is not None
    return event.key, set(event.after), event.after["amount"]


def test_steps_are_known() -> None:
    assert {step.partition(":")[0] for step in KILLS} <= set(STEPS)
