"""Writers that never pause, a capture and mirrors that die now and then, events dropped behind them: mirrors equal the server.

`CDC_SOAK_SECONDS` says for how long it is written; a few by default.
"""

import contextlib
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.assembly.retention import make_retention
from cdc_assets.capture.capture import Capture, RunOptions
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.steps import listening
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets_tests.crashes import PowerCutError, cut_after
from cdc_assets_tests.unit.retention.child import Later, retaining
from cdc_assets_tests.unit.streaming.child import DATABASE, run
from mssql_standin.control import StandIn

SECONDS = float(os.environ.get("CDC_SOAK_SECONDS", "4"))
MOMENTS = 10
COLUMNS = {"orders": "id, customer, total, placed, note", "lines": "id, line, quantity, sku"}
CREATE = (
    "CREATE TABLE dbo.orders (id int NOT NULL PRIMARY KEY, customer nvarchar(40), total decimal(12,2), "
    "placed datetime2(3), note nvarchar(max))",
    "CREATE TABLE dbo.lines (id int NOT NULL, line smallint NOT NULL, quantity int, sku varchar(20), PRIMARY KEY (id, line))",
)


@dataclass
class Moment:
    """Rows of the server right after a commit, by table."""

    lsn: Lsn
    rows: dict[str, list[str]]


class Writer:
    """Writes random transactions, and takes note of the rows at random moments."""

    def __init__(self, server: StandIn, seed: int) -> None:
        self._server, self._rng = server, random.Random(seed)  # noqa: S311 - a workload that can be repeated
        self.moments: list[Moment] = []

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return self._server.execute(statement, database=DATABASE)

    def write(self) -> int:
        """Write for a while; the number of transactions."""
        begun, transactions = time.monotonic(), 0
        wanted = sorted(self._rng.uniform(0, SECONDS) for _ in range(MOMENTS))
        while wanted or time.monotonic() < begun + SECONDS:
            self._transaction()
            transactions += 1
            if wanted and time.monotonic() - begun >= wanted[0]:
                wanted.pop(0)
                self._take_note()
        return transactions

    def _transaction(self) -> None:
        statements = [self._statement() for _ in range(self._rng.choice((1, 1, 2, 5)))]
        self.execute("BEGIN TRAN; " + "; ".join(statements) + "; COMMIT")
        self._server.agent.drain()

    def _statement(self) -> str:
        rng, number = self._rng, self._rng.randrange(300)
        return rng.choice(
            (
                f"IF NOT EXISTS (SELECT 1 FROM dbo.orders WHERE id = {number}) INSERT INTO dbo.orders VALUES ({number}, "
                f"N'c{rng.randrange(9)}', {rng.randrange(10**6)}.25, '2026-01-01T10:00:00.123', N'{'long ' * rng.randrange(40)}')",
                f"UPDATE dbo.orders SET total = {rng.randrange(10**6)}.75 WHERE id % 17 = {number % 17}",
                f"UPDATE dbo.orders SET note = NULL WHERE id = {number}",
                f"DELETE FROM dbo.orders WHERE id = {number}",
                f"IF NOT EXISTS (SELECT 1 FROM dbo.orders WHERE id = {number + 1000}) "
                f"UPDATE dbo.orders SET id = {number + 1000} WHERE id = {number}",
                f"IF NOT EXISTS (SELECT 1 FROM dbo.lines WHERE id = {number} AND line = 1) INSERT INTO dbo.lines VALUES "
                f"({number}, 1, {rng.randrange(9)}, 's{number}'), ({number}, 2, NULL, NULL)",
                f"UPDATE dbo.lines SET quantity = {rng.randrange(99)} WHERE id BETWEEN {number} AND {number + 20}",
                f"DELETE FROM dbo.lines WHERE line = 2 AND id = {number}",
            )
        )

    def _take_note(self) -> None:
        [(raw,)] = self.execute("SELECT MAX(start_lsn) FROM cdc.lsn_time_mapping")
        rows = {
            name: sorted(map(repr, self.execute(f"SELECT {columns} FROM dbo.{name}")))
            for name, columns in COLUMNS.items()
        }
        self.moments.append(Moment(Lsn(raw), rows))


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        for statement in CREATE:
            server.execute(statement, database=DATABASE)
        for name in COLUMNS:
            enable = (
                f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{name}', @role_name = NULL"
            )
            server.execute(enable, database=DATABASE)
        server.agent.drain()
        yield server


def follow(config: CaptureConfig, day: int, cut: int) -> None:
    """A run of the capture on a later day, and mirrors; they die at the n-th step from here on."""
    with listening(cut_after(cut)), contextlib.suppress(PowerCutError):
        with SqlServerSource(config.connection) as source:
            Capture(
                config,
                source,
                MssqlBulkSource(config.connection),
                LocalRunner(2),
                Later(day),
                RunOptions(retention=make_retention),
            ).stream()
        assert not CaptureMirrors(config, LocalRunner(2), SystemClock()).catch_up()


@pytest.mark.law
def test_mirrors_equal_the_server_at_random_moments(server: StandIn, tmp_path: Path) -> None:
    config = retaining(server.port, server.password, str(tmp_path / "lake"))
    streaming = replace(config.streaming, max_iteration_transactions=20, max_duration_s=1.0)
    config = replace(config, streaming=streaming)
    run(config, "snapshot")
    writer, rng = Writer(server, 7), random.Random(7)  # noqa: S311 - likewise
    day = 1
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(writer.write)
        while not writing.done():
            follow(config, day, rng.choice((0, rng.randrange(1, 40))))
            day += 1
    assert writing.result() >= MOMENTS
    for _ in range(2):
        day += 1
        follow(replace(config, streaming=replace(streaming, max_duration_s=0.0)), day, 0)
    mirrors = CaptureMirrors(config, LocalRunner(2), SystemClock())
    assert len(writer.moments) == MOMENTS
    for name, columns in COLUMNS.items():
        topic = f"shop.{DATABASE}.dbo.{name}"
        reader = MirrorReader(mirrors.tables, topic, mirrors.states()[topic].lsn)
        for moment in writer.moments:
            rows = reader.as_of(moment.lsn).select(columns.split(", ")).to_pylist()
            assert sorted(repr(tuple(row.values())) for row in rows) == moment.rows[name], f"{name} at {moment.lsn}"
        properties = DeltaTable(str(tmp_path / "lake" / topic)).metadata().configuration
        assert properties.get("cdc.completeAfter"), "old events were dropped meanwhile"
