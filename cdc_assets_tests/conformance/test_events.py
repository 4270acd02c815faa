"""Our events against the real connector's, field by field, over a seeded random workload.

Both capture the same stand-in at the same time. `CDC_CONFORMANCE_SEED` and
`CDC_CONFORMANCE_TRANSACTIONS` choose another workload or a longer one.
"""

import itertools
import os
from pathlib import Path

import pyodbc
import pytest

from cdc_assets_tests.conformance.compare import Report, compare, explained, reads
from cdc_assets_tests.conformance.side_by_side import settled, side_by_side
from cdc_assets_tests.conformance.workload import Workload
from mssql_standin.control import StandIn

SEED = int(os.environ.get("CDC_CONFORMANCE_SEED", "1"))
TRANSACTIONS = int(os.environ.get("CDC_CONFORMANCE_TRANSACTIONS", "2000"))

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(1200)]


TIME_MODES = ("adaptive", "adaptive_time_microseconds", "connect", "microseconds", "nanoseconds", "isostring")
DECIMAL_MODES = ("precise", "double", "string")
BINARY_MODES = ("bytes", "base64", "base64-url-safe", "hex")

CASES: dict[str, dict[str, str]] = {
    "default": {},
    "function": {"data.query.mode": "function"},
    "transactions": {"provide.transaction.metadata": "true"},
    "transactions-and-changed-keys": {
        "provide.transaction.metadata": "true",
        "message.key.columns": "dbo.two_keys:amount",
        "skipped.operations": "c",
    },
    **{
        f"{time_mode}-{decimal_mode}": {
            "time.precision.mode": time_mode,
            "decimal.handling.mode": decimal_mode,
            "binary.handling.mode": BINARY_MODES[place % 4],
        }
        for place, (time_mode, decimal_mode) in enumerate(itertools.product(TIME_MODES, DECIMAL_MODES))
    },
    "no-tombstones": {"tombstones.on.delete": "false"},
    "masks": {
        "column.exclude.list": "dbo\\.all_types\\.(c_date|c_xml),dbo\\.two_keys\\.note",
        "column.mask.with.6.chars": "dbo\\.all_types\\.c_varchar",
        "column.mask.hash.SHA-256.with.salt.CzQMA0cB5K": "dbo\\.all_types\\.c_nvarchar",
        "column.truncate.to.3.chars": "dbo\\.keyless\\.note",
        "column.propagate.source.type": "dbo\\.two_keys\\..*",
    },
    "keys-and-skips": {
        "message.key.columns": r"dbo.two_keys:amount;(.*)\.two_keys:b,nope;dbo.keyless:i.;dbo\.all_types:nope",
        "skipped.operations": "d",
        "skip.messages.without.change": "true",
    },
}


@pytest.mark.parametrize("case", CASES)
def test_events_are_equal(server: StandIn, tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = captured_by_both(server, tmp_path, CASES[case])
    with capsys.disabled():
        print(f"\n{case}, seed {SEED}, {TRANSACTIONS} transactions\n{report}")  # noqa: T201 - the table is the result
    assert not report.differences, str(report)


def captured_by_both(server: StandIn, work: Path, extra: dict[str, str]) -> Report:
    """Run the workload while both capture it, and compare."""
    connection = pyodbc.connect(server.connection_string("TestDB"), autocommit=True)
    workload = Workload(SEED)
    for statement in [*workload.setup(), *workload.transactions(TRANSACTIONS // 10)]:
        connection.execute(statement)
    properties = {
        "table.include.list": "dbo\\.(all_types|two_keys|keyless)",
        **extra,
    }
    rows = sum(len(keys) for keys in workload.rows.values())
    with side_by_side(server, work, **properties) as (debezium, ours):
        debezium.wait(lambda records: len(reads(records)) == rows)
        for statement in workload.transactions(TRANSACTIONS):
            connection.execute(statement)
        ours.catch_up()
        expected = ours.records()
        theirs = settled(debezium, len(expected))
    connection.close()
    return compare(theirs, expected, explained)
