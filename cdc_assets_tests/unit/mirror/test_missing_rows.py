"""Rows that are found absent: a mirror that is told late has the rows of one that is made anew."""

import os

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.lake.keys import KeyPart
from cdc_assets.lake.row_shape import CHANGED_AT, OPERATION, POSITION
from cdc_assets.mirror.fold import fold_keyed
from cdc_assets.mirror.ledger import MirrorState, PlannedStep
from cdc_assets.mirror.missing_rows import MissingRows
from cdc_assets.mirror.multiset import fold_multiset
from cdc_assets.mirror.ranges import in_order
from cdc_assets.mirror.rewrite import by_key
from cdc_assets.mirror.shape import LSN, Shape, ShapeColumn
from cdc_assets_tests.unit.mirror.histories import KEYLESS

EXAMPLES = 10 * int(os.environ.get("CDC_LAW_EXAMPLES", "5"))
SHAPE = Shape((ShapeColumn("id", pa.int32(), False), ShapeColumn("note", pa.string())), (KeyPart("id"),))
EVENT = st.tuples(st.integers(0, 3), st.sampled_from("cdur"))
TOLD = st.tuples(
    st.integers(0, 12), st.integers(0, 12), st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True)
)


def lsn_of(number: int) -> str:
    return f"{number:022d}"


def folded(rows: pa.Table, parts: list[pa.Table]) -> pa.Table:
    events = pa.concat_tables([SHAPE.events.empty_table(), *parts]).sort_by(POSITION)
    return fold_keyed(SHAPE, rows, by_key(SHAPE, events)).rows


def seen(rows: pa.Table) -> list[dict[str, object]]:
    found: list[dict[str, object]] = rows.select(["id", "note"]).to_pylist()
    return found


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(EVENT, max_size=12), st.lists(TOLD, max_size=3), st.sets(st.integers(1, 11)))
def test_what_is_told_late_counts_at_its_lsn(
    events: list[tuple[int, str]], told: list[tuple[int, int, list[int]]], ends: set[int]
) -> None:
    made = [
        {"id": key, "note": f"note {at}", POSITION: f"{lsn_of(at)}:0", OPERATION: op, CHANGED_AT: None}
        for at, (key, op) in enumerate(events)
    ]
    topic = pa.Table.from_pylist(made, schema=SHAPE.events)
    at_lsn = [
        (max(lsn, heard), MissingRows.of(lsn_of(lsn), 0, pa.table({"id": pa.array(keys, pa.int32())})))
        for lsn, heard, keys in told
    ]
    state, rows, after = MirrorState(step=1, lsn=lsn_of(0)), folded(SHAPE.no_rows(), [topic.slice(0, 1)]), 0
    for number, until in enumerate([*sorted(ends), 12]):
        new = tuple(absence for heard, absence in at_lsn if after <= heard < until or (heard == until == 12))
        state = MirrorState(state.step, state.lsn, absences=(*state.absences, *new))
        step = PlannedStep("t", number + 2, lsn_of(after), lsn_of(until), 0, 0, absences=len(state.absences))
        taken = [absence.events(SHAPE) for absence in step.takes(state.absences)]
        rows = folded(rows, [topic.slice(after + 1, until - after), *taken])
        state, after = state.behind(step), until
    assert all(absence.taken for absence in state.absences)
    assert len(state.absences) == len(told)
    anew = PlannedStep("t", 99, "", lsn_of(12), 0, 0, whole=True, absences=len(told))
    whole = folded(SHAPE.no_rows(), [topic, *(absence.events(SHAPE) for absence in anew.takes(state.absences))])
    assert seen(rows) == seen(whole)
    assert rows.num_rows == len(set(rows["id"].to_pylist()))
    assert rows[LSN].null_count == 0


def test_all_of_them_go_from_a_table_without_a_key() -> None:
    rows = pa.table({"id": pa.array([1, 2, 2, 3], pa.int32()), "a": ["x", "y", "y", "z"], LSN: [lsn_of(1)] * 4})
    rows = pa.Table.from_pylist(rows.to_pylist(), schema=KEYLESS.no_rows().schema)
    events = [
        MissingRows.of(lsn_of(5), at, pa.table({"id": pa.array(keys, pa.int32()), "a": texts})).events(KEYLESS)
        for at, keys, texts in ((7, [1, 2], ["x", "y"]), (8, [3], ["z"]))
    ]
    assert fold_multiset(KEYLESS, rows, in_order(events, KEYLESS)).rows.num_rows == 0


def test_they_are_known_by_a_key_that_a_rule_hides_by_now_and_shows_again() -> None:
    """Its column has another name then, and the mirror is made anew."""
    hidden = Shape((ShapeColumn("id", pa.string()), ShapeColumn("_key_id", pa.int32())), (KeyPart("_key_id"),))
    for told, shape, name in (("id", hidden, "_key_id"), ("_key_id", SHAPE, "id")):
        events = MissingRows.of(lsn_of(5), 7, pa.table({told: pa.array([1, 2], pa.int32())})).events(shape)
        assert events[name].to_pylist() == [1, 2]
    moments = MissingRows.of(lsn_of(5), 7, pa.table({"_key_id": pa.array([1], pa.timestamp("us"))}))
    other = MissingRows.of(lsn_of(5), 7, pa.table({"key": pa.array([1], pa.int32())}))
    assert not moments.events(hidden).num_rows
    assert not other.events(hidden).num_rows


def test_a_column_whose_own_name_is_like_that_of_a_hidden_one_is_another() -> None:
    """No row may be removed by the value of a column that has another one's name by now."""
    both = Shape(
        (ShapeColumn("id", pa.int32()), ShapeColumn("_key_id", pa.int32())), (KeyPart("id"), KeyPart("_key_id"))
    )
    keys = pa.table({"id": pa.array([1], pa.int32()), "_key_id": pa.array([2], pa.int32())})
    [event] = MissingRows.of(lsn_of(5), 7, keys).events(both).select(["id", "_key_id"]).to_pylist()
    assert event == {"id": 1, "_key_id": 2}
    assert not MissingRows.of(lsn_of(5), 7, keys).events(SHAPE).num_rows
    one = MissingRows.of(lsn_of(5), 7, pa.table({"id": pa.array([1], pa.int32())}))
    assert not one.events(both).num_rows
