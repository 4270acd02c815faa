"""A capture beside changing tables: it runs now and then, dies at a random step now and then, and what it claimed is noted."""

import contextlib
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.capture import Capture
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.steps import listening
from cdc_assets_tests.contract.changing import ChangingTables
from cdc_assets_tests.crashes import PowerCutError, cut_after
from cdc_assets_tests.unit.streaming.child import DATABASE, config_of
from cdc_assets_tests.unit.streaming.law import state_of
from mssql_standin.control import StandIn

STATEMENTS = ["work"] * 8 + ["add", "add", "drop", "rename", "retype", "retype", "loosen_or_tighten", "second_instance"]
STATEMENTS += ["second_instance", "drop_old_instance", "disable", "enable", "enable", "create_again"]
STATEMENTS += ["stream"] * 5 + ["cut"] * 2 + ["repair"] * 2
"""What a workload plays: statements of the tables, and what the capture does."""


class Follower:
    """The capture, and what it has claimed to hold: changes in (snapshot, position].

    Args:
        server: with the tables.
        folder: for the lake.
        seed: of the workload and of what is played.
    """

    def __init__(self, server: StandIn, folder: Path, seed: int) -> None:
        config = config_of(server.port, server.password, str(folder))
        self.config: CaptureConfig = replace(
            config, streaming=replace(config.streaming, idle_timeout_s=0.01, poll_interval_s=0.01)
        )
        self.tables = ChangingTables(server, seed)
        self._rng = random.Random(-1 - seed)  # noqa: S311 - a workload that can be repeated
        self.claims: dict[str, list[tuple[Lsn, Lsn]]] = {table.name: [] for table in self.tables.tables}
        self.stream(repair=True)

    @property
    def said(self) -> str:
        """All that was played."""
        return "\n".join(self.tables.said)

    def play(self, statements: Sequence[str], steps: int) -> None:
        """Play statements chosen at random; what this class does not do, the tables do."""
        for _ in range(steps):
            chosen = self._rng.choice(statements)
            if not hasattr(self, chosen):
                getattr(self.tables, chosen)()
            elif chosen.endswith("cut"):
                step = self._rng.randrange(1, 12)
                self.tables.said.append(f"-- {chosen} at step {step}")
                getattr(self, chosen)(step)
            else:
                self.tables.said.append(f"-- {chosen}")
                getattr(self, chosen)()
        self.tables.enable()
        self.tables.work()
        self.stream()
        self.repair()
        repaired = self.tables.newest()
        while self.tables.newest() == repaired:  # changes of columns that are not captured show nothing
            self.tables.work()
        self.stream()

    def repair(self) -> None:
        """Read again what has stopped, then stream."""
        self.stream(repair=True)

    def stream(self, *, repair: bool = False) -> None:
        """Stream; or first read again what has stopped."""
        with SqlServerSource(self.config.connection) as source:
            bulk = MssqlBulkSource(self.config.connection)
            capture = Capture(self.config, source, bulk, LocalRunner(2), SystemClock())
            captured = [table for table in self.tables.tables if table.instances]
            if repair:
                state = capture.state().tables
                own = [(table, TableId(DATABASE, "dbo", table.name)) for table in captured]
                broken = [(table, own) for table, own in own if own not in state or not state[own].streams]
                capture.snapshot([own for _, own in broken])
                for table, _ in broken:
                    self.tables.snapshotted(table)
            capture.stream()
        self._note()

    def cut(self, step: int) -> None:
        """Stream, and die at the n-th step if there are so many."""
        with listening(cut_after(step)), contextlib.suppress(PowerCutError):
            self.stream()

    def _note(self) -> None:
        """Take note of what the manifest claims."""
        for state in state_of(self.config).tables.values():
            claims = self.claims[state.table.table]
            if state.snapshot_lsn is None or state.position is None:
                continue
            if claims and claims[-1][0] == state.snapshot_lsn:
                claims[-1] = (state.snapshot_lsn, max(claims[-1][1], state.position))
            elif state.streams:
                claims.append((state.snapshot_lsn, state.position))


def same(found: Any, row: Any) -> bool:
    """Whether two values agree; a change of type in place also changes what was logged before it."""
    if isinstance(found, datetime) and type(row) is date:
        return found == datetime.combine(row, time())
    return bool(found == row) or (isinstance(found, str) and row is not None and found == str(row))
