"""Two captured tables that the simulated server has, and what runs of their capture leave."""

import contextlib
from pathlib import Path

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.errors import QueryError
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from cdc_assets_tests.unit.streaming.prepared import Prepared, moved
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer

HAND_OVER = ["window-planned", "history-recorded", "history-written", "files-written", "table-committed"]
"""Steps that a window with a hand-over comes by, before it is complete."""


def two_tables(path: Path, **changes: object):  # type: ignore[no-untyped-def]
    """A server with two captured tables, snapshotted."""
    return _copied(SNAPSHOTTED, path, changes) or two_new_tables(path, **changes)


def started(path: Path, **changes: object):  # type: ignore[no-untyped-def]
    """A server with two captured tables, snapshotted, and streamed once."""
    return _copied(STARTED, path, changes) or _started(path, **changes)


def two_new_tables(path: Path, **changes: object) -> tuple[SimulatedServer, CaptureConfig, TableId, TableId]:
    """The same, but no copy: for tests of how old something is."""
    server = SimulatedServer()
    lines, orders = server.create("lines", rows=3), server.create("orders", rows=3)
    server.idle_tick()
    config = make_config(str(path), **changes)
    make_capture(server, config).snapshot()
    return server, config, lines, orders


def _started(path: Path, **changes: object) -> tuple[SimulatedServer, CaptureConfig, TableId, TableId]:
    server, config, lines, orders = two_new_tables(path, **changes)
    server.commit((lines, "insert", 10, "a"), (orders, "insert", 10, "a"))
    make_capture(server, config).stream()
    return server, config, lines, orders


SNAPSHOTTED, STARTED = Prepared(two_new_tables), Prepared(_started)


def _copied(
    prepared: Prepared[tuple[SimulatedServer, CaptureConfig, TableId, TableId]], path: Path, changes: object
) -> tuple[SimulatedServer, CaptureConfig, TableId, TableId] | None:
    """A copy of what was prepared, if nothing about it is to be different."""
    if changes or (found := prepared.copied(path)) is None:
        return None
    server, config, lines, orders = found
    return server, moved(config, path), lines, orders


def told(config: object) -> list[tuple[str, str]]:
    """Public schema change events in position order: type and table."""
    rows = sorted(rows_of_topic(config, "shop"), key=lambda row: str(row["position"]))  # type: ignore[arg-type]
    changes = [row["value"]["tableChanges"][0] for row in rows]  # type: ignore[index]
    return [(change["type"], change["id"].split(".")[-1].strip('"')) for change in changes]


def stream_until(server: SimulatedServer, config: object, step: str) -> None:
    """A run that dies when it reaches a step, if it does."""
    with cut_at(step), contextlib.suppress(PowerCutError):
        make_capture(server, config).stream()  # type: ignore[arg-type]


def refusing(server: SimulatedServer, table: TableId):  # type: ignore[no-untyped-def]
    """A catalogue that shows one table less."""
    shown = server.table_schema

    def schema(asked: TableId, known: Lsn = ZERO_LSN) -> object:
        if asked == table:
            raise QueryError("The SELECT permission was denied.", 229)
        return shown(asked, known)

    return schema
