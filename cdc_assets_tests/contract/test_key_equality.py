"""Keys of mirrors against the server's own `=`: over every type that may be in a key, in values that differ as little as can be.

A key is in a table once, so a table takes exactly the values that the server tells apart. The mirror must have as many rows, and each
later change must find its own.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import TimeMode
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets_tests.unit.mirror.child import mirrors_of
from cdc_assets_tests.unit.streaming.child import DATABASE, config_of, run
from mssql_standin.control import StandIn
from mssql_standin.errors import SqlError

MOMENTS = [f"'2026-01-02T03:04:05.123456{digit}'" for digit in range(4)] + ["'1969-12-31T23:59:59.9999999'"]
TEXTS = ["N'a'", "N'A'", "N'a '", "N' a'", "N'aA'", "N'ä'", "N'Ä'", "N'ß'", "N'ss'", "N'I'", "N'i'", "N''", "N' '"]
OFFSETS = [
    f"'2026-01-02 {hour:02d}:04:05.123456{digit} {zone}'"
    for digit in (7, 8)
    for hour, zone in ((3, "+00:00"), (5, "+02:00"), (3, "+02:00"), (0, "-03:00"))
]
VALUES = {
    "bit": ["0", "1"],
    "tinyint": ["0", "1", "255"],
    "smallint": ["-1", "0", "32767", "32766"],
    "int": ["-1", "0", "2147483647", "2147483646"],
    "bigint": ["9223372036854775807", "9223372036854775806", "-9223372036854775808"],
    "decimal(38,10)": ["1234567890123456789012345678.0000000001", "1234567890123456789012345678.0000000002", "0"],
    "money": ["922337203685477.5807", "922337203685477.5806", "-0.0001"],
    "smallmoney": ["214748.3647", "214748.3646"],
    "float": ["0", "-0e0", "1e0", "1.0000000000000002e0", "1e-300"],
    "real": ["0", "-0e0", "1e0", "1.0000001e0"],
    "date": ["'0001-01-01'", "'9999-12-31'", "'9999-12-30'"],
    "time(7)": ["'03:04:05.1234567'", "'03:04:05.1234568'"],
    "time(0)": ["'03:04:05'", "'03:04:06'"],
    "datetime": ["'2026-01-02T03:04:05.123'", "'2026-01-02T03:04:05.127'"],
    "smalldatetime": ["'2026-01-02T03:04:00'", "'2026-01-02T03:05:00'"],
    "datetime2(6)": ["'2026-01-02T03:04:05.123456'", "'2026-01-02T03:04:05.123457'", "'9999-12-31'"],
    "datetime2(7)": MOMENTS,
    "datetimeoffset(7)": OFFSETS,
    "datetimeoffset(3)": ["'2026-01-02 03:04:05.123 +00:00'", "'2026-01-02 05:04:05.123 +02:00'", "'2026-01-02 03:04:05.124 +00:00'"],
    "char(4)": ["'a'", "'a '", "'b'"],
    "varchar(20) COLLATE Latin1_General_BIN2": ["'a'", "'A'", "'a '"],
    "nchar(4)": ["N'a'", "N'a '", "N'ж'"],
    "nvarchar(20) COLLATE Latin1_General_100_CI_AS": TEXTS,
    "nvarchar(20) COLLATE Latin1_General_100_CS_AS": TEXTS,
    "nvarchar(20) COLLATE Danish_Norwegian_CI_AS": ["N'aa'", "N'aA'", "N'å'"],
    "binary(2)": ["0x01", "0x0100", "0x0001"],
    "varbinary(4)": ["0x01", "0x0100", "0x010000", "0x", "0x00", "0x0002"],
    "uniqueidentifier": ["'11111111-2222-3333-4444-555555555555'", "'11111111-2222-3333-4444-555555555556'"],
}  # fmt: skip


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        for number, (kind, values) in enumerate(VALUES.items()):
            execute(server, f"CREATE TABLE dbo.t{number} (k {kind} NOT NULL PRIMARY KEY, note int)")
            enable = f"@source_schema = N'dbo', @source_name = N't{number}', @role_name = NULL"
            execute(server, f"EXEC sys.sp_cdc_enable_table {enable}")
            insert(server, number, values[: -(-len(values) // 2)])
        server.agent.drain()
        yield server


def execute(server: StandIn, statement: str) -> list[tuple[Any, ...]]:
    return server.execute(statement, database=DATABASE)


def insert(server: StandIn, number: int, values: list[str]) -> None:
    """Insert the values that the table has not got yet."""
    for at, value in enumerate(values):
        try:
            execute(server, f"INSERT INTO dbo.t{number} VALUES ({value}, {at})")
        except SqlError as error:
            if error.number != 2627:  # the table has it
                raise


def on_server(server: StandIn, number: int) -> list[int]:
    return sorted(note for (note,) in execute(server, f"SELECT note FROM dbo.t{number}"))


def mirrored(lake: str, number: int) -> list[int]:
    reader = MirrorReader(mirrors_of(lake).tables, f"shop.{DATABASE}.dbo.t{number}")
    return sorted(reader.current()["note"].to_pylist())


@pytest.mark.long
@pytest.mark.parametrize("mode", ["adaptive", "isostring"])
def test_a_mirror_has_the_rows_that_the_server_tells_apart(server: StandIn, tmp_path: Path, mode: TimeMode) -> None:
    lake = str(tmp_path / "lake")
    config = config_of(server.port, server.password, lake)
    config = replace(config, events=replace(config.events, time_mode=mode))
    config = replace(config, streaming=replace(config.streaming, max_iteration_transactions=0))
    run(config, "snapshot")
    for turn in range(3):
        if turn:
            for number, (kind, values) in enumerate(VALUES.items()):
                insert(server, number, values)
                key = f"CAST({values[-turn]} AS {kind.partition(' COLLATE')[0]})"
                execute(server, f"UPDATE dbo.t{number} SET note = {100 * turn} + note WHERE k = {key}")
                if turn == 2:
                    execute(server, f"DELETE FROM dbo.t{number} WHERE k = {values[0]}")
            server.agent.drain()
            run(config, "stream")
        assert not CaptureMirrors(config, LocalRunner(2), SystemClock()).catch_up()
        wrong = {
            kind: (mirrored(lake, number), on_server(server, number))
            for number, kind in enumerate(VALUES)
            if mirrored(lake, number) != on_server(server, number)
        }
        assert not wrong, f"turn {turn}"
