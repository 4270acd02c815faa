"""The law: a transaction that is cut into slices, wherever, gives the events that it gives uncut, in order.

`CDC_LAW_EXAMPLES` sets how many random backlogs are tried.
"""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc_assets.config.settings import EventSettings
from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.envelope.plan import ConnectorIdentity, plan_events
from cdc_assets.lake.system_topics import transaction_topic
from cdc_assets.ledger.state import TableRead, Window
from cdc_assets.streaming.tasks import PlannedRead, SliceTask, run_slice
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.simulation import Change, SimulatedServer, plain_schema

EXAMPLES = int(os.environ.get("CDC_LAW_EXAMPLES", "6"))

Step = tuple[int, str, bool, bool]
"""Table, kind of change, whether it is of the command before, whether its change LSN is that of the change before."""

STEP = st.tuples(
    st.integers(0, 1), st.sampled_from(["insert", "delete", "update", "same", "key"]), st.booleans(), st.booleans()
)


def backlog(transactions: Sequence[Sequence[Step]]) -> SimulatedServer:
    """A server whose two change tables hold these changes."""
    server = SimulatedServer(batch_rows=2)
    for name in ("lines", "orders"):
        server.create(name)
    for steps in transactions:
        lsn, command, change = server.tick(), 1, 0
        server.transactions.append(lsn)
        server.captured = lsn
        for number, (owner, kind, same_command, same_change) in enumerate(steps):
            change += 1
            instance = server.instances[owner]
            if not same_command:
                command += 1
                change -= same_change  # ties of change LSNs of different commands are legal
            seqval = Lsn.from_int(int(lsn) + 0x100 + change)
            old, new = {"id": number, "note": "old"}, {"id": number, "note": "new"}
            rows = {
                "insert": [(2, new)],
                "delete": [(1, old)],
                "update": [(3, old), (4, new)],
                "same": [(3, old), (4, old)],
                "key": [(3, old), (4, {"id": number + 1000, "note": "new"})],
            }[kind]
            server.change_tables[instance.name] += [
                Change(instance.table, lsn, command, seqval, operation, row) for operation, row in rows
            ]
    return server


@dataclass(frozen=True)
class Found:
    """What slices wrote."""

    tables: list[list[dict[str, Any]]]
    transactions: list[dict[str, Any]]


def read(server: SimulatedServer, cuts: Sequence[Position], bounds: Sequence[Lsn], **events: Any) -> Found:
    """The events of all transactions, with these slices, in the order in which they were written."""
    until = server.transactions[-1]
    after = Lsn.from_int(int(server.transactions[0]) - 1)
    with tempfile.TemporaryDirectory() as path:
        config = make_config(path, transaction_metadata=True, **events)
        made = make_capture(server, config)._activities.windows.tasks
        reads = tuple(
            TableRead(one.table, one.name, after, until, made=one.created, change_table_id=one.change_table_id)
            for one in server.instances
        )
        window = Window(1, "stream", "SalesDb", after, until, tuple(bounds), reads, (), tuple(cuts))
        window = replace(window, transactions=transaction_topic(config.events))
        tasks = made.of(window, [planned(own, config.events) for own in reads], "x", 0)
        tables: dict[str, list[dict[str, Any]]] = {str(own.table): [] for own in reads}
        transactions: list[dict[str, Any]] = []
        for task in tasks:
            result = run_slice(task)
            assert not result.failed
            for written in result.written:
                for file in written.files:
                    tables[str(written.table)] += rows_of(task, written.directory, file.path)
            for file in result.transactions:
                transactions += rows_of(task, task.transactions.directory, file.path)  # type: ignore[union-attr]
    return Found(list(tables.values()), transactions)


def planned(own: TableRead, settings: EventSettings) -> PlannedRead:
    schema = plain_schema(own.table.table, 1)
    plan = plan_events(schema, ("id", "note"), settings, connector=ConnectorIdentity())
    return PlannedRead(own, plan, plan.topic)


def rows_of(task: SliceTask, directory: str, path: str) -> list[dict[str, Any]]:
    table: pa.Table = pq.read_table(f"{task.location.uri(directory)}/{path}")
    rows = table.to_pylist()
    for row in rows:
        for clock in ("ts_ms", "ts_us", "ts_ns"):
            if row["value"] and "source" in row["value"]:
                row["value"].pop(clock, None)
    return rows


@pytest.mark.law
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.lists(STEP, min_size=1, max_size=7), min_size=1, max_size=3), st.booleans(), st.booleans(), st.data()
)
def test_cut_at_every_place_and_at_some(
    transactions: list[list[Step]], skip_unchanged: bool, skip_deletes: bool, data: st.DataObject
) -> None:
    server = backlog(transactions)
    chosen = {"skip_unchanged": skip_unchanged, "skipped_operations": frozenset("d" if skip_deletes else "")}
    until = [server.transactions[-1]]
    uncut = read(server, [], until, **chosen)
    places = sorted(
        {Position(c.lsn, c.command, c.seqval, 4) for changes in server.change_tables.values() for c in changes}, key=str
    )
    some = data.draw(st.lists(st.sampled_from(places), unique=True))
    bounds = data.draw(st.lists(st.sampled_from(server.transactions), unique=True))
    assert read(server, places, sorted({*bounds, *until}), **chosen) == uncut
    assert read(server, sorted(some, key=str), sorted({*bounds, *until}), **chosen) == uncut


def test_each_single_cut() -> None:
    steps: list[Step] = [(0, "update", False, False), (1, "key", True, False), (0, "delete", False, False)]
    steps += [(0, "insert", False, True), (1, "update", True, False), (0, "same", False, True)]
    server = backlog([steps])
    uncut = read(server, [], server.transactions[-1:])
    assert [row["value"]["status"] for row in uncut.transactions] == ["BEGIN", "END"]
    assert uncut.transactions[1]["value"]["event_count"] == 7
    for changes in server.change_tables.values():
        for change in changes:
            cut = Position(change.lsn, change.command, change.seqval, 4)
            assert read(server, [cut], server.transactions[-1:]) == uncut
