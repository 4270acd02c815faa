"""The real connector stopped at random places, and its capture taken over by `adopt`: both outputs together are the log.

The reference is a connector that was never stopped. A second one is stopped behind random records, most of them inside
a transaction, and started again; a copy of its offsets and schema history at each place is adopted into a lake of its
own. What it had delivered until then, followed by what our capture writes, must be the reference's records: none twice,
none missing, in order, with the same numbers inside transactions. One table is altered and gets a second capture
instance on the way. `CDC_ADOPT_POINTS` and `CDC_CONFORMANCE_SEED` choose more places or others.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyodbc
import pytest

from cdc_assets_tests.conformance.compare import Record, compare, explained
from cdc_assets_tests.conformance.debezium import Debezium, payload
from cdc_assets_tests.conformance.ours import Ours
from cdc_assets_tests.conformance.workload import TYPES, Rng, Workload
from mssql_standin.control import StandIn

SEED = int(os.environ.get("CDC_CONFORMANCE_SEED", "1"))
POINTS = int(os.environ.get("CDC_ADOPT_POINTS", "4"))
TRANSACTIONS = 20
TABLES_COUNT = 3

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(1800)]

CASES: dict[str, dict[str, str]] = {
    "direct": {},
    "function": {"data.query.mode": "function"},
    "transactions": {"provide.transaction.metadata": "true"},
}


def set_up(server: StandIn, workload: Workload) -> None:
    """The tables."""
    for statement in workload.setup():
        server.execute(statement, database="TestDB")
    server.agent.drain()


def work_on(server: StandIn, workload: Workload) -> None:
    """A log with several tables, one of which is altered in the middle."""
    with closing(pyodbc.connect(server.connection_string("TestDB"), autocommit=True)) as connection:

        def transactions() -> None:
            for statement in workload.transactions(TRANSACTIONS):
                connection.execute(statement)
            server.agent.drain()

        transactions()
        first, altered, last = workload.tables
        connection.execute(f"ALTER TABLE dbo.{altered.name} ADD added nvarchar(40) NULL")
        columns = {**altered.columns, "added": TYPES["c_nvarchar"]}
        workload.tables = (first, dataclasses.replace(altered, columns=columns), last)
        transactions()
        connection.execute(f"{altered.enable()}, @capture_instance = N'second'")
        transactions()


def is_data(record: Record) -> bool:
    """Whether it is an event of a table or of a transaction; structures are told by either side in its own place."""
    return bool(record["topic"] != "shop")


def once(records: list[Record]) -> list[Record]:
    """Without END events told again: the offset of a connector does not say whether it has told the last one."""
    told: set[Any] = set()
    kept = []
    for record in records:
        value = payload(record["value"]) or {}
        if value.get("status") == "END":
            if value["id"] in told:
                continue
            told.add(value["id"])
        kept.append(record)
    return kept


def properties_of(server: StandIn, extra: dict[str, str]) -> dict[str, str]:
    return {
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password,
        "database.names": "TestDB",
        "topic.prefix": "shop",
        "snapshot.mode": "no_data",
        "table.include.list": "dbo\\..*",
        **extra,
    }


def begun(server: StandIn, work: Path, properties: dict[str, str]) -> list[Debezium]:
    """Two connectors that have delivered the same first event: before it, a restart would take the snapshot again."""
    for name in ("whole", "cut"):
        (work / name).mkdir()
    first, second = (Debezium(work / name, **properties) for name in ("whole", "cut"))
    with first:
        first.wait(lambda records: len(records) >= TABLES_COUNT)
        server.execute("INSERT dbo.keyless (id) VALUES (0)", database="TestDB")
        server.agent.drain()
        first.wait(lambda records: len(records) > TABLES_COUNT)
    for file in ("offsets.dat", "history.dat"):
        shutil.copy(first.work / file, second.work / file)
    return [first, second]


def stopped(debezium: Debezium, counts: list[int]) -> list[tuple[Path, list[Record]]]:
    """Run a connector with stops; for each the path of its state without suffix, and all it had delivered."""
    work, file = debezium.work, debezium.work / "stopping.json"
    file.write_text(json.dumps(debezium.properties | {"offset.flush.interval.ms": "0"}))
    out = work / "delivered.jsonl"
    command = [sys.executable, "-m", "cdc_assets_tests.conformance.stopping", str(file), str(out), json.dumps(counts)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert lines.pop()["stopped"] in ("as told", "end of the log"), debezium.log_tail()
    found = [(work / str(number), work / f"{number}.count") for number in range(len(counts))]
    return [(path, lines[: int(count.read_text())]) for path, count in found if count.exists()]


@pytest.mark.parametrize("case", CASES)
def test_stopped_and_adopted(server: StandIn, tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    properties, workload = properties_of(server, CASES[case]), Workload(SEED)
    set_up(server, workload)
    reference, cut = begun(server, tmp_path, properties)
    work_on(server, workload)
    [(_, whole)] = stopped(reference, [10**9])
    rng = Rng(SEED)
    places = stopped(cut, sorted(rng.sample(range(1, len(whole)), POINTS)))
    folders = [Ours(folder(tmp_path, number), **adopted(properties, path)) for number, (path, _) in enumerate(places)]
    command = [sys.executable, "-m", "cdc_assets_tests.conformance.adopting", *(str(ours.path) for ours in folders)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = once([record for record in whole if is_data(record)])
    inside = 0
    for ours, (path, theirs) in zip(folders, places, strict=True):
        union = once([record for record in [*theirs, *ours.records(as_written=True)] if is_data(record)])
        report = compare(wanted, union, explained)
        assert not report.differences, f"{path}\n{report}"
        inside += is_inside(theirs, whole)
    with capsys.disabled():
        print(f"\n{case}, seed {SEED}: {len(places)} places, {inside} inside a transaction, {len(wanted)} records")  # noqa: T201 - the result
    assert inside


def folder(work: Path, number: int) -> Path:
    """A new folder."""
    path = work / f"ours-{number}"
    path.mkdir()
    return path


def adopted(properties: dict[str, str], state: Path) -> dict[str, str]:
    """Our properties: the connector's, with the files of its state."""
    return properties | {
        "offset.storage.file.filename": f"{state}.offsets",
        "schema.history.internal.file.filename": f"{state}.history",
    }


def is_inside(theirs: list[Record], whole: list[Record]) -> bool:
    """Whether a connector stopped inside a transaction."""
    last, following = (commit_of(records) for records in (theirs[::-1], whole[len(theirs) :]))
    return last is not None and last == following


def commit_of(records: list[Record]) -> str | None:
    """Commit LSN of the first change."""
    for record in records:
        source = (payload(record["value"]) or {}).get("source") or {}
        if is_data(record) and source.get("change_lsn"):
            return str(source["commit_lsn"])
    return None
