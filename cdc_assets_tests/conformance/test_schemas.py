"""Structures that change while both capture: hand-overs and newly enabled tables against the real connector.

A seeded workload runs all the time. In each round every table gets a column, is changed
before and after its second capture instance is made, and loses the first one once both
readers are past it; one table more is created and enabled. The referee is given time for
each hand-over: it keeps those of several tables in a queue without an order, and may then
decode a table's changes with the old structure for a while (docs/differences-from-debezium.md).
`CDC_CONFORMANCE_SEED` and
`CDC_CONFORMANCE_ROUNDS` choose another workload or a longer one.
"""

import dataclasses
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyodbc
import pytest

from cdc_assets_tests.conformance.changes import by_table, is_change, schemas_explained
from cdc_assets_tests.conformance.compare import Record, Report, compare
from cdc_assets_tests.conformance.compare import explained as values_explained
from cdc_assets_tests.conformance.debezium import Debezium, payload
from cdc_assets_tests.conformance.side_by_side import settled, side_by_side
from cdc_assets_tests.conformance.workload import TABLES, TYPES, TableModel, Workload
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from mssql_standin.control import StandIn

SEED = int(os.environ.get("CDC_CONFORMANCE_SEED", "1"))
ROUNDS = int(os.environ.get("CDC_CONFORMANCE_ROUNDS", "2"))
TRANSACTIONS = 30
"""Between two steps of a round."""

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

CASES: dict[str, dict[str, str]] = {
    "direct": {},
    "function": {"data.query.mode": "function"},
    "transactions": {"provide.transaction.metadata": "true"},
}


def records_explained(path: str, theirs: Any, ours: Any) -> str | None:
    """Differences of history records listed in docs/differences-from-debezium.md."""
    if path.startswith("payload.position."):
        return "position of a history record: where the reader was / the place from which it holds"
    return None


def as_record(text: str) -> Record:
    """A history record, with its table as the topic."""
    value = json.loads(text)
    return {"topic": value["tableChanges"][0]["id"], "key": None, "value": {"payload": value}, "headers": {}}


class Changing:
    """The workload whose tables change.

    Args:
        execute: runs a statement on the server.
    """

    def __init__(self, execute: Callable[[str], object]) -> None:
        self.execute = execute
        self.workload = Workload(SEED, TABLES[1:])
        self._instances = {table.name: f"dbo_{table.name}" for table in self.workload.tables}
        self._old: dict[str, str] = {}
        self.structures = len(self._instances)
        for statement in self.workload.setup():
            execute(statement)

    def work(self) -> None:
        """Some transactions over all tables."""
        for statement in self.workload.transactions(TRANSACTIONS):
            self.execute(statement)

    def alter(self, number: int, told: Callable[[int], object]) -> None:
        """Every table gets a column, and a second instance some time later; one table is new.

        Args:
            number: of the round.
            told: waits until the referee has told so many structures; see the module's head.
        """
        self.workload.tables = tuple(self._with_column(table, number) for table in self.workload.tables)
        self.work()
        self._old = dict(self._instances)
        for table in self.workload.tables:
            self._instances[table.name] = f"dbo_{table.name}_v{number}"
            self.execute(f"{table.enable()}, @capture_instance = N'{self._instances[table.name]}'")
            self.work()
            self.structures += 1
            told(self.structures)
        self._add_table(number)
        self.work()
        self.structures += 1
        told(self.structures)

    def drop_old(self) -> None:
        """The older instances go."""
        for table, instance in self._old.items():
            self.execute(
                f"EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'{table}', "
                f"@capture_instance = N'{instance}'"
            )
        self.work()

    def _with_column(self, table: TableModel, number: int) -> TableModel:
        kind = self.workload.rng.choice(sorted(TYPES))
        name, (declaration, make) = f"added_{number}_{kind}", TYPES[kind]
        self.execute(f"ALTER TABLE dbo.{table.name} ADD {name} {declaration} NULL")
        return dataclasses.replace(table, columns={**table.columns, name: (declaration, make)})

    def _add_table(self, number: int) -> None:
        table = TableModel(f"new_{number}", ("id",), {"note": TYPES["c_nvarchar"], "at": TYPES["c_datetime"]})
        self.execute(table.create())
        self.execute(table.enable())
        self._instances[table.name] = f"dbo_{table.name}"
        self.workload.tables = (*self.workload.tables, table)
        self.workload.rows[table.name] = []


@pytest.mark.parametrize("case", CASES)
def test_changing_structures(server: StandIn, tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = captured_by_both(server, tmp_path, CASES[case])
    with capsys.disabled():
        print(f"\n{case}, seed {SEED}, {ROUNDS} rounds\n{report}")  # noqa: T201 - the table is the result
    assert not report.differences, str(report)


def once(records: list[Record]) -> list[Record]:
    """Without END events that the referee says twice, which it does when the log is idle and then goes on."""
    ends: set[str] = set()
    kept = []
    for record in records:
        if is_end(record):
            if payload(record["value"])["id"] in ends:
                continue
            ends.add(payload(record["value"])["id"])
        kept.append(record)
    return kept


def without_open_end(theirs: list[Record], ours: list[Record]) -> list[Record]:
    """Ours without the END of the last transaction, if the referee still waits for the next one to tell it."""
    ends = [{payload(record["value"])["id"] for record in records if is_end(record)} for records in (theirs, ours)]
    open_ends = {max(ends[1])} - ends[0] if ends[1] else set()
    return [record for record in ours if not (is_end(record) and payload(record["value"])["id"] in open_ends)]


def is_end(record: Record) -> bool:
    """Whether it is the END of a transaction."""
    return (payload(record["value"]) or {}).get("status") == "END"


def wait_for_structures(debezium: Debezium, count: int) -> None:
    """Until the referee has told so many structures."""
    debezium.wait(lambda records: sum(map(is_change, records)) >= count)


def captured_by_both(server: StandIn, work: Path, extra: dict[str, str]) -> Report:
    """Run the workload while both capture it, and compare."""
    connection = pyodbc.connect(server.connection_string("TestDB"), autocommit=True)
    changing = Changing(connection.execute)
    server.agent.drain()
    properties = {
        "snapshot.mode": "no_data",
        "table.include.list": "dbo\\..*",
        **extra,
    }
    with side_by_side(server, work, **properties) as (debezium, ours):
        debezium.wait(lambda records: any(record["topic"] == "shop" for record in records))
        told = partial(wait_for_structures, debezium)
        for number in range(2, 2 + ROUNDS):
            changing.work()
            changing.alter(number, told)
            server.agent.drain()
            ours.catch_up()
            settled(debezium, len(ours.records(as_written=True)) + 1, 5.0)
            changing.drop_old()
            server.agent.drain()
        ours.catch_up()
        expected = ours.records(as_written=True)
        theirs = settled(debezium, len(expected) + 1)  # patience, for its END events come late
    connection.close()
    changes = compare(by_table(theirs), by_table(expected), schemas_explained)
    history = (work / "theirs" / "history.dat").read_text().splitlines()
    rows = sorted(rows_of_topic(ours.config, "shop.__schema_history"), key=lambda row: str(row["position"]))
    own = [as_record(str(row["record"])) for row in rows]
    records = compare([as_record(line) for line in history if line], own, records_explained)
    left, right = ([record for record in records if not is_change(record)] for records in (theirs, expected))
    report = compare(once(left), without_open_end(left, right), values_explained)
    for part in (changes, records):
        for name in ("compared", "differences", "explained"):
            getattr(report, name).update(getattr(part, name))
        report.examples.update(part.examples)
    return report
