"""Markers follow the order of all rows, whatever the slices and rounds (spec debezium-sqlserver §2.5)."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.core.identifiers import TableId
from cdc_assets.ledger.snapshot_state import HeldRow
from cdc_assets.snapshot.markers import Markers
from cdc_assets.snapshot.tasks import HeldEnds, SliceEnds, pack

SOURCE = pa.struct([pa.field("snapshot", pa.string())])
SCHEMA = pa.schema([pa.field("row", pa.int64()), pa.field("value", pa.struct([pa.field("source", SOURCE)]))])


def batch(first: int, rows: int) -> pa.RecordBatch:
    data = [{"row": first + place, "value": {"source": {"snapshot": "true"}}} for place in range(rows)]
    return pa.RecordBatch.from_pylist(data, SCHEMA)


def expected(tables: list[list[list[int]]]) -> list[str]:
    """Markers by the rules of the table in the specification."""
    counts = [sum(sum(batches) for batches in slices) for slices in tables]
    filled = [count for count in counts if count]
    found = []
    for number, count in enumerate(filled):
        for place in range(count):
            if number == len(filled) - 1 and place == count - 1:
                found.append("last")
            elif place == 0 and number == 0:
                found.append("first")
            elif place == count - 1:
                found.append("last_in_data_collection")
            else:
                found.append("first_in_data_collection" if place == 0 else "true")
    return found


SLICES = st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=3)


@given(st.lists(SLICES, min_size=1, max_size=4), st.integers(1, 4))
def test_markers(tables: list[list[list[int]]], round_size: int) -> None:
    rows: dict[int, str] = {}
    numbered = [(TableId("d", "s", f"t{place}"), slices) for place, slices in enumerate(tables)]
    flat = [(table, batches) for table, slices in numbered for batches in slices]
    held: HeldRow | None = None
    next_row = 0
    for start in range(0, len(flat), round_size):
        markers = Markers(held)
        for number, (table, sizes) in enumerate(flat[start : start + round_size], start):
            ends = HeldEnds()
            made = []
            for size in sizes:
                made.append(batch(next_row, size))
                next_row += size
            between = pa.Table.from_batches(ends.between(iter(made)), SCHEMA).to_pylist()
            decided = list(markers.add(SliceEnds(number, table, pack(ends.first), pack(ends.last), ends.rows)))
            assert ends.rows == sum(sizes)
            for row in between + [row for entry in decided for row in entry.batch.to_pylist()]:
                assert row["row"] not in rows
                rows[row["row"]] = row["value"]["source"]["snapshot"]
        if start + round_size >= len(flat):
            for entry in markers.finish():
                [row] = entry.batch.to_pylist()
                rows[row["row"]] = row["value"]["source"]["snapshot"]
        held = markers.held
    assert [rows[number] for number in sorted(rows)] == expected(tables)
    assert len(rows) == next_row
