"""Which events others have replaced: the pure part of compaction."""

import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.lake.keys import KeyPart
from cdc_assets.lake.row_shape import CHANGED_AT, MISSING, OPERATION, POSITION
from cdc_assets.mirror.fold import fold_keyed
from cdc_assets.mirror.rewrite import by_key
from cdc_assets.mirror.shape import Shape, ShapeColumn
from cdc_assets.retention.replaced import UNIT, staying

EXAMPLES = 6 * int(os.environ.get("CDC_LAW_EXAMPLES", "5"))
SHAPE = Shape(
    (
        ShapeColumn("code", pa.string(), False),
        ShapeColumn("note", pa.string()),
        ShapeColumn("big", pa.string(), large=True),
        ShapeColumn("wide", pa.string(), large=True),
    ),
    (KeyPart("code", padded=True, folded=True),),
)
EVENT = st.tuples(
    st.sampled_from(["a", "A", "b", "b ", "c"]),
    st.sampled_from("cuudr"),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2),
)


def table_of(events: list[tuple[str, str, bool, bool, int]]) -> pa.Table:
    """Events in order, each of a transaction of its own; what makes a row omits nothing."""
    alive = set[str]()
    for at, (code, op, *others) in enumerate(events):
        row = code.strip().lower()
        events[at] = (code, "c" if op == "u" and row not in alive else op, *others)  # type: ignore[assignment]
        (alive.discard if op == "d" else alive.add)(row)
    rows = [
        {
            "code": code, "note": f"note {at}", "big": None if lacks else f"big {at}", "wide": None if also else f"wide {at}",
            POSITION: f"{at:022d}:0", OPERATION: op, CHANGED_AT: None, MISSING + "big": lacks and op == "u",
            MISSING + "wide": also and op == "u", UNIT: unit,
        }
        for at, (code, op, lacks, also, unit) in enumerate(events)
    ]  # fmt: skip
    schema = SHAPE.events.append(pa.field(UNIT, pa.int16()))
    return pa.Table.from_pylist(rows, schema=schema)


def rows_of(events: pa.Table) -> list[dict[str, object]]:
    plain = events.drop_columns([UNIT])
    folded = fold_keyed(SHAPE, SHAPE.no_rows(), by_key(SHAPE, plain))
    rows: list[dict[str, object]] = folded.rows.select(SHAPE.names).to_pylist()
    return rows


def kept(events: pa.Table, *, whole: bool) -> pa.Table:
    return events.filter(pa.array(staying(SHAPE, events, whole=whole)))


@pytest.mark.long
@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(EVENT, max_size=12), st.lists(EVENT, max_size=8), st.permutations(range(3)), st.integers(0, 12))
def test_what_stays_makes_the_same_rows_now_and_later(
    events: list[tuple[str, str, bool, bool, int]],
    later: list[tuple[str, str, bool, bool, int]],
    order: list[int],
    cut: int,
) -> None:
    """Also while only some of the topic's tables are compacted, and if tasks see only parts of the events."""
    whole = table_of(all_events := [*events, *later])
    head, tail = whole.slice(0, len(events)), whole.slice(len(events))
    parts = []
    for unit in range(3):  # a task reads files of one table
        own = np.flatnonzero(head[UNIT].to_numpy() == unit)
        parts += [kept(head.take(pa.array(share)), whole=False) for share in (own[:cut], own[cut:])]
    left = kept(pa.concat_tables(parts), whole=True)
    tables = {unit: [one.filter(pa.compute.equal(one[UNIT], unit)) for one in (head, left)] for unit in range(3)}
    for done in range(4):
        chosen = [tables[unit][order.index(unit) < done] for unit in range(3)]
        for until in range(len(later) + 1):
            seen = pa.concat_tables([*chosen, tail.slice(0, until)]).sort_by(POSITION)
            assert rows_of(seen) == rows_of(whole.slice(0, len(events) + until))
    rows = len(rows_of(head))
    omits = any(event[1] == "u" and (event[2] or event[3]) for event in all_events)
    one_table = len({event[4] for event in events}) < 2
    assert omits or not one_table or left.num_rows == rows, "only what is needed stays"
