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


def test_each_cluster_has_a_place_and_that_of_an_earlier_version_ends_with_the_first(tmp_path: Path) -> None:
    location = Location(str(tmp_path / "lake"))
    (tmp_path / "lake" / manifest_directory("shop") / "_delta_log").mkdir(parents=True)
    unnamed, one, two = (RecordedOffset(location, "shop", cluster) for cluster in ("", "one", "two"))
    assert one.read_all() == []
    unnamed.write(Published("l", 1))
    assert one.read() is None
    assert one.read_all() == [Published("l", 1)]
    one.write(Published("l", 2, written=1.0))
    two.write(Published("l", 3, written=2.0))
    assert [place.window for place in one.read_all()] == [2, 3]
    assert [place.window for place in unnamed.read_all()] == [3, 2]
    one.forget_others(lambda place: place.window < 3)
    assert len(one.read_all()) == 2
    one.forget_others(lambda place: place.window == 3)
    assert one.read_all() == [Published("l", 2, written=1.0)]
    one.forget()
    assert two.read_all() == []
