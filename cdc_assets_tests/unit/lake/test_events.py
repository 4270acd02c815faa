"""Events of rows, read from a topic's files: which row groups are read, and the numbers of their rows."""

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from cdc_assets.errors import LakeError
from cdc_assets.lake import events
from cdc_assets.lake.events import EventColumn, EventFile, EventRange, TopicGeneration, TopicReader
from cdc_assets.lake.keys import KeyPart
from cdc_assets.lake.location import Location
from cdc_assets.lake.row_shape import OPERATION, POSITION, RowColumn, RowShape

SHAPE = RowShape((RowColumn("id", pa.int64(), False), RowColumn("note", pa.string())), (KeyPart("id"),))
ALL = 2**62
GROUPS = [range(4), range(4, 5), range(5, 9), range(9, 12)]
"""Positions of each row group."""


def lsn(at: int) -> str:
    return f"{at:022d}"


def row(at: int) -> dict[str, object]:
    image = {"id": at, "note": f"note {at}"}
    op = "cud"[at % 3]
    value = {"op": op, "before": image if op == "d" else None, "after": None if op == "d" else image}
    return {"position": f"{lsn(at)}:1", "window_id": at, "value": {**value, "source": {"ts_us": at}}}


@pytest.fixture
def reader(tmp_path: Path) -> TopicReader:
    """Of one file with several row groups, in which each third row deletes: of what it deletes only the key is read."""
    schema = pa.Table.from_pylist([row(at) for at in range(12)]).schema
    (tmp_path / "t").mkdir()
    with pq.ParquetWriter(tmp_path / "t" / "one.parquet", schema) as writer:
        for group in GROUPS:
            writer.write_table(pa.Table.from_pylist([row(at) for at in group], schema=schema))
    columns = (
        EventColumn("id", pa.int64(), "id", pc.abs),
        EventColumn("note", pa.string(), "note", pc.utf8_upper),
    )
    return TopicReader(Location(str(tmp_path)), SHAPE, (TopicGeneration("t", columns),))


FILE = EventFile(0, "one.parquet", 12, "", "~")


@pytest.mark.parametrize("rows_at_once", [1, 3, 100])
@pytest.mark.parametrize(("after", "until"), [("", 11), ("", 3), (3, 8), (8, 11), (4, 4), (2, 6), (11, 20)])
def test_rows_keep_their_numbers_though_row_groups_are_passed_over(
    reader: TopicReader, monkeypatch: pytest.MonkeyPatch, after: int | str, until: int, rows_at_once: int
) -> None:
    monkeypatch.setattr(events, "_BATCH_ROWS", rows_at_once)
    wanted = EventRange(lsn(after) if isinstance(after, int) else after, lsn(until), ALL, ALL)
    chosen = [at for at in range(12) if (after == "" or at > int(after)) and at <= until]
    found = list(reader.numbered(FILE, wanted))
    assert [at for _, numbers in found for at in numbers] == chosen
    rows = [event for part, _ in found for event in part.to_pylist()]
    assert [(event["id"], event["note"], event[OPERATION], event[POSITION]) for event in rows] == [
        (at, None if at % 3 == 2 else f"NOTE {at}", "cud"[at % 3], f"{lsn(at)}:1") for at in chosen
    ]
    assert [event for part in reader.read([FILE], wanted) for event in part.to_pylist()] == rows


def test_a_reader_travels_to_tasks(reader: TopicReader) -> None:
    wanted = EventRange("", lsn(11), ALL, ALL)
    there = pickle.loads(pickle.dumps(reader))  # noqa: S301 - made here
    assert list(there.read([FILE], wanted)) == list(reader.read([FILE], wanted))


def test_a_missing_file_is_named(reader: TopicReader) -> None:
    with pytest.raises(LakeError, match=r"The events in .*t/other\.parquet cannot be read.*restore the file"):
        list(reader.read([EventFile(0, "other.parquet", 1, "", "~")], EventRange("", lsn(11), ALL, ALL)))
