"""Mirrors of two databases of one capture: what one of them has in flight makes those of the other skip nothing."""

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.steps import listening
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets_tests.contract.two import HERE, THERE, Two, snapshot
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.law import state_of


def mirrored(two: Two) -> CaptureMirrors:
    mirrors = CaptureMirrors(two.config, LocalRunner(2), SystemClock())
    assert not mirrors.catch_up()
    return mirrors


def is_equal(two: Two, table: TableId) -> bool:
    rows = MirrorReader(mirrored(two).tables, f"shop.{table}").current().to_pylist()
    on_server = two.server.execute("SELECT id FROM dbo.orders", database=table.database)
    return sorted(row["id"] for row in rows) == sorted(key for (key,) in on_server)


@pytest.mark.long
def test_a_window_that_is_given_up_for_one_database_while_the_others_is_in_flight(two: Two) -> None:
    mirrored(two)
    two.insert(THERE)
    two.insert(THERE, HERE)
    with pytest.raises(PowerCutError), cut_at("table-committed", 2):
        two.run()
    two.offline()
    seen = list[int]()

    def beside(step: str) -> None:
        state = state_of(two.config)
        if step == "window-complete" and state.pending:
            seen.append(state.complete_window)
            mirrored(two)

    with listening(beside):
        two.run()
    assert seen
    two.online()
    two.insert(THERE)
    two.run()
    assert is_equal(two, HERE)
    assert is_equal(two, THERE)


def test_numbers_of_one_database_wait_for_no_other(two: Two) -> None:
    """A snapshot that was planned and cannot begin holds its own database's numbers back, for hours if need be."""
    with pytest.raises(PowerCutError), cut_at("snapshot-planned"):
        snapshot(two, HERE)
    state = state_of(two.config)
    [database] = state.snapshots
    other = ({HERE.database, THERE.database} - {database}).pop()
    assert state.complete_window == state.complete_window_of(database) == state.snapshots[database].snapshot_id - 1
    assert state.complete_window_of(other) == state.next_window - 1
