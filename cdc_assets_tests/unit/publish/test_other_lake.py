"""A lake that another one replaces while a publisher follows it: numbers of windows begin again, or an older copy has others."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_assets.capture.reset import Reset
from cdc_assets.errors import PreflightError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger import manifest_rows
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.overview import CaptureOverview, published_of
from cdc_assets.publish.offset import parse_published
from cdc_assets_tests.unit.publish.memory import MemoryBroker
from cdc_assets_tests.unit.retention.world import World, publish_all, publisher
from cdc_assets_tests.unit.streaming.simulation import SimulatedClock


def turns(world: World) -> None:
    for picks in ([0, 1], [2, 3]):
        world.work(picks)
        world.stream()


def reset(world: World, copy: Path) -> None:
    """As `cdc-assets reset --capture`, which knows of no publisher."""
    del copy
    found = Reset(world.config, SimulatedClock(world.server))
    found.move_away(found.removal())
    world.stream(what="snapshot")
    turns(world)


def restore(world: World, copy: Path) -> None:
    shutil.rmtree(world.config.lake.path)
    copy.rename(world.config.lake.path)


def require_refused(world: World, broker: MemoryBroker) -> None:
    """The page tells it, and a new publisher ends."""
    page = published_of(CaptureOverview(world.config), world.server.now, broker.newest)
    assert page is not None
    assert "another lake" in page.problem
    with pytest.raises(PreflightError, match="another lake"):
        publish_all(world, broker)


def pass_over(world: World, count: int) -> None:
    """Write so many entries into the manifest that bring no events."""
    manifest = Manifest(TopicTables.of(world.config), "shop")
    database, state = world.tables[0].database, manifest.claim(world.server.now)
    reached = state.watermark(database)
    assert reached is not None
    for _ in range(count):
        manifest.advance(world.server.now, database, reached)


@pytest.mark.parametrize("replace", [reset, restore])
def test_a_publisher_that_follows_ends(tmp_path: Path, replace: Callable[[World, Path], None]) -> None:
    world, broker = World(str(tmp_path / "lake"), mirrored=False), MemoryBroker()
    shutil.copytree(world.config.lake.path, tmp_path / "copy")
    turns(world)
    follows = publisher(world, broker)
    follows.open()
    while follows.turn():
        pass
    before, marker = broker.held(), broker.marker
    replace(world, tmp_path / "copy")
    with pytest.raises(PreflightError, match="another lake"):
        follows.turn()
    assert (broker.held(), broker.marker) == (before, marker)


@pytest.mark.long
def test_an_older_copy_that_was_continued_is_refused_though_its_numbers_are_reached(tmp_path: Path) -> None:
    """Its windows have numbers that are published, and other events."""
    world, broker = World(str(tmp_path / "lake"), mirrored=False), MemoryBroker()
    shutil.copytree(world.config.lake.path, tmp_path / "copy")
    turns(world)
    publish_all(world, broker)
    sleeps = publish_all(world, broker)
    assert not sleeps.stopped
    before, marker = broker.held(), broker.marker
    restore(world, tmp_path / "copy")
    world.later(1)
    world.later(1)
    turns(world)
    turns(world)
    page = published_of(CaptureOverview(world.config), world.server.now, broker.newest)
    assert page is not None
    assert "another lake" in page.problem
    for begin in (sleeps.turn, lambda: publish_all(world, broker)):
        with pytest.raises(PreflightError, match="another lake"):
            begin()
    assert (broker.held(), broker.marker) == (before, marker)


@pytest.mark.long
def test_an_older_copy_is_refused_before_it_has_written_as_many_entries(tmp_path: Path) -> None:
    """The former lake wrote many without events, one each time that the log moved; so its windows' numbers are reached long before."""
    world, broker = World(str(tmp_path / "lake"), mirrored=False), MemoryBroker()
    shutil.copytree(world.config.lake.path, tmp_path / "copy")
    pass_over(world, 40)
    turns(world)
    publish_all(world, broker)
    before, marker = broker.held(), broker.marker
    restore(world, tmp_path / "copy")
    for _ in range(3):
        turns(world)
    require_refused(world, broker)
    assert (broker.held(), broker.marker) == (before, marker)


@pytest.mark.long
def test_an_older_copy_that_was_refused_stays_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also once its manifest keeps no entry any more that shows it; but not the lake that it is a copy of."""
    monkeypatch.setattr(manifest_rows, "_KEEP_ROWS", 5)
    monkeypatch.setattr(manifest_rows, "_CHECKPOINT_EVERY", 5)
    world, broker = World(str(tmp_path / "lake"), mirrored=False), MemoryBroker()
    shutil.copytree(world.config.lake.path, tmp_path / "copy")
    turns(world)
    publish_all(world, broker)
    before, marker = broker.held(), broker.marker
    shutil.copytree(world.config.lake.path, tmp_path / "right")
    restore(world, tmp_path / "copy")
    with pytest.raises(PreflightError, match="another lake"):
        publish_all(world, broker)
    turns(world)
    turns(world)
    pass_over(world, 30)
    oldest = CaptureOverview(world.config).rows()[0]["sequence"]
    assert oldest > int(parse_published(marker or "").entry.split()[0])
    require_refused(world, broker)
    assert (broker.held(), broker.marker) == (before, marker)

    refused = Path(world.config.lake.path) / "shop.__publisher" / "refused.json"
    shutil.copy(refused, tmp_path / "right" / "shop.__publisher")
    restore(world, tmp_path / "right")
    assert json.loads(refused.read_text())
    publish_all(world, broker)
    assert json.loads(refused.read_text()) == []
