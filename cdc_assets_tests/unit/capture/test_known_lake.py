"""A capture whose lake is not mounted reads nothing into the empty folder, until a person says that a new lake begins."""

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.capture import opening
from cdc_assets.capture.new_lake import NewLake
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import LakeError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.overview import CaptureOverview, CaptureReport, inspect_server
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer
from cdc_assets_tests.unit.streaming.tables import started


def report_on(server: SimulatedServer, config: CaptureConfig) -> CaptureReport:
    return inspect_server(config, lambda: nullcontext(server), now=server.now).report  # type: ignore[arg-type]


def test_nothing_is_read_into_an_empty_folder(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    server, config, *_ = started(lake)
    lake.rename(tmp_path / "unmounted")
    report = report_on(server, config)
    assert (report.health, report.tables) == ("in trouble", ())
    assert "holds nothing of capture shop, though its record shop.__windows was there" in report.headline
    with pytest.raises(LakeError, match="not mounted"):
        CaptureOverview(config, server).work  # noqa: B018
    for run in (make_capture(server, config).snapshot, make_capture(server, config).stream):
        with pytest.raises(LakeError, match="not mounted"):
            run()
    assert not list(lake.glob("shop*"))

    shutil.rmtree(lake, ignore_errors=True)
    (tmp_path / "unmounted").rename(lake)
    assert report_on(server, config).healthy
    assert make_capture(server, config).snapshot().tables == ()


def test_person_says_that_a_new_lake_begins(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    server, config, lines, orders = started(lake)
    with pytest.raises(LakeError, match="is there, so the lake is no new one"):
        NewLake.of(config).begin()
    (lake / "shop.__windows").rename(tmp_path / "windows")
    with pytest.raises(LakeError, match="hold events of capture shop"):
        NewLake.of(config).begin()
    shutil.rmtree(lake)
    NewLake.of(config).begin()
    assert "not mounted" not in report_on(server, config).headline
    assert set(make_capture(server, config).snapshot().tables) == {lines, orders}
    assert report_on(server, config).healthy


def test_other_lake_is_a_new_one(tmp_path: Path) -> None:
    started(tmp_path / "lake")
    server, config, *_ = started(tmp_path / "other")
    assert report_on(server, config).healthy


@pytest.mark.parametrize("is_replaced", [False, True])
def test_lake_that_goes_while_a_run_begins_is_no_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    """It is read, the server is asked, which takes a while, and then it is another one, or none."""
    lake, away = tmp_path / "lake", tmp_path / "unmounted"
    server, config, *_ = started(lake)
    real = opening.select

    def going(*given: Any) -> Any:
        found = real(*given)
        lake.rename(away)
        if is_replaced:
            forgotten = TopicTables.of(config)
            Manifest(forgotten, "shop").claim(server.now)
        return found

    monkeypatch.setattr(opening, "select", going)
    with pytest.raises(LakeError, match="was replaced while the run began" if is_replaced else "not mounted"):
        make_capture(server, config).stream()
    monkeypatch.undo()
    assert is_replaced or not (lake / "shop.__windows").exists()
    shutil.rmtree(lake, ignore_errors=True)
    away.rename(lake)
    assert make_capture(server, config).stream().ended == "idle"
