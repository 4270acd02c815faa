"""What of a topic's files is told apart that other programs have had a hand in."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.retention.files import latest, listed, untouched

TOPIC = "shop.orders"


def at(commit: int, command: int = 0) -> str:
    return str(Position(Lsn.from_int(commit), command, Lsn.from_int(commit), 2))


@pytest.fixture
def tables(tmp_path: Path) -> TopicTables:
    return TopicTables(Location(str(tmp_path)), "shop")


def append(tables: TopicTables, *positions: str | None) -> None:
    rows = pa.table({"position": pa.array(positions, pa.string()), "window_id": pa.nulls(len(positions), pa.int64())})
    write_deltalake(tables.location.uri(TOPIC), rows, mode="append")


@pytest.mark.parametrize("strange", [None, "0", "abc", "", "0000002a", str(Lsn.from_int(7))])
def test_a_text_that_is_no_position_counts_as_a_row_without_one(tables: TopicTables, strange: str | None) -> None:
    append(tables, strange)
    append(tables, at(4), strange, at(2))
    found = {file.rows: file for file in listed(tables, TOPIC)}
    assert [(file.greatest, file.least, file.unplaced) for _, file in sorted(found.items())] == [
        ("", "", 1),
        (at(4), at(2)[:22], 1),
    ]
    told = untouched(TOPIC, list(found.values()))
    assert "with 2 rows" in told
    assert latest(tables.location, list(found.values())) == {(TOPIC, found[3].path)}
    append(tables, at(5))
    assert untouched(TOPIC, listed(tables, TOPIC)) == told


def test_only_files_are_opened_whose_log_tells_less_than_a_position(tables: TopicTables) -> None:
    for command in range(3):
        append(tables, at(4, command))
    first, *others = sorted(listed(tables, TOPIC), key=lambda file: file.greatest)
    for file in others:
        (Path(tables.location.uri(TOPIC)) / file.path).unlink()
    short = replace(first, greatest=first.greatest[:32] + "\U0010ffff")
    assert latest(tables.location, [short, *others]) == {(TOPIC, others[-1].path)}
