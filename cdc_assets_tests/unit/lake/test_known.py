"""A lake that is not mounted is no new lake."""

from pathlib import Path

import pytest

from cdc_assets.core import state_folder
from cdc_assets.core.state_folder import choose_state_folder, forget, recall, remember
from cdc_assets.errors import LakeError
from cdc_assets.lake.known import known_record, refuse_if_known, remember_record
from cdc_assets.lake.location import Location


def test_facts_are_remembered_by_name(tmp_path: Path) -> None:
    choose_state_folder(tmp_path / "state")
    assert recall("lakes/a") is None
    remember("lakes/a", {"one": 1})
    assert recall("lakes/a") == {"one": 1}
    assert (tmp_path / "state" / "lakes" / "a.json").stat().st_mode & 0o77 == 0
    (tmp_path / "state" / "lakes" / "a.json").write_text("[")
    assert recall("lakes/a") is None
    forget("lakes/a")
    forget("lakes/a")
    assert list((tmp_path / "state" / "lakes").iterdir()) == []


def test_folder_that_cannot_be_written_costs_the_memory_of_other_processes_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    choose_state_folder(tmp_path / "file")
    remember("lakes/a", {"one": 1})
    assert recall("lakes/a") == {"one": 1}
    forget("lakes/a")
    assert recall("lakes/a") is None
    assert not state_folder._unwritten


def test_only_what_was_there_is_refused(tmp_path: Path) -> None:
    location = Location(str(tmp_path))
    refuse_if_known(location, "shop.__windows", "shop")
    remember_record(location.uri("shop.__windows"))
    first = known_record(location.uri("shop.__windows"))
    remember_record(location.uri("shop.__windows"), "again")
    assert known_record(location.uri("shop.__windows")) == first
    refuse_if_known(location, "other.__windows", "other")
    with pytest.raises(LakeError, match=r"not mounted.*reset --new-lake"):
        refuse_if_known(location, "shop.__windows", "shop")
