"""A next step that was done is not asked for again."""

import dataclasses

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.ledger.table_state import TableState
from cdc_assets.overview.server import DatabaseFacts
from cdc_assets.overview.tables import verdict
from cdc_assets.streaming.gaps import identity_problem

TABLE = TableId("Db", "dbo", "orders")
STATE = TableState(TABLE, 7, Lsn.from_int(9), "dbo_orders")


def test_a_table_that_is_enabled_again_waits_for_its_snapshot_alone() -> None:
    reason = identity_problem(STATE, [], {})
    _check(reason)
    _check(f"{reason.partition('; if it is gone')[0]}.")  # as earlier releases have recorded it


def _check(reason: str) -> None:
    failed = dataclasses.replace(STATE, status="failed", reason=reason)
    assert verdict(failed, [], None, streams=True) == ("failed", reason)
    assert verdict(failed, [], DatabaseFacts(), streams=True) == ("failed", reason)
    enabled = DatabaseFacts(instances={TABLE: [CaptureInstance(TABLE, 7, "dbo_orders", Lsn.from_int(20))]})
    status, told = verdict(failed, [], enabled, streams=True)
    assert status == "failed"
    assert "sp_cdc_enable_table" not in told
    assert told.endswith("It is enabled again. Next: materialize its snapshot asset.")


def test_a_table_that_never_comes_back_has_a_step_that_ends_its_trouble() -> None:
    gone, elsewhere = identity_problem(STATE, [], {}), TableId("Db", "dbo", "orders_old")
    renamed = identity_problem(STATE, [], {elsewhere: [CaptureInstance(elsewhere, 7, "dbo_orders", Lsn.from_int(5))]})
    assert gone.endswith("if it is gone for good, cdc-assets reset Db.dbo.orders --yes.")
    assert renamed.endswith("Next: capture Db.dbo.orders_old, then cdc-assets reset Db.dbo.orders --yes.")
