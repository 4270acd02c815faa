"""Defaults of columns, types of the source in schemas, and heartbeats, against the real connector.

The table has a default of each kind that the server's catalogue shows, on columns that are NULL and that are not: schemas name the default,
converters write it in place of null, structures on the topic `<prefix>` have it as the server prints it.
"""

from pathlib import Path
from typing import Any

import pyodbc
import pytest

from cdc_assets_tests.conformance.changes import by_table, is_change, schemas_explained
from cdc_assets_tests.conformance.compare import Record, Report, compare, explained, reads
from cdc_assets_tests.conformance.debezium import payload
from cdc_assets_tests.conformance.side_by_side import settled, side_by_side
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

DEFAULTS = {
    "bit": ("bit", "1"),
    "bit_0": ("bit", "0"),
    "tiny": ("tinyint", "7"),
    "small": ("smallint", "-7"),
    "whole": ("int", "42"),
    "big": ("bigint", "3147483648"),
    "real_1": ("real", "1.5"),
    "float_1": ("float", "1.5e3"),
    "float_2": ("float", "-2"),
    "dec": ("decimal(9,3)", "-2.5"),
    "dec_0": ("decimal(18,0)", "12"),
    "num": ("numeric(38,10)", "1234567890.0123456789"),
    "cash": ("money", "3"),
    "change": ("smallmoney", "1.25"),
    "ch": ("char(5)", "'ab'"),
    "vc": ("varchar(20)", "'new'"),
    "nvc": ("nvarchar(20)", "N'é new'"),
    "blank": ("varchar(20)", "''"),
    "v_max": ("varchar(max)", "'long'"),
    "bin": ("binary(4)", "0x0102"),
    "vb": ("varbinary(10)", "0x010203"),
    "day": ("date", "'2020-01-02'"),
    "t0": ("time(0)", "'03:04:05'"),
    "t3": ("time(3)", "'03:04:05.123'"),
    "t7": ("time(7)", "'03:04:05.1234567'"),
    "dt": ("datetime", "'2020-01-02 03:04:05'"),
    "sdt": ("smalldatetime", "'2020-01-02 03:04'"),
    "d23": ("datetime2(3)", "'2020-01-02 03:04:05.123'"),
    "d27": ("datetime2(7)", "'2020-01-02 03:04:05.1234567'"),
    "dto": ("datetimeoffset(7)", "'2020-01-02 03:04:05.1234567 +02:00'"),
    "guid": ("uniqueidentifier", "'0E984725-C51C-4BF4-9960-E1C80E27ABA0'"),
    "none": ("int", "NULL"),
    "clock": ("datetime", "getdate()"),
    "sum": ("int", "1 + 1"),
}
CASES: dict[str, dict[str, str]] = {
    "default": {},
    "source types": {"datatype.propagate.source.type": ".+"},
    "some source types": {
        "datatype.propagate.source.type": r".+\.DATETIME2,.+\.NVARCHAR,TestDB\.DECIMAL,(.*)MONEY",
        "column.propagate.source.type": r"dbo\.defaults\.(dec|vc|d27|n_.*)",
        "time.precision.mode": "nanoseconds",
    },
    "texts": {
        "time.precision.mode": "isostring",
        "decimal.handling.mode": "string",
        "binary.handling.mode": "hex",
        "datatype.propagate.source.type": ".+",
    },
    "connect": {
        "time.precision.mode": "connect",
        "decimal.handling.mode": "double",
        "binary.handling.mode": "base64",
        "provide.transaction.metadata": "true",
    },
    "microseconds": {
        "time.precision.mode": "microseconds",
        "binary.handling.mode": "base64-url-safe",
        "include.schema.comments": "true",
    },
}


def table() -> str:
    """CREATE TABLE with each default twice."""
    columns = ["id int NOT NULL PRIMARY KEY"]
    for name, (kind, default) in DEFAULTS.items():
        columns.append(f"{name} {kind} NULL DEFAULT {default}")
        if default != "NULL":
            columns.append(f"n_{name} {kind} NOT NULL DEFAULT {default}")
    return f"CREATE TABLE dbo.defaults ({', '.join(columns)})"


def filled(connection: pyodbc.Connection, key: int) -> None:
    """A row of defaults, one of NULLs, and one that gets NULLs."""
    connection.execute(f"INSERT INTO dbo.defaults (id) VALUES ({key}), ({key + 2})")
    nulls = ", ".join(DEFAULTS)
    connection.execute(
        f"INSERT INTO dbo.defaults (id, {nulls}) VALUES ({key + 1}, {', '.join('NULL' for _ in DEFAULTS)})"
    )
    connection.execute(
        f"UPDATE dbo.defaults SET {', '.join(f'{name} = NULL' for name in DEFAULTS)} WHERE id = {key + 2}"
    )
    connection.execute(f"DELETE FROM dbo.defaults WHERE id = {key}")


def begun(server: StandIn) -> pyodbc.Connection:
    connection = pyodbc.connect(server.connection_string("TestDB"), autocommit=True)
    connection.execute(table())
    connection.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'defaults', @role_name = NULL"
    )
    filled(connection, 0)
    server.agent.drain()
    return connection


def altered(server: StandIn, connection: pyodbc.Connection) -> None:
    """Columns with defaults that come later."""
    connection.execute(
        "ALTER TABLE dbo.defaults ADD later nvarchar(9) NOT NULL DEFAULT N'x', last_one decimal(9, 2) DEFAULT 1.5"
    )
    connection.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'defaults', @role_name = NULL, "
        "@capture_instance = N'defaults_2'"
    )
    server.agent.drain()


def values_explained(path: str, theirs: Any, ours: Any) -> str | None:
    """As for all events; their converter writes the default in place of the null."""
    return explained(path, None if path.endswith(".n_v_max") else theirs, ours)


def split(records: list[Record]) -> tuple[list[Record], list[Record]]:
    """Schema change events, and the others."""
    return by_table(records), [record for record in records if not is_change(record)]


def by_both(server: StandIn, work: Path, extra: dict[str, str]) -> tuple[Report, Report]:
    connection = begun(server)
    with side_by_side(server, work, **{"table.include.list": r"dbo\.defaults", **extra}) as (debezium, ours):
        debezium.wait(lambda records: len(reads(records)) == 2)
        filled(connection, 10)
        altered(server, connection)
        filled(connection, 20)
        server.agent.drain()
        ours.catch_up()
        expected = ours.records(as_written=True)
        theirs = settled(debezium, len(expected))
    connection.close()
    (changes, events), (own_changes, own_events) = split(theirs), split(expected)
    return compare(changes, own_changes, schemas_explained), compare(events, own_events, values_explained)


@pytest.mark.parametrize("case", CASES)
def test_defaults_and_source_types(
    server: StandIn, tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, events = by_both(server, tmp_path, CASES[case])
    with capsys.disabled():
        print(f"\n{case}\n{changes}\n{events}")  # noqa: T201 - the table is the result
    assert not changes.differences, str(changes)
    assert not events.differences, str(events)


def test_heartbeats(server: StandIn, tmp_path: Path) -> None:
    """Their number differs; each says when it was written, by the same key and schemas."""
    connection = begun(server)
    with side_by_side(server, tmp_path, **{"heartbeat.interval.ms": "1", "topic.heartbeat.prefix": "beat"}) as (
        debezium,
        ours,
    ):
        debezium.wait(lambda records: len(reads(records)) == 2)
        filled(connection, 10)
        server.agent.drain()
        ours.catch_up()

        def beats(records: list[Record]) -> list[Record]:
            return [record for record in records if record["topic"].startswith("beat")]

        theirs, own = debezium.wait(lambda records: bool(beats(records))), ours.records()
    connection.close()

    def form(record: Record) -> Any:
        times = dict.fromkeys(payload(record["value"]), 0)
        return record | {"value": record["value"] | {"payload": times}}

    assert form(beats(own)[0]) == form(beats(theirs)[0])


def test_markers_of_small_tables(server: StandIn, tmp_path: Path) -> None:
    """A row may be the first and the last of its table, and of all."""
    rows = {"a_one": 1, "b_two": 2, "c_three": 3, "d_one": 1}
    connection = pyodbc.connect(server.connection_string("TestDB"), autocommit=True)
    for name, count in rows.items():
        connection.execute(f"CREATE TABLE dbo.{name} (id int NOT NULL PRIMARY KEY)")
        connection.execute(
            f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{name}', @role_name = NULL"
        )
        connection.execute(f"INSERT INTO dbo.{name} VALUES {', '.join(f'({number})' for number in range(count))}")
    connection.close()
    server.agent.drain()

    def markers(records: list[Record]) -> dict[str, list[str]]:
        found = {name: [record for record in reads(records) if record["topic"].endswith(name)] for name in rows}
        return {name: [payload(one["value"])["source"]["snapshot"] for one in some] for name, some in found.items()}

    with side_by_side(server, tmp_path, **{"table.include.list": r"dbo\..*"}) as (debezium, ours):
        theirs = debezium.wait(lambda records: len(reads(records)) == sum(rows.values()))
        own = ours.records()
    assert markers(own) == markers(theirs)
