"""Somebody who only looks comes to every table in time, and goes on telling what lacks something."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.lake.audit import Turns, audit
from cdc_assets.lake.location import Location
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.patience import Patience
from cdc_assets_tests.unit.lake.writing import schema_of, write

SCHEMA = schema_of(id=pa.int32())
TOPICS = [f"topic{number:02d}" for number in range(30)]


@pytest.fixture
def tables(tmp_path: Path) -> TopicTables:
    made = TopicTables(Location(str(tmp_path)), "shop")
    for topic in TOPICS:
        for window in (1, 2):
            assert made.commit(topic, SCHEMA, write(made, SCHEMA, window, {"id": window}, topic=topic), window, {})
    return made


def marks(tables: TopicTables) -> dict[str, Mark]:
    return {topic: tables.fresh_marks()[topic] for topic in TOPICS}


def an_older_file(tables: TopicTables, topic: str) -> Path:
    """One that the newest commit does not name, so that the table looks right without it."""
    folder = Path(tables.location.root) / topic
    lines = (
        line for commit in sorted((folder / "_delta_log").glob("*.json")) for line in commit.read_text().splitlines()
    )
    return next(folder / str(entry["add"]["path"]) for entry in map(json.loads, lines) if "add" in entry)


def test_looks_come_to_every_table_and_tell_what_is_lost_until_it_is_there_again(tables: TopicTables) -> None:
    known, turns, patience = marks(tables), Turns(), Patience(60)
    older = an_older_file(tables, TOPICS[17])
    away = older.rename(older.parent.parent / "away")
    seen: set[str] = set()
    while seen < set(TOPICS):
        assert patience, f"not examined: {sorted(set(TOPICS) - seen)}"
        seen |= audit(tables, known, TOPICS, seconds=0.01, turns=turns).keys()
    for _ in range(3):
        found = audit(tables, known, TOPICS, seconds=0.0, turns=turns)
        assert [name for name, result in found.items() if result.loss] == [TOPICS[17]]
    away.rename(older)
    assert not audit(tables, known, TOPICS, seconds=0.0, turns=turns)[TOPICS[17]].loss
    assert not audit(tables, known, TOPICS, seconds=0.0, turns=turns)


def test_turns_begin_with_another_table_each_time() -> None:
    """Also in one process: who looks once in a while comes to every table in time."""
    first = {min(TOPICS, key=Turns().of) for _ in range(100)}
    assert len(first) > 1
