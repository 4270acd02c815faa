"""The law of changing structures: a topic, decoded at any LSN, gives the rows that the server had at that LSN.

Random statements change data, columns, capture instances and whole tables, while a capture
runs now and then and dies at a random step now and then. Afterwards each topic is read as any reader would: events up to the LSN
in order, over all generations, from the last life of the table on (its DROP in the schema
history, or its gap). `CDC_SCHEMA_SEEDS` plays more workloads than the few of the default run.
"""

import contextlib
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.steps import listening
from cdc_assets.lake.evolution import meaning
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.state import TableState
from cdc_assets.run.capture import Capture
from cdc_assets.standin.control import StandIn
from cdc_assets_tests.contract.changing import ChangingTables, Moment, Row
from cdc_assets_tests.crashes import PowerCutError, cut_after
from cdc_assets_tests.unit.streaming.child import DATABASE, config_of
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from cdc_assets_tests.unit.streaming.law import state_of

SEEDS = range(int(os.environ.get("CDC_SCHEMA_SEEDS", "3")))
STEPS = 30
STATEMENTS = ["work"] * 8 + ["add", "add", "drop", "rename", "retype", "retype", "loosen_or_tighten", "second_instance"]
STATEMENTS += ["second_instance", "drop_old_instance", "disable", "enable", "enable", "create_again"]
STATEMENTS += ["stream"] * 5 + ["cut"] * 2 + ["mend"] * 2


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


class Reader:
    """The capture beside the workload, and what it has claimed to hold: changes in (snapshot, position].

    Args:
        config: of the capture.
        tables: the workload.
    """

    def __init__(self, config: CaptureConfig, tables: ChangingTables) -> None:
        self._config, self._tables = config, tables
        self.claims: dict[str, list[tuple[Lsn, Lsn]]] = {table.name: [] for table in tables.tables}

    def run(self, *, mend: bool = False) -> None:
        """Stream; or first read again what has stopped."""
        with SqlServerSource(self._config.connection) as source:
            bulk = MssqlBulkSource(self._config.connection)
            capture = Capture(self._config, source, bulk, LocalRunner(2), SystemClock())
            captured = [table for table in self._tables.tables if table.instances]
            if mend:
                state = capture.state().tables
                own = [(table, TableId(DATABASE, "dbo", table.name)) for table in captured]
                broken = [(table, own) for table, own in own if own not in state or not state[own].streams]
                capture.snapshot([own for _, own in broken])
                for table, _ in broken:
                    self._tables.snapshotted(table)
            capture.stream()
        self.look()

    def cut(self, step: int) -> None:
        """Stream, and die at the n-th step if there are so many."""
        with listening(cut_after(step)), contextlib.suppress(PowerCutError):
            self.run()

    def look(self) -> None:
        """Take note of what the manifest claims."""
        for state in state_of(self._config).tables.values():
            self._claim(state)

    def _claim(self, state: TableState) -> None:
        claims = self.claims[state.table.table]
        if state.snapshot_lsn is None or state.position is None:
            return
        if claims and claims[-1][0] == state.snapshot_lsn:
            claims[-1] = (state.snapshot_lsn, max(claims[-1][1], state.position))
        elif state.streams:
            claims.append((state.snapshot_lsn, state.position))


class Topic:
    """A topic, decoded.

    Args:
        config: of the capture.
        table: whose topic.
    """

    def __init__(self, config: CaptureConfig, table: TableId) -> None:
        tables = TopicTables(Location.of(config.lake), "reader")
        self.events: list[tuple[str, int, Row | None]] = []
        for directory in tables.generations(f"shop.{table}"):
            handle = tables.open(directory)
            assert handle is not None
            fields = {field.name: field for field in pa.schema(handle.schema().to_arrow()).field("value").type}
            row = {field.name: field for field in fields["after"].type}
            for event in handle.to_pyarrow_table().to_pylist():
                value = event["value"]
                if value is not None:
                    after = {name: plain(found, row[name]) for name, found in (value["after"] or {}).items()}
                    self.events.append((event["position"], event["key"]["id"], after or None))
        self.events.sort(key=lambda event: event[0])
        drops = [row for row in rows_of_topic(config, "shop.__schema_history") if row["type"] == "DROP"]
        self.starts = [Lsn.parse(str(row["commit_lsn"])) for row in drops if row["table"] == table.table]
        self.starts += [until for _, until in state_of(config).tables[table].gaps]

    def at(self, lsn: Lsn) -> dict[int, Row]:
        """The rows at an LSN."""
        start = max((start for start in self.starts if start <= lsn), default=ZERO_LSN)
        rows: dict[int, Row] = {}
        for position, key, after in self.events:
            place = Lsn.parse(position[:22])
            if start <= place <= lsn:
                if after is None:
                    rows.pop(key, None)
                else:
                    rows[key] = after
        return rows


def plain(value: Any, field: pa.Field) -> Any:
    """An event's value as Python has it, by the meaning that the lake's field declares."""
    match meaning(field).rpartition(".")[2]:
        case "Date" if value is not None:
            return date(1970, 1, 1) + timedelta(days=value)
        case "Timestamp" if value is not None:
            return moment(value * 1000)
        case "MicroTimestamp" if value is not None:
            return moment(value)
        case "NanoTimestamp" if value is not None:
            return moment(value // 1000)
    return value


def moment(micros: int) -> datetime:
    """Microseconds since 1970 without zone."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).replace(tzinfo=None)


def check(topic: Topic, moment: Moment, said: list[str]) -> None:
    """The decoded rows are the server's; a row that is older than a column's definition may differ in it."""
    found = topic.at(moment.lsn)
    about = f"at {moment.lsn}\n" + "\n".join(said)
    assert found.keys() == moment.rows.keys(), about
    for key, row in moment.rows.items():
        for name, since in moment.columns.items():
            if since is None or moment.touched.get(key, ZERO_LSN) > since:
                assert same(found[key].get(name), row[name]), (
                    f"{name} of {key}: {found[key].get(name)!r}, not {row[name]!r}, {about}"
                )


def same(event: Any, row: Any) -> bool:
    """Whether two values agree; a change of type in place also changes what was logged before it."""
    if isinstance(event, datetime) and type(row) is date:
        return event == datetime.combine(row, time())
    return bool(event == row) or (isinstance(event, str) and row is not None and event == str(row))


@pytest.mark.parametrize("seed", SEEDS)
def test_topics_hold_what_the_server_had(server: StandIn, tmp_path: Path, seed: int) -> None:
    config = config_of(server.port, server.password, str(tmp_path))
    config = replace(config, streaming=replace(config.streaming, idle_timeout_s=0.01, poll_interval_s=0.01))
    tables = ChangingTables(server, seed)
    reader = Reader(config, tables)
    reader.run(mend=True)
    rng = random.Random(-1 - seed)  # noqa: S311 - a workload that can be repeated
    for _ in range(STEPS):
        chosen = rng.choice(STATEMENTS)
        if chosen in ("stream", "mend"):
            tables.said.append(f"-- {chosen}")
            reader.run(mend=chosen == "mend")
        elif chosen == "cut":
            step = rng.randrange(1, 12)
            tables.said.append(f"-- stream, cut at step {step}")
            reader.cut(step)
        else:
            getattr(tables, chosen)()
    tables.enable()
    tables.work()
    reader.run()
    reader.run(mend=True)
    tables.work()
    reader.run()
    checked = 0
    for table in tables.tables:
        topic = Topic(config, TableId(DATABASE, "dbo", table.name))
        assert reader.claims[table.name][-1][1] >= tables.moments[table.name][-1].lsn, "\n".join(tables.said)
        for moment in tables.moments[table.name]:
            if any(start < moment.lsn <= end for start, end in reader.claims[table.name]):
                check(topic, moment, tables.said)
                checked += 1
    assert checked
