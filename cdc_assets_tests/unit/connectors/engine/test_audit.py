"""Topics of batches are compared with what their record says they hold, as topics of SQL Server are."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets_tests.unit.connectors.engine.batches import EVENTS, TOPICS, config_for, run
from cdc_assets_tests.unit.connectors.engine.feeds import ListFeed, event

pytestmark = pytest.mark.delta_rs


def found(lake: Path) -> dict[str, str]:
    return dict(EngineOverview(config_for(lake), audit_s=None).losses)


def lose_a_file(lake: Path, topic: str) -> None:
    next((lake / topic).glob("*.parquet")).unlink()


def lose_a_commit(lake: Path, topic: str) -> None:
    """As after a power cut: the log has the transaction, and not the files."""
    commit = lake / topic / "_delta_log" / f"{DeltaTable(str(lake / topic)).version():020}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines if "add" not in line))


@pytest.mark.parametrize(
    ("lose", "text"), [(lose_a_file, "lacks data.*missing"), (lose_a_commit, "has 10 events in place of 20")]
)
def test_what_a_topic_has_lost_is_told_until_it_is_there_again(tmp_path: Path, lose, text: str, caplog) -> None:  # type: ignore[no-untyped-def]
    run(tmp_path, ListFeed(EVENTS[:30], [30]), rows=30)
    run(tmp_path, ListFeed(EVENTS, [30, 60]), rows=30)
    assert not found(tmp_path)
    whole = {path: path.read_bytes() for path in (tmp_path / TOPICS[1]).rglob("*") if path.is_file()}
    lose(tmp_path, TOPICS[1])
    told = found(tmp_path)
    assert told.keys() == {TOPICS[1]}
    run(tmp_path, ListFeed([*EVENTS, event(61, topic=TOPICS[1])], [60, 61]))
    assert any(TOPICS[1] in record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert found(tmp_path).keys() == {TOPICS[1]}, "a later batch does not hide it"
    assert re.search(text, told[TOPICS[1]])
    for path, content in whole.items():
        path.write_bytes(content)
    assert not found(tmp_path)


def test_rows_that_somebody_has_deleted_are_not_missed_and_others_are(tmp_path: Path) -> None:
    run(tmp_path, ListFeed(EVENTS, [30, 60]), rows=30)
    DeltaTable(str(tmp_path / TOPICS[0])).delete("key.id = 3")
    assert not found(tmp_path)
    run(tmp_path, ListFeed([*EVENTS, event(61, topic=TOPICS[0])], [60, 61]))
    assert not found(tmp_path)


def test_tables_are_examined_by_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, ListFeed(EVENTS[:30], [30]))
    run(tmp_path, ListFeed(EVENTS, [60]))
    examined = {name: mark.examined for name, mark in EngineOverview(config_for(tmp_path)).state.marks.items()}
    assert examined.keys() > set(TOPICS)
    assert set(examined.values()) == {1}


class OthersFeed(ListFeed):
    """Behind its third batch a commit of a topic is lost, and another program puts one of its own in its place."""

    def committed(self, number: int) -> None:
        super().committed(number)
        if len(self.acknowledged) == 3:
            table = self.lake / TOPICS[1]
            (table / "_delta_log" / f"{DeltaTable(str(table)).version():020}.json").unlink()
            foreign = pa.table({"position": pa.nulls(self.rows, pa.string())})
            write_deltalake(str(table), foreign, mode="append", schema_mode="merge")

    lake: Path
    rows: int


@pytest.mark.long
@pytest.mark.parametrize("rows", [1, 4, 9], ids=["fewer", "about as many", "more"])
@pytest.mark.parametrize("check_every_s", [0.0, 1e9])
def test_a_commit_in_whose_place_another_program_has_put_one_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, check_every_s: float
) -> None:
    monkeypatch.setattr("cdc_assets.connectors.engine.upkeep.CHECK_EVERY_S", check_every_s)
    feed = OthersFeed(EVENTS, [10, 20, 30, 40, 50, 60])
    feed.lake, feed.rows = tmp_path, rows
    run(tmp_path, feed)
    assert found(tmp_path).keys() == {TOPICS[1]}


def test_commits_that_were_read_are_counted_but_for_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_assets.connectors.engine.upkeep.CHECK_EVERY_S", 0.0)
    run(tmp_path, ListFeed(EVENTS, [10, 20, 30, 40, 50, 60]))
    marks = EngineOverview(config_for(tmp_path)).state.marks
    assert [marks[topic].counted - marks[topic].version for topic in TOPICS] == [-2] * 3


class CleanedFeed(ListFeed):
    """Behind its third batch rows of a topic are deleted on purpose; behind the fourth the log that says so is cleaned up."""

    lake: Path

    def committed(self, number: int) -> None:
        super().committed(number)
        table = self.lake / TOPICS[1]
        if len(self.acknowledged) == 3:
            DeltaTable(str(table)).delete("key.id = 1")
        elif len(self.acknowledged) == 4:
            DeltaTable(str(table)).optimize.compact()
            DeltaTable(str(table)).create_checkpoint()
            for version in range(DeltaTable(str(table)).version()):
                (table / "_delta_log" / f"{version:020}.json").unlink()


@pytest.mark.parametrize("last", [TOPICS[0], TOPICS[1]], ids=["the topic stays quiet", "the topic goes on"])
def test_rows_that_were_deleted_are_not_missed_once_the_log_is_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """Since a look has counted them before, and the next batch records that."""
    monkeypatch.setattr("cdc_assets.connectors.engine.upkeep.CHECK_EVERY_S", 0.0)
    events = [event(number, topic=TOPICS[number % 2]) for number in range(1, 21)]
    events += [event(number, topic=TOPICS[0]) for number in range(21, 41)]
    events += [event(number, topic=last) for number in range(41, 51)]
    feed = CleanedFeed(events, [10, 20, 30, 40, 50])
    feed.lake = tmp_path
    run(tmp_path, feed)
    assert not found(tmp_path)
