"""Tables that are missing on one server, for a reason that another one gives: they are not gone.

A table is ahead of the others, and a secondary that lags has the log up to the watermark, not up to that table's position.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.streaming.planner import Planner
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer
from cdc_assets_tests.unit.streaming.tables import started, told


class TwoServers(SimulatedServer):
    """A primary, and the secondary that answers while it is chosen."""

    ahead: TableId
    middle: Lsn
    looks = 0
    is_lagging = False

    def max_captured_lsn(self, database: str) -> Lsn:
        return self.middle if self.is_lagging else self.captured

    def max_transaction_lsn(self, database: str, after: Lsn | None, limit: int, known: Lsn = ZERO_LSN) -> Lsn | None:
        newest = super().max_transaction_lsn(database, after, limit, known)
        return min(newest, self.middle) if newest is not None and (after or ZERO_LSN) < self.middle else newest

    def is_replica(self, database: str) -> bool:
        return self.is_lagging

    def without(self) -> Sequence[CaptureInstance]:
        return [instance for instance in self.instances if instance.table != self.ahead]


class HiddenOnPrimary(TwoServers):
    """The secondary shows a time before the table; the login may not see it on the primary."""

    def capture_instances(self, database: str, known: Lsn = ZERO_LSN) -> Sequence[CaptureInstance]:
        self.looks += 1
        self.is_lagging = self.looks == 1 and known <= self.middle
        return self.without()

    def hidden_sources(self, database: str) -> frozenset[int]:
        return frozenset() if self.is_lagging else frozenset({self.schemas[self.ahead].object_id})


class BeginningOnPrimary(TwoServers):
    """Its instance begins again on the primary; the secondary, whose turn is next, shows its predecessor."""

    def capture_instances(self, database: str, known: Lsn = ZERO_LSN) -> Sequence[CaptureInstance]:
        self.looks += 1
        self.is_lagging = self.looks == 2 and known <= self.middle
        if not self.is_lagging:
            return self.without() if self.looks <= 3 else list(self.instances)
        return [replace(one, source_object_id=1) if one.table == self.ahead else one for one in self.instances]

    def beginning_tables(self, database: str) -> frozenset[TableId]:
        return frozenset() if self.is_lagging else frozenset({self.ahead})


@pytest.mark.parametrize("kind", [HiddenOnPrimary, BeginningOnPrimary])
def test_a_table_is_gone_only_if_one_server_says_it_and_knows_no_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[TwoServers]
) -> None:
    server, config, lines, orders = started(tmp_path)
    server.commit((lines, "insert", 20, "b"))
    server.__class__, server.ahead, server.middle = kind, orders, server.captured
    server.commit((lines, "insert", 30, "b"))
    plan, moved = Planner.plan, list[str]()

    def ahead(planner: Planner, database: str):  # type: ignore[no-untyped-def]
        if not moved:  # as by a snapshot over the primary
            moved.append(database)
            server.looks = 0
            state = replace(planner._state.tables[orders], position=server.captured)
            planner._ledger.manifest.mark(planner._ledger.clock.now(), database, [state])
        return plan(planner, database)

    monkeypatch.setattr(Planner, "plan", ahead)
    make_capture(server, config).stream()
    assert ("DROP", "orders") not in told(config)
    assert state_of(config).tables[orders].object_id == server.schemas[orders].object_id
