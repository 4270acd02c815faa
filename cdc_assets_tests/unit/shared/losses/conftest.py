"""Lakes that are prepared once."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.lake import delta_log
from cdc_assets_tests.unit.shared.losses.world import World, make_world
from cdc_assets_tests.unit.streaming.prepared import Prepared, moved


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log, "_TORN_S", 0.0)


@pytest.fixture(scope="module")
def prepared_world(tmp_path_factory: pytest.TempPathFactory) -> Prepared[World]:
    found = Prepared(make_world)
    found.prepare(tmp_path_factory.mktemp("losses"))
    return found


@pytest.fixture
def world(prepared_world: Prepared[World], tmp_path: Path) -> World:
    lake = tmp_path / "lake"
    found = prepared_world.copied(lake)
    assert found is not None
    return replace(found, config=moved(found.config, lake), lake=lake)
