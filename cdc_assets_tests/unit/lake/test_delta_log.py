"""The log of a table stays small, and what is left of it is the whole table."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import fs

from cdc_assets.config.build import build_config
from cdc_assets.config.settings import LakeSettings
from cdc_assets.errors import LakeError
from cdc_assets.lake import delta_log
from cdc_assets.lake.delta_log import CHECKPOINT_EVERY, trim
from cdc_assets.lake.files import DataFile
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.lake.upkeep import adapt
from cdc_assets_tests.unit.config.minimum import MINIMUM
from cdc_assets_tests.unit.lake.writing import schema_of

SCHEMA = schema_of(id=pa.int32())
KEPT = 2 * CHECKPOINT_EVERY


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits expire by their number at once."""
    monkeypatch.setattr(delta_log, "_GRACE_S", 0.0)
    monkeypatch.setattr(delta_log, "MIN_COMMITS", KEPT)


@pytest.fixture
def tables(tmp_path: Path) -> TopicTables:
    return TopicTables(Location(str(tmp_path)), "shop", LakeSettings(str(tmp_path), log_commits=KEPT))


def commit(tables: TopicTables, windows: Iterator[int] | range) -> None:
    """Windows of one row, of which only the log is looked at."""
    for window in windows:
        path = f"w{window}.parquet"
        (Path(tables.location.uri("topic")) / path).write_bytes(b"x")
        assert tables.commit("topic", None, [DataFile(path, 1, 1, f"{window:08}", f"{window:08}", window)], window, {})


def entries(tables: TopicTables) -> list[str]:
    return sorted(path.name for path in (Path(tables.location.uri("topic")) / "_delta_log").iterdir())


def commits(tables: TopicTables) -> list[int]:
    return [int(name[:20]) for name in entries(tables) if name.endswith(".json")]


@pytest.mark.long
def test_log_is_as_long_after_many_windows_as_after_some_and_nothing_is_missing(tables: TopicTables) -> None:
    tables.ensure("topic", SCHEMA)
    longest = []
    for windows in (range(1, 120), range(120, 200)):
        commit(tables, windows)
        longest.append(len(entries(tables)))
    assert longest[1] <= longest[0] + CHECKPOINT_EVERY + 1 < 5 * CHECKPOINT_EVERY
    assert tables.row_count("topic") == 199
    again = TopicTables(tables.location, "shop")
    assert (again.reached("topic"), again.row_count("topic")) == (199, 199)
    kept = commits(tables)
    assert kept == list(range(kept[0], 200)), "without a hole, to the newest"
    for version in (kept[0], kept[-1]):
        assert DeltaTable(tables.location.uri("topic"), version=version).version() == version


@pytest.mark.long
def test_clean_up_lists_the_log_once_for_each_checkpoint(tables: TopicTables, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []
    found = delta_log._entries
    monkeypatch.setattr(delta_log, "_entries", lambda *place: listed.append(place[1]) or found(*place))
    tables.ensure("topic", SCHEMA)
    commit(tables, range(1, 4 * CHECKPOINT_EVERY))
    assert listed == ["topic"] * 4


@pytest.mark.long
@pytest.mark.parametrize("how", ["gone", "empty", "cut off"])
def test_newest_checkpoint_can_be_lost(tables: TopicTables, how: str) -> None:
    """What is behind the one before it is kept, so the table is still there without it."""
    tables.ensure("topic", SCHEMA)
    commit(tables, range(1, 6 * CHECKPOINT_EVERY))
    log = Path(tables.location.uri("topic")) / "_delta_log"
    newest = max(log.glob("*.checkpoint.parquet"))
    assert len(list(log.glob("*.checkpoint.parquet"))) >= 2
    whole = newest.read_bytes()
    newest.unlink() if how == "gone" else newest.write_bytes(whole[: len(whole) // 2] if how == "cut off" else b"")
    again = TopicTables(tables.location, "shop")
    assert (again.reached("topic"), again.row_count("topic")) == (149, 149)
    commit(again, range(150, 150 + CHECKPOINT_EVERY))
    assert DeltaTable(tables.location.uri("topic")).version() == 150 + CHECKPOINT_EVERY - 1, "others read it too"


@pytest.mark.parametrize("hint", [b"", b'{"ver', b"{}", b"[]", b"\0\0", b"\xff"])
def test_newest_checkpoint_can_be_lost_with_the_hint_that_names_it(tables: TopicTables, hint: bytes) -> None:
    """Both are written at the same moment, so a power cut damages both."""
    tables.ensure("topic", SCHEMA)
    for windows in (range(1, 3), range(3, 5)):
        commit(tables, windows)
        DeltaTable(tables.location.uri("topic")).create_checkpoint()
    log = Path(tables.location.uri("topic")) / "_delta_log"
    max(log.glob("*.checkpoint.parquet")).write_bytes(b"")
    (log / "_last_checkpoint").write_bytes(hint)
    again = TopicTables(tables.location, "shop")
    assert (again.reached("topic"), again.row_count("topic")) == (4, 4)


def test_several_newest_commits_can_be_cut_off_at_once(tables: TopicTables) -> None:
    """A loop commits several times before the system writes them to the disk."""
    tables.ensure("topic", SCHEMA)
    commit(tables, range(1, 5))
    log = Path(tables.location.uri("topic")) / "_delta_log"
    for path in sorted(log.glob("*.json"))[-2:]:
        path.write_bytes(bytes(100))
        os.utime(path, (0, 0))
    again = TopicTables(tables.location, "shop")
    assert (again.reached("topic"), again.row_count("topic")) == (2, 2)


def test_a_commit_in_place_of_one_that_was_cut_off_stays_whoever_else_finds_that(
    tables: TopicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page and a run open the table at the same moment; the run commits before the page, which slept, renames what it saw."""
    tables.ensure("topic", SCHEMA)
    commit(tables, range(1, 5))
    newest = max((Path(tables.location.uri("topic")) / "_delta_log").glob("*.json"))
    newest.write_bytes(bytes(100))
    os.utime(newest, (0, 0))
    real, made = delta_log._is_commit, list[str]()

    def sleep(files: fs.FileSystem, path: str) -> bool:
        found = real(files, path)
        if not made:
            made.append(path)
            with suppress(LakeError):
                commit(TopicTables(tables.location, "shop"), range(5, 6))
                made.append("window 5")
        return found

    monkeypatch.setattr(delta_log, "_is_commit", sleep)
    page = TopicTables(tables.location, "shop")
    assert page.open("topic") is not None
    assert page.reached("topic") == (5 if "window 5" in made else 3)


@pytest.mark.long
def test_log_that_lacks_a_commit_is_not_touched(tables: TopicTables) -> None:
    tables.ensure("topic", SCHEMA)
    commit(tables, range(1, 6 * CHECKPOINT_EVERY))
    log = Path(tables.location.uri("topic")) / "_delta_log"
    max(log.glob("*.checkpoint.parquet")).unlink()
    max(log.glob("*.json")).with_name(f"{140:020}.json").unlink()
    before = entries(tables)
    with pytest.raises(LakeError, match="cannot be read"):
        TopicTables(tables.location, "shop").open("topic")
    assert entries(tables) == before


def test_crash_between_two_removals_is_made_good_by_the_next_clean_up(
    tables: TopicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_log, "_expired", lambda *_: [])
    tables.ensure("topic", SCHEMA)
    commit(tables, range(1, 6 * CHECKPOINT_EVERY))
    monkeypatch.undo()
    monkeypatch.setattr(delta_log, "_GRACE_S", 0.0)
    log = Path(tables.location.uri("topic")) / "_delta_log"
    for version in range(7):  # the oldest go first
        (log / f"{version:020}.json").unlink()
    again = TopicTables(tables.location, "shop")
    assert (again.reached("topic"), again.row_count("topic")) == (149, 149)
    assert trim(tables.location, "topic", 1) > 0
    assert trim(tables.location, "topic", 1) == 0
    assert TopicTables(tables.location, "shop").row_count("topic") == 149


@pytest.mark.long
def test_young_commits_stay_for_those_who_are_opening_the_table(
    tables: TopicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_log, "_GRACE_S", 60.0)
    tables.ensure("topic", SCHEMA)
    commit(tables, range(1, 6 * CHECKPOINT_EVERY))
    assert commits(tables)[0] == 0


@pytest.mark.long
def test_reader_with_an_older_version_open_continues(tables: TopicTables) -> None:
    tables.ensure("topic", SCHEMA)
    commit(tables, range(1, 10))
    reader = DeltaTable(tables.location.uri("topic"))
    commit(tables, range(10, 6 * CHECKPOINT_EVERY))
    assert commits(tables)[0] > 10
    assert len(reader.file_uris()) == 9
    reader.update_incremental()
    assert len(reader.file_uris()) == 6 * CHECKPOINT_EVERY - 1


def test_a_table_gets_the_retention_of_today_and_what_somebody_chose_stays(tmp_path: Path) -> None:
    location = Location(str(tmp_path))
    TopicTables(location, "shop").ensure("topic", SCHEMA)
    DeltaTable(location.uri("topic")).alter.set_table_properties({"delta.logRetentionDuration": "interval 90 days"})
    tables = TopicTables(location, "shop", LakeSettings(str(tmp_path), retention_hours=5))
    adapt(tables, "topic")
    found = DeltaTable(location.uri("topic"))
    assert found.metadata().configuration["delta.deletedFileRetentionDuration"] == "interval 300 minutes"
    assert found.metadata().configuration["delta.logRetentionDuration"] == "interval 90 days"
    adapt(tables, "topic")
    assert DeltaTable(location.uri("topic")).version() == found.version(), "it is done once"


@pytest.mark.long
def test_property_says_how_many_commits_stay(tmp_path: Path) -> None:
    kept = []
    for value in ("100", "130"):
        config = build_config(MINIMUM | {"lake.path": str(tmp_path / value), "lake.log.commits": value})
        tables = TopicTables.of(config)
        tables.ensure("topic", SCHEMA)
        commit(tables, range(1, 175))
        kept.append(len(commits(tables)))
    assert kept == [101, 151], "from a checkpoint on"
