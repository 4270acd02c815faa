"""A lake that is not mounted: the page is in trouble and no run is asked for, wherever the process has its state folder."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from cdc_assets.capture.new_lake import NewLake
from cdc_assets.core.state_folder import choose_state_folder
from cdc_assets.defs.known_lake import Home, share_home
from cdc_assets.errors import LakeError
from cdc_assets.lake.known import known_record, remember_record
from cdc_assets_tests.shop import TABLES, Shop, tick

WINDOWS = dg.AssetKey(["shop", "windows"])


@pytest.fixture
def unmounted(shop: Shop, instance: dg.DagsterInstance) -> Iterator[Path]:
    """The lake, moved away; it comes back."""
    lake, away = shop.folder / "lake", shop.folder / "unmounted"
    if not lake.exists():
        assert shop.snapshot(instance).success
        assert shop.changes(instance).success
    lake.rename(away)
    yield lake
    shutil.rmtree(lake, ignore_errors=True)
    away.rename(lake)


def health(instance: dg.DagsterInstance) -> str:
    event = instance.get_latest_materialization_event(WINDOWS)
    assert event is not None
    assert event.asset_materialization is not None
    return str(event.asset_materialization.metadata["health"].value)


@pytest.mark.parametrize("is_known_here", [True, False])
def test_no_run_begins(shop: Shop, instance: dg.DagsterInstance, unmounted: Path, is_known_here: bool) -> None:
    """Also in a container with a disk of its own, which has no state folder: Dagster remembers it."""
    if not is_known_here:
        shutil.rmtree(shop.folder / "state")
    with pytest.raises(LakeError, match="not mounted"):
        tick(shop, instance)
    assert "in trouble: the lake: LakeError: The lake at" in health(instance)
    run = shop.snapshot(instance, due_only=False)
    instance.delete_run(run.run_id)
    assert not run.success
    assert "not mounted" in str(run.failure_data_for_node("shop_read_tables"))
    assert not list(unmounted.glob("shop*"))


def test_lake_that_is_back_goes_on(shop: Shop, instance: dg.DagsterInstance) -> None:
    found = tick(shop, instance)
    assert found.skip_message == "Nothing new."
    [page] = [event for event in found.asset_events if isinstance(event, dg.AssetMaterialization)]
    assert page.metadata["health"].value == "healthy"


def test_person_says_that_a_new_lake_begins(shop: Shop, instance: dg.DagsterInstance, unmounted: Path) -> None:
    with shop.in_environment():
        choose_state_folder(shop.folder / "state")
        NewLake.of(shop.config()).begin()
    assert len(tick(shop, instance).asset_selection) == len(TABLES)


def test_relative_path_means_another_folder_from_elsewhere(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    page, here, there = dg.AssetKey("page"), Home("/here/var/lake/w", "var/lake"), Home("/there/var/lake/w", "var/lake")
    choose_state_folder(tmp_path)
    share_home(instance, page, here)
    assert known_record(here.address) is None
    remember_record(here.address)
    share_home(instance, page, here)
    share_home(instance, page, there)
    assert str(known_record(there.address)) == "Dagster remembers it at /here/var/lake/w"
    chosen = Home("/chosen/lake/w", "/chosen/lake")
    share_home(instance, page, chosen)
    assert known_record(chosen.address) is None
