"""Incremental snapshots of the real connector and of ours, beside the same seeded workload and by the same signal.

When a chunk is read, and so which rows had changed by then, differs from run to run. What must agree: streamed events;
READs of rows that nobody changed, one each and equal but for their place in the log; and of the others, in both, that a
READ is the row as the events before it left it.
"""

import json
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyodbc
import pytest

from cdc_assets_tests.conformance.compare import Record, by_topic, compare, explained, is_read, streamed
from cdc_assets_tests.conformance.debezium import payload
from cdc_assets_tests.conformance.side_by_side import settled, side_by_side
from cdc_assets_tests.conformance.workload import Workload
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

SEED = int(os.environ.get("CDC_CONFORMANCE_SEED", "1"))
TRANSACTIONS = (
    int(os.environ.get("CDC_CONFORMANCE_TRANSACTIONS", "1500")) // 25
)  # few, so that some rows stay as they are
SIGNALS = [
    "CREATE TABLE dbo.cdc_signal (id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048) NULL)",
    "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'cdc_signal', @role_name = NULL",
]
ASK = json.dumps({"data-collections": ["TestDB.dbo.(all_types|two_keys|keyless)"]})
PLACE = {"payload.source.change_lsn", "payload.source.event_serial_no"}


def test_incremental_snapshots_are_equal(server: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    connection = pyodbc.connect(server.connection_string("TestDB"), autocommit=True)
    workload = Workload(SEED)
    for statement in [*workload.setup(), *SIGNALS, *workload.transactions(200)]:
        connection.execute(statement)
    properties = {
        "table.include.list": "dbo\\.(all_types|two_keys|keyless)",
        "signal.data.collection": "TestDB.dbo.cdc_signal",
        "incremental.snapshot.chunk.size": "10",
    }
    rows = {name: len(keys) for name, keys in workload.rows.items()}
    with side_by_side(server, tmp_path, **properties) as (debezium, ours):
        debezium.wait(lambda records: sum(map(is_read, records)) == sum(rows.values()))
        connection.execute(f"INSERT INTO dbo.cdc_signal VALUES ('again', 'execute-snapshot', '{ASK}')")
        follower = threading.Thread(target=ours.catch_up, args=("TestDB.dbo.keyless",))
        follower.start()
        for statement in workload.transactions(TRANSACTIONS):
            connection.execute(statement)
        follower.join()
        ours.catch_up()
        own = of_tables(ours.records())
        theirs = of_tables(settled(debezium, len(ours.records())))
    connection.close()

    report = compare(comparable(theirs, own), comparable(own, theirs), explained_place)
    with capsys.disabled():
        print(f"\nseed {SEED}, {TRANSACTIONS} transactions, {count(theirs)} and {count(own)} READs\n{report}")  # noqa: T201
    assert not report.differences, str(report)
    for records in (theirs, own):
        assert not [record for record in records if record["topic"].endswith(".keyless") and again(record)]
        obey_the_law(records)
    assert final(theirs) == final(own)


def of_tables(records: list[Record]) -> list[Record]:
    """Records of the workload's tables."""
    return [record for record in records if record["topic"].endswith((".all_types", ".two_keys", ".keyless"))]


def again(record: Record) -> bool:
    """Whether it is a READ of the incremental snapshot."""
    return is_read(record) and payload(record["value"])["source"]["snapshot"] == "incremental"


def count(records: list[Record]) -> int:
    return sum(map(again, records))


def row(record: Record) -> str:
    """Topic and key."""
    return record["topic"] + json.dumps(payload(record["key"]))


def comparable(records: list[Record], others: list[Record]) -> list[Record]:
    """Streamed events, and incremental READs of rows that no event of either side is about."""
    changed = {row(record) for record in streamed(records + others)}
    quiet = [record for record in records if again(record) and row(record) not in changed]
    assert set(Counter(map(row, quiet)).values()) <= {1}
    return [*quiet, *streamed(records)]


def explained_place(path: str, theirs: Any, ours: Any) -> str | None:
    """A READ's place in the log is that of the reader when it emitted it."""
    if (path == "payload.source.commit_lsn" and theirs and ours) or (path in PLACE and ours is None):
        return "place in the log of an incremental READ"
    return explained(path, theirs, ours)


def logged(after: dict[str, Any]) -> dict[str, Any]:
    """The columns that the log always holds."""
    return {name: value for name, value in after.items() if not name.endswith(("_max", "_xml"))}


def obey_the_law(records: list[Record]) -> None:
    """A READ holds the row as the events before it left it."""
    for topic, own in by_topic(records).items():
        state: dict[str, Any] = {}
        for record in own:
            if record["value"] is None or record["key"] is None:
                continue
            key, after = row(record), payload(record["value"])["after"]
            if again(record) and key in state:
                known = logged(after)
                assert state[key] is not None, f"{topic}: READ {key} behind its deletion"
                assert known == {name: state[key][name] for name in known}, f"{topic}: READ {key} is not the row"
            state[key] = after


def final(records: list[Record]) -> dict[str, Any]:
    """Rows by topic and key in the end, as far as the log always holds them."""
    state: dict[str, Any] = {}
    for record in records:
        if record["value"] is not None and record["key"] is not None:
            after = payload(record["value"])["after"]
            state[row(record)] = after and logged(after)
    return {key: after for key, after in state.items() if after is not None}
