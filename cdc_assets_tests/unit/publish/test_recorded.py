"""Where a lake is told how far its topics are published."""

from pathlib import Path

import pytest

from cdc_assets.errors import LakeError
from cdc_assets.lake.location import Location
from cdc_assets.lake.system_topics import manifest_directory
from cdc_assets.publish.offset import Published
from cdc_assets.publish.recorded import RecordedOffset


@pytest.mark.parametrize("root", ["", "file://"])
def test_nothing_is_written_where_the_lake_is_not(tmp_path: Path, root: str) -> None:
    lake = tmp_path / "lake"
    record = RecordedOffset(Location(f"{root}{lake}"), "shop")
    for there in (False, True):
        if there:
            lake.mkdir()
        with pytest.raises(LakeError, match="mounted"):
            record.write(Published("l", 3))
        assert record.read() is None
        assert not lake.exists() or not list(lake.iterdir())
    (lake / manifest_directory("shop") / "_delta_log").mkdir(parents=True)
    record.write(Published("l", 3))
    assert record.read() == Published("l", 3)
