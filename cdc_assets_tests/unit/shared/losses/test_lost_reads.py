"""READs of the last snapshot that the lake has lost do not make good what it lacks."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.reset import Reset
from cdc_assets.config.settings import FilterSettings, MirrorSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.ledger import fold
from cdc_assets.ledger.codec import encode
from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.table_state import TableState
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.ledger import MirrorState
from cdc_assets.overview.checks.sqlserver import continuity_result
from cdc_assets_tests.simulation import law
from cdc_assets_tests.unit.shared.losses.world import World
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.simulation import SimulatedClock

pytestmark = pytest.mark.delta_rs


def lose_reads(world: World) -> None:
    """The oldest file of a topic; all that came later is there."""
    topic = world.topic(world.orders)
    (topic / min(DeltaTable(str(topic)).get_add_actions()["path"].to_pylist())).unlink()


@pytest.mark.long
def test_a_mirror_that_has_taken_them_keeps_its_rows_and_names_the_loss(world: World) -> None:
    world.config = replace(
        world.config,
        mirror=MirrorSettings(enabled=True),
        streaming=replace(world.config.streaming, gap_policy="ignore"),
    )
    topic = f"shop.{world.orders}"

    def follow() -> MirrorState:
        mirrors = CaptureMirrors(world.config, LocalRunner(1), SimulatedClock(world.server))
        assert not mirrors.catch_up()
        rows = law.current_of(world.lake, topic, law.Files())
        assert rows == Counter((row["id"], row["note"]) for row in world.server.rows[world.orders].values())
        return mirrors.states()[topic]

    follow()
    lose_reads(world)
    world.insert(60)
    world.stream()
    assert follow().gaps
    make_capture(world.server, world.config).snapshot([world.orders])
    world.stream()
    assert not follow().gaps


def test_a_table_that_is_reset_while_it_is_excluded_lacks_them_still(world: World) -> None:
    included = world.config
    lose_reads(world)
    world.stream()
    world.config = replace(included, filters=FilterSettings(table_exclude=("dbo.orders",)))
    world.stream()
    Reset(world.config, SimulatedClock(world.server)).forget([world.orders])
    world.config = replace(included, snapshot=replace(included.snapshot, mode="no_data"))
    world.stream()
    assert world.state(world.orders).status == "healthy"
    assert not continuity_result(world.state(world.orders)).passed


def test_a_table_that_is_not_streamed_lacks_them_still_when_it_is_known_no_more() -> None:
    table, lost = TableId("SalesDb", "dbo", "plain"), (Lsn.from_int(7), Lsn.from_int(9))
    state = CaptureState(tables={table: TableState(table, 1, None, gaps=(lost,))})
    assert state.wanted_after(table, 1) == lost[1]
    row = {"event": "forgotten", "database": "SalesDb", "detail": json.dumps({"forgotten": encode([table])})}
    early = fold.after(state, row).early[table]
    assert (early.low, early.ignored_gaps) == (lost[1], (lost,))
