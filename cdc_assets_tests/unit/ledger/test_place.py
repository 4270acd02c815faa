"""A manifest whose folder is another one than when it was claimed."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cdc_assets.errors import FencedError, LakeError
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest

NOW = datetime(2026, 10, 1, tzinfo=UTC)


def claimed(lake: Path) -> TopicTables:
    tables = TopicTables(Location(str(lake)), "shop")
    Manifest(tables, "shop").claim(NOW)
    return tables


def test_one_with_another_number_is_read_once(tmp_path: Path) -> None:
    """As after its file system was mounted again: each later commit of a topic would read it, too."""
    tables, log = claimed(tmp_path), tmp_path / "shop.__windows" / "_delta_log"
    log.rename(tmp_path / "former")
    shutil.copytree(tmp_path / "former", log)
    tables.guard()
    for commit in log.iterdir():
        commit.write_text("{broken")  # nothing can read it from now on
    tables.guard()


def test_one_that_is_gone_is_no_sign_of_another_writer(tmp_path: Path) -> None:
    """The lake is not mounted: that is reported like other troubles of the lake."""
    lake = tmp_path / "lake"
    tables = claimed(lake)
    lake.rename(tmp_path / "away")
    lake.mkdir()
    with pytest.raises(LakeError, match=r"is gone\. Next: see whether the lake is mounted"):
        tables.guard()
    lake.rmdir()
    (tmp_path / "away").rename(lake)
    tables.guard()


def test_another_one_in_its_place_is_refused(tmp_path: Path) -> None:
    tables = claimed(tmp_path)
    (tmp_path / "shop.__windows").rename(tmp_path / "former")
    claimed(tmp_path)
    with pytest.raises(FencedError, match="reset --capture"):
        tables.guard()
