"""READs of the last snapshot that the lake has lost do not make good what it lacks."""

from collections import Counter
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.reset import Reset
from cdc_assets.config.settings import FilterSettings, MirrorSettings
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
