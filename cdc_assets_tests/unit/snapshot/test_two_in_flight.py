"""Snapshots of two databases are in flight when a run dies: one that waits for a busy server, and one that reads."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.schema import TableSchema
from cdc_assets.core.signal import Signal
from cdc_assets.errors import ServerBusyError
from cdc_assets.lake.location import Location
from cdc_assets.signals.inbox import Inbox
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.simulation.server import LaggingServer
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import DATABASE, SimulatedBulk


class Bulk(SimulatedBulk):
    """There are no replicas."""

    def reaching(self, database: str, lsn: Lsn, *, captured: bool = True, left: Sequence[str] = ()) -> "Bulk":
        return self


class BusyServer(LaggingServer):
    """It is busy once for whoever asks for the structures of a table while `is_planned` says so."""

    @property
    def bulk(self) -> Bulk:
        return Bulk(self)

    def is_planned(self) -> bool:
        return False

    def table_schemas(self, tables: Sequence[TableId], known: Lsn = ZERO_LSN) -> Mapping[TableId, TableSchema]:
        if self.is_planned():
            self.is_planned = lambda: False  # type: ignore[method-assign]
            raise ServerBusyError("Transaction was deadlocked.")
        return super().table_schemas(tables, known)


@pytest.mark.parametrize("step", ["round-planned", "round-written", "table-committed"])
def test_the_one_with_rows_in_flight_is_finished_first(tmp_path: Path, step: str) -> None:
    server = BusyServer(names=(DATABASE, "Other"), is_prompt=True)
    tables = [server.create("lines", rows=2), server.create("others", rows=2, database="Other")]
    found = make_config(str(tmp_path / "lake"), max_retries=1, retry_wait_s=0.1)
    config = replace(found, connection=replace(found.connection, databases=(DATABASE, "Other")))
    make_capture(server, config).snapshot()
    asked = json.dumps({"type": "blocking", "data-collections": list(map(str, tables))})
    Inbox(Location.of(config.lake), "shop").put(Signal("s1", "execute-snapshot", asked))
    server.is_planned = lambda: DATABASE in state_of(config).snapshots  # type: ignore[method-assign]
    with cut_at(step), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    assert state_of(config).snapshots.keys() == {DATABASE, "Other"}
    make_capture(server, config).stream()
    assert not state_of(config).snapshots
    assert [[event.key for event in events_of(config, table)] for table in tables] == [[1, 2, 1, 2]] * 2
