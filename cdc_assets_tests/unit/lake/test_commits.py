"""Whether a version is the newest is asked of the log itself, and a table that nobody has changed is not read again."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdc_assets.errors import LakeError
from cdc_assets.lake.commits import commit_path, is_newest
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.unit.lake.writing import schema_of, write

SCHEMA = schema_of(id=pa.int32())


@pytest.fixture(params=["", "file://"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> TopicTables:
    found = TopicTables(Location(f"{request.param}{tmp_path}"), "shop")
    found.ensure("topic", SCHEMA)
    return found


def commit(tables: TopicTables, number: int) -> None:
    tables.commit("topic", SCHEMA, write(tables, SCHEMA, number, {"id": number}), number, {})


def test_the_newest_version_is_told_from_others(tables: TopicTables, tmp_path: Path) -> None:
    for number in (1, 2):
        commit(tables, number)
    assert [is_newest(tables.location, "topic", version) for version in range(5)] == [False, False, True, False, False]
    assert not is_newest(tables.location, "nothing", 0)
    (tmp_path / "topic" / commit_path(2)).unlink()
    assert not is_newest(tables.location, "topic", 2), "an older copy is in its place"


def test_a_log_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "topic").mkdir()
    (tmp_path / "topic" / "_delta_log").write_bytes(b"no folder")
    with pytest.raises(LakeError, match="log of"):
        is_newest(Location(str(tmp_path)), "topic", 0)


def test_a_table_that_nobody_has_changed_is_not_read_again(
    tables: TopicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(tables, 1)
    assert tables.reached("topic") == 1
    refreshed, refresh = list[int](), DeltaTable.update_incremental

    def counted(handle: DeltaTable) -> None:
        refreshed.append(handle.version())
        refresh(handle)

    monkeypatch.setattr(DeltaTable, "update_incremental", counted)
    assert [tables.reached("topic") for _ in range(3)] == [1, 1, 1]
    assert not refreshed
    commit(TopicTables(tables.location, "shop"), 2)
    assert tables.reached("topic") == 2
    assert refreshed[-1:] == [1]


def test_a_log_that_others_have_shortened_after_their_commits_is_read(tables: TopicTables, tmp_path: Path) -> None:
    commit(tables, 1)
    assert tables.reached("topic") == 1
    other = TopicTables(tables.location, "shop")
    for number in (2, 3):
        commit(other, number)
    handle = other.open("topic")
    assert handle is not None
    handle.create_checkpoint()
    for version in range(3):
        (tmp_path / "topic" / commit_path(version)).unlink()
    assert tables.reached("topic") == 3
