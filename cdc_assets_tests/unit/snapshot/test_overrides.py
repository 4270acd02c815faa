"""Statements in place of tables (`snapshot.select.statement.overrides`): a row that they leave out makes no loss good."""

from pathlib import Path

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.capture.reset import Reset
from cdc_assets.core.identifiers import TableId
from cdc_assets.ledger.table_state import TableState
from cdc_assets.overview.checks.sqlserver import continuity_result
from cdc_assets_tests.unit.snapshot.starts import Starts
from mssql_standin.control import StandIn


def lacking(starts: Starts) -> TableState:
    """The state of a table of which the change of a row was lost that the statement leaves out."""
    state = state_of(starts, starts.orders)
    [(after, until)] = state.ignored_gaps
    assert (after, until) in state.gaps
    assert (state.status, state.reads_all) == ("healthy", False)
    check = continuity_result(state)
    assert not check.passed
    assert not check.is_error
    assert "snapshot.select.statement.overrides" in check.text
    return state


def state_of(starts: Starts, table: TableId) -> TableState:
    with starts.world.capture() as capture:
        return capture.state().tables[table]


def with_a_statement(server: StandIn, path: Path, policy: str) -> Starts:
    starts = Starts(server, path, "initial")
    starts.world.properties |= {
        "gap.policy": policy,
        "snapshot.select.statement.overrides": "dbo.orders",
        "snapshot.select.statement.overrides.dbo.orders": "SELECT * FROM dbo.orders WHERE id > 2",
    }
    return starts


@pytest.mark.long
@pytest.mark.parametrize("policy", ["ignore", "fail", "resnapshot"])
def test_a_statement_makes_no_loss_good(server: StandIn, tmp_path: Path, policy: str) -> None:
    starts = with_a_statement(server, tmp_path, policy)
    assert starts.start() == ["r"]
    starts.world.sql("UPDATE dbo.orders SET note = 'lost' WHERE id = 1")
    starts.lose()
    starts.world.stream()
    if policy != "resnapshot":
        starts.world.snapshot([starts.orders])
    lost = lacking(starts).ignored_gaps
    assert starts.start() == ["c"] * (policy == "ignore") + ["r"] * 3
    assert starts.due() == [], "it is not read again and again"
    starts.insert()
    assert starts.start() == ["c"]
    assert lacking(starts).ignored_gaps == lost
    for name in [name for name in starts.world.properties if "overrides" in name]:
        del starts.world.properties[name]
    starts.world.snapshot([starts.orders])
    state = state_of(starts, starts.orders)
    assert (state.ignored_gaps, state.reads_all) == ((), True)
    assert continuity_result(state).passed


def test_nor_does_one_of_a_table_that_was_reset(server: StandIn, tmp_path: Path) -> None:
    """Changes between its former position and its new one are read by nobody."""
    starts = with_a_statement(server, tmp_path, "fail")
    starts.start()
    starts.world.sql("EXEC sys.sp_cdc_disable_table N'dbo', N'orders', N'dbo_orders'")
    starts.world.sql("UPDATE dbo.orders SET note = 'lost' WHERE id = 1")
    starts.world.enable("orders")
    starts.insert()
    starts.world.stream()
    former = state_of(starts, starts.orders).position
    Reset(starts.world.config, SystemClock()).forget([starts.orders], fence=True)
    starts.world.snapshot()
    assert lacking(starts).ignored_gaps[0][0] == former
