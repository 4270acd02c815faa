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
        ShapeColumn("region", pa.int64()),
        ShapeColumn("note", pa.string()),
        ShapeColumn("big", pa.string(), large=True),
        ShapeColumn("wide", pa.string(), large=True),
    ),
    (KeyPart("code", padded=True, folded=True),),
)
EVENT = st.tuples(
    st.sampled_from(["a", "A", "b", "b ", "c"]),
    st.sampled_from("cuudrk"),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2),
)


def table_of(events: list[tuple[str, str, bool, bool, int]]) -> pa.Table:
    """Events in order, each of a transaction of its own; what makes a row omits nothing.

    A `k` changes the region, which is in the message key only: a deletion and a creation, which may omit values.
    """
    regions, rows = dict[str, int](), list[dict[str, object]]()
    for at, (code, what, lacks, also, unit) in enumerate(events):
        row, events[at] = code.strip().lower(), (code, "c", False, False, unit)
        before = regions.get(row)
        if before is not None or what in "dr":
            events[at] = (code, what, lacks and what in "uk", also and what in "uk", unit)
        _, what, lacks, also, _ = events[at]
        after = ((before or 0) + 1) % 2 if what == "k" else before or 0
        for number, op in enumerate("dc" if what == "k" else what):
            rows.append(
                {
                    "code": code, "region": after if op != "d" else before or 0, "note": f"note {at}",
                    "big": None if lacks else f"big {at}", "wide": None if also else f"wide {at}",
                    POSITION: f"{at:022d}:{number}", OPERATION: op, CHANGED_AT: None, MISSING + "big": lacks and op != "d",
                    MISSING + "wide": also and op != "d", UNIT: unit,
                }
            )  # fmt: skip
        regions |= {row: after}
        if what == "d":
            del regions[row]
    schema = SHAPE.events.append(pa.field(UNIT, pa.int16()))
    return pa.Table.from_pylist(rows, schema=schema)


def first(events: pa.Table, transactions: int) -> int:
    """How many events the first transactions have."""
    return sum(int(position[:22]) < transactions for position in events[POSITION].to_pylist())


def by_message_key(events: pa.Table) -> dict[tuple[str, int], tuple[str, ...]]:
    """What a reader makes of events who takes the code and the region for the key; an omitted value is that of the event before."""
    rows = dict[tuple[str, int], tuple[str, ...]]()
    for event in events.to_pylist():
        key = (event["code"].strip().lower(), event["region"])
        former = rows.pop(key, (None, None, None))
        values = [former[at] if event[MISSING + name] else event[name] for at, name in enumerate(("big", "wide"), 1)]
        if event[OPERATION] != "d":
            rows[key] = (event["note"], *values)
    return rows


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
    until_now = first(whole, len(events))
    head, tail = whole.slice(0, until_now), whole.slice(until_now)
    parts = []
    for unit in range(3):  # a task reads files of one table
        own = np.flatnonzero(head[UNIT].to_numpy() == unit)
        parts += [kept(head.take(pa.array(share)), whole=False) for share in (own[:cut], own[cut:])]
    left = kept(pa.concat_tables(parts), whole=True)
    tables = {unit: [one.filter(pa.compute.equal(one[UNIT], unit)) for one in (head, left)] for unit in range(3)}
    for done in range(4):
        chosen = [tables[unit][order.index(unit) < done] for unit in range(3)]
        for transactions in range(len(later) + 1):
            until = first(whole, len(events) + transactions)
            seen = pa.concat_tables([*chosen, tail.slice(0, until - until_now)]).sort_by(POSITION)
            assert rows_of(seen) == rows_of(whole.slice(0, until))
            if done in (0, 3):  # events of one row in several tables go one table after the other
                assert by_message_key(seen) == by_message_key(whole.slice(0, until))
    rows = len(rows_of(head))
    omits = any(event[2] or event[3] for event in all_events)
    one_table = len({event[4] for event in events}) < 2
    assert omits or not one_table or left.num_rows == rows, "only what is needed stays"


def test_a_deletion_stays_before_a_creation_that_omits_values_which_another_part_has() -> None:
    """Without it what it deletes, which stays for its values, would be there beside it under the other message key."""
    events = table_of([("a", "c", False, False, 0), ("a", "k", True, False, 0)])
    parts = [kept(part, whole=False) for part in (events.slice(0, 1), events.slice(1))]
    left = kept(pa.concat_tables(parts), whole=True)
    assert left[OPERATION].to_pylist() == ["c", "d", "c"]
    assert by_message_key(left) == by_message_key(events)
