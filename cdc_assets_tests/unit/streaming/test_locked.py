"""A change table that another session locks for longer than a read waits: its table waits alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.errors import LockTimeoutError
from cdc_assets.lake.sink import DIRECT, Append
from cdc_assets_tests.crashes import PowerCutError
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer
from cdc_assets_tests.unit.streaming.tables import two_tables


def lock(server: SimulatedServer, instance: str) -> list[str]:
    """Have the next read of a change table wait in vain; returns what waited."""
    waited: list[str] = []

    def wait(statement: str) -> None:
        if f"[{instance}_CT]" in statement and not waited:
            waited.append(statement)
            raise LockTimeoutError("gave up waiting for a lock that another session holds")

    server.before_read = wait
    return waited


class DyingAtTheSecond:
    """A sink whose process dies before it commits to the second generation of a topic."""

    def write(self, append: Append) -> bool:
        if append.directory.endswith("@2"):
            raise PowerCutError
        return DIRECT.write(append)


@pytest.mark.parametrize("transactions", [False, True])
def test_a_locked_table_fails_alone_and_is_tried_again(tmp_path: Path, transactions: bool) -> None:
    server, config, lines, orders = two_tables(tmp_path, transaction_metadata=transactions)
    server.commit((orders, "insert", 10, "a"), (lines, "insert", 10, "a"))
    waited = lock(server, "dbo_orders")
    [trouble] = make_capture(server, config).stream().troubled
    assert (trouble.table, trouble.status, len(waited)) == (orders, "failed", 1)
    assert "gave up waiting for a lock" in trouble.reason
    assert "tried again by itself" in trouble.reason
    assert [event.key for event in events_of(config, lines) if event.op == "c"] == [10]
    assert make_capture(server, config).stream().troubled == ()
    assert [event.key for event in events_of(config, orders) if event.op == "c"] == [10]


def test_a_lock_is_waited_for_if_a_part_of_the_window_is_committed(tmp_path: Path) -> None:
    """No position is right for such a table, so it could not be tried again: the next run repeats the window."""
    server, config, _, orders = two_tables(tmp_path)
    server.commit((orders, "insert", 10, "old"))
    schema = server.schemas[orders]
    kept = [replace(column, type_name="bigint") if column.name == "id" else column for column in schema.columns]
    server.schemas[orders] = replace(schema, columns=tuple(kept))
    second = server.enable(orders)
    server.commit((orders, "insert", 11, "new"))
    with pytest.raises(PowerCutError):
        make_capture(server, config, sink=DyingAtTheSecond()).stream()
    lock(server, second.name)
    with pytest.raises(LockTimeoutError):
        make_capture(server, config).stream()
    assert state_of(config).tables[orders].status == "healthy"
    assert make_capture(server, config).stream().troubled == ()
    assert [event.key for event in events_of(config, orders)][-2:] == [10, 11]
