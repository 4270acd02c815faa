"""Change rows to events, against a model that goes row by row."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.config.settings import EventSettings
from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.envelope.amend import data_events, with_transactions
from cdc_assets.envelope.changes import change_select_list, spaced
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.errors import InvalidValueError, InvariantError
from cdc_assets_tests.unit.envelope.building import change, change_batch, changed, column, plan_of

SHOP = EventSettings("shop")
COLUMNS = [column("id", "int", nullable=False), column("note", "varchar", length=20)]
Row = tuple[tuple[Any, ...], list[Any]]


@dataclass(frozen=True)
class Made:
    """One row change: how it was logged and the values."""

    kind: str
    before: tuple[int, str | None]
    after: tuple[int, str | None]


VALUES = st.tuples(st.integers(0, 3), st.none() | st.sampled_from(["", "a", "b"]))
MADE = st.builds(Made, st.sampled_from(["insert", "delete", "update", "rewrite"]), VALUES, VALUES)


def logged(made: list[Made]) -> list[Row]:
    """Change rows of one transaction per change; `rewrite` is a primary-key update: 1 and 2 under one seqval."""
    rows: list[Row] = []
    for number, one in enumerate(made):
        commit, place = str(Lsn.from_int(2 * number + 1)), str(Lsn.from_int(2 * number))
        operations = {"insert": (2,), "delete": (1,), "update": (3, 4), "rewrite": (1, 2)}[one.kind]
        images = {"insert": (one.after,), "delete": (one.before,)}.get(one.kind, (one.before, one.after))
        rows += [(change(commit, place, op), list(image)) for op, image in zip(operations, images, strict=True)]
    return rows


def image(values: list[Any] | None) -> dict[str, Any] | None:
    return None if values is None else dict(zip(("id", "note"), values, strict=True))


LETTER = {1: "d", 2: "c", 3: "u", 4: "u"}


def modelled(rows: list[Row], plan: EventPlan) -> Iterator[dict[str, Any]]:
    """Events as the specification tells them, one row after the other."""
    previous, serial, pending = None, 0, None
    for meta, values in rows:
        if LETTER[meta[3]] in plan.settings.skipped_operations:
            continue
        place = (meta[0], meta[2])
        serial = serial + 1 if place == previous else 1
        previous = place
        if meta[3] == 3:
            pending = values
            continue
        yield from expanded(plan, meta, values, pending, serial)
        pending = None


def expanded(
    plan: EventPlan, meta: tuple[Any, ...], values: list[Any], before: list[Any] | None, serial: int
) -> Iterator[dict[str, Any]]:
    key = {name: place for place, name in enumerate(("id", "note")) if name in plan.key}
    position = str(Position(Lsn(meta[0]), meta[1], Lsn(meta[2]), meta[3]))
    old_position = position[:-1] + "3"

    def event(at: str, op: str, old: list[Any] | None, new: list[Any] | None) -> dict[str, Any]:
        owner = new if new is not None else old
        assert owner is not None
        named = {name: owner[place] for name, place in key.items()} or None
        return {"at": at, "key": named, "op": op, "before": image(old), "after": image(new), "serial": serial}

    def tombstone(of: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if plan.settings.tombstones_on_delete:
            yield {"at": of["at"] + "t", "key": of["key"], "op": None}

    letter = LETTER[meta[3]]
    if plan.settings.skip_unchanged and letter == "u" and values == before:
        return
    if letter == "d":
        deleted = event(position, "d", values, None)
        yield deleted
        yield from tombstone(deleted)
    elif letter == "u" and before is not None and any(values[place] != before[place] for place in key.values()):
        deleted = event(old_position, "d", before, None)
        yield deleted
        yield from tombstone(deleted)
        yield event(position, "c", None, values)
    else:
        yield event(position, letter, before, values)


def shown(table: pa.Table) -> list[dict[str, Any]]:
    """Built events in the model's form."""
    events = []
    for row in table.to_pylist():
        value = row["value"]
        found = {"at": row["position"], "key": row["key"], "op": value and value["op"]}
        if value is not None:
            found |= {"before": value["before"], "after": value["after"], "serial": value["source"]["event_serial_no"]}
        events.append(found)
    return events


PLANS = st.builds(
    lambda key, **more: plan_of("t", COLUMNS, key, EventSettings("shop", **more)),
    st.sampled_from([("id",), ("note",), ("id", "note"), ()]),
    tombstones_on_delete=st.booleans(),
    skip_unchanged=st.booleans(),
    skipped_operations=st.frozensets(st.sampled_from("cud"), max_size=2),
)


@settings(deadline=None, max_examples=150)
@given(PLANS, st.lists(MADE, min_size=1, max_size=12), st.data())
def test_events_are_the_model_s_however_the_rows_are_cut(
    plan: EventPlan, made: list[Made], data: st.DataObject
) -> None:
    rows = logged(made)
    batch = change_batch(plan, rows)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(rows)), max_size=5)))
    pieces = [batch.slice(start, end - start) for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    events = changed(plan, *pieces)
    expected = list(modelled(rows, plan))
    assert shown(events) == expected
    positions = events.column("position").to_pylist()
    assert positions == sorted(set(positions))
    assert [str(Position.parse(one)) for one in positions] == [one.rstrip("t") for one in positions]


PLAN = plan_of("t", COLUMNS)
FIRST = ("00000001:00000001:0001", "00000001:00000001:0002")


@pytest.mark.parametrize(
    "operations",
    [(3,), (4,), (3, 3, 4), (3, 1), (1, 4), (3, 4, 4), (2, 3)],
    ids=lambda found: "-".join(map(str, found)),
)
@pytest.mark.parametrize("cut", [0, 1])
def test_half_a_pair_stops_the_table(operations: tuple[int, ...], cut: int) -> None:
    batch = change_batch(PLAN, [(change(*FIRST, operation), [1, "a"]) for operation in operations])
    with pytest.raises(InvariantError, match=r"00000001:00000001:0001/00000001:00000001:0002 of TestDB\.dbo\.t"):
        changed(PLAN, batch.slice(0, cut), batch.slice(cut))


def test_large_batches_are_built_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(change(*FIRST, operation), [1, "x" * 20]) for operation in (3, 4) * 50]
    whole = changed(PLAN, change_batch(PLAN, rows))
    monkeypatch.setattr("cdc_assets.envelope.rows.PORTION_BYTES", 400)
    apart = changed(PLAN, change_batch(PLAN, rows))
    assert apart.column("value").num_chunks > 10
    assert apart.equals(whole)


def test_events_of_no_rows() -> None:
    batch = change_batch(PLAN, [(change(*FIRST, 2), [1, "a"])]).slice(0, 0)
    assert changed(PLAN, batch, batch).num_rows == 0
    assert changed(PLAN).num_rows == 0


def test_commit_time_is_the_server_s_wall_clock() -> None:
    from cdc_assets.envelope.changes import ChangeContext, build_changes

    batch = change_batch(PLAN, [(change(*FIRST, 2, at="2026-11-21T09:00:00.003"), [1, "a"])])
    (built,) = build_changes(PLAN, iter([batch]), ChangeContext(7, 120, lambda: 1_795_000_000_123_456_789))
    (event,) = built.to_pylist()
    assert event["window_id"] == 7
    assert event["value"]["source"]["ts_ms"] == 1795244400003
    assert event["value"]["source"]["ts_ns"] == 1795244400003000000
    assert [event["value"][name] for name in ("ts_ms", "ts_us", "ts_ns")] == [
        1_795_000_000_123,
        1_795_000_000_123_456,
        1_795_000_000_123_456_789,
    ]


def test_a_commit_without_time_has_none() -> None:
    meta = (*change(*FIRST, 2)[:5], None)
    (event,) = changed(PLAN, change_batch(PLAN, [(meta, [1, "a"])])).to_pylist()
    assert event["value"]["source"]["ts_ms"] is None


def test_rows_from_before_there_were_command_ids() -> None:
    meta = change(*FIRST, 2)
    (event,) = changed(PLAN, change_batch(PLAN, [((meta[0], None, *meta[2:]), [1, "a"])])).to_pylist()
    assert event["position"] == f"{FIRST[0]}/00000000/{FIRST[1]}/2"


def test_transaction_blocks_leave_tombstones_alone() -> None:
    rows = [(change(*FIRST, 1), [1, "a"]), (change(*FIRST, 2), [2, "a"])]
    (batch,) = changed(PLAN, change_batch(PLAN, rows)).combine_chunks().to_batches()
    assert data_events(batch).to_pylist() == [True, False, True]
    told = with_transactions(batch, pa.array([1, 0, 2]), pa.array([1, 0, 2])).to_pylist()
    assert [row["value"] and row["value"]["transaction"] for row in told] == [
        {"id": FIRST[0], "total_order": 1, "data_collection_order": 1},
        None,
        {"id": FIRST[0], "total_order": 2, "data_collection_order": 2},
    ]


LARGE = [
    column("id", "int", nullable=False),
    *(column(f"c{number}", "int") for number in range(9)),
    column("big", "varchar", length=-1),
    column("old", "text", nullable=False),
    column("blob", "varbinary", length=-1),
]
GONE = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    ("operation", "mask", "big", "old"),
    [
        (3, b"\0\1", GONE, GONE),
        (4, b"\0\1", GONE, GONE),
        (3, b"\x0c\0", None, GONE),
        (4, b"\x0c\0", None, ""),
        (4, b"\x04\0", None, GONE),
        (1, b"\x1f\xff", None, GONE),
        (2, b"\x1f\xff", None, ""),
        (4, b"\1", GONE, GONE),
    ],
)
def test_values_that_the_log_does_not_hold(operation: int, mask: bytes, big: str | None, old: str) -> None:
    """Column 11 of the mask is bit 2 of the last byte but one; a mask may be shorter than the table is wide."""
    plan = plan_of("t", LARGE)
    row = [1, *[None] * 9, None, None, b"x"]
    operations = {3: (3, 4), 4: (3, 4)}.get(operation, (operation,))
    events = changed(plan, change_batch(plan, [(change(*FIRST, op, mask=mask), row) for op in operations])).to_pylist()
    held = events[0]["value"]["before" if operation in (1, 3) else "after"]
    assert (held["big"], held["old"], held["blob"]) == (big, old, b"x")


@pytest.mark.parametrize("type_name", ["real", "float"])
def test_a_zero_whose_sign_changes_is_a_change(type_name: str) -> None:
    """As for the connector (Java's `Double.equals`), and for whoever reads keys as text."""
    columns = [column("id", type_name, nullable=False), column("size", type_name)]
    plan = plan_of("t", columns, settings=EventSettings("shop", skip_unchanged=True))
    for images, letters in (
        (([1.0, 0.0], [1.0, -0.0]), ["u"]),
        (([1.0, None], [1.0, None]), []),
        (([0.0, 2.0], [-0.0, 2.0]), ["d", "c"]),
    ):
        rows = [(change(*FIRST, op), image) for op, image in zip((3, 4), images, strict=True)]
        events = changed(plan, change_batch(plan, rows)).to_pylist()
        assert [event["value"]["op"] for event in events if event["value"]] == letters


def test_a_mask_does_not_hide_that_a_value_is_missing() -> None:
    from cdc_assets.config.settings import ColumnRule

    rule = ColumnRule("hash_v2", ("dbo.t.big",), algorithm="MD5", salt="s")
    plan = plan_of("t", LARGE, settings=EventSettings("shop", column_rules=(rule,), binary_mode="hex"))
    rows = [(change(*FIRST, op, mask=b"\0\1"), [1, *[None] * 9, None, "x", None]) for op in (3, 4)]
    (event,) = changed(plan, change_batch(plan, rows)).to_pylist()
    assert event["value"]["after"]["big"] == GONE
    assert bytes.fromhex(event["value"]["after"]["blob"]).decode() == GONE


FAR = [column("id", "int", nullable=False), column("at", "datetime2", scale=7, nullable=False)]


def test_times_out_of_range_by_failure_mode(caplog: pytest.LogCaptureFixture) -> None:
    rows = [(change(*FIRST, 2), [1, "2262-04-12T00:00:00.0"]), (change(*FIRST, 2), [2, "1970-01-01T00:00:00.1"])]
    for mode, told in (("warn", 1), ("skip", 1)):
        plan = plan_of("t", FAR, settings=replace(SHOP, conversion_failure=mode))  # type: ignore[arg-type]
        events = changed(plan, change_batch(plan, rows)).to_pylist()
        assert [event["value"]["after"]["at"] for event in events] == [None, 100_000_000]
        assert len(caplog.records) == told
    assert "TestDB.dbo.t.at: 1 values outside" in caplog.text
    plan = plan_of("t", FAR, settings=replace(SHOP, conversion_failure="fail"))
    with pytest.raises(InvalidValueError, match="2262-04-12T00:00:00Z"):
        changed(plan, change_batch(plan, rows))


@pytest.mark.parametrize("arrived", [pa.array([b"\x07" * 8]), pa.array(["2026-11-21"])], ids=["width", "type"])
def test_a_column_that_arrives_in_another_form_is_named(arrived: pa.Array) -> None:
    plan = plan_of("t", FAR)
    batch = change_batch(plan, [(change(*FIRST, 2), [1, "1970-01-01T00:00:00.1"])])
    batch = pa.RecordBatch.from_arrays([*batch.columns[:-1], arrived], names=batch.schema.names)
    with pytest.raises(InvariantError, match=r"TestDB\.dbo\.t\.at were received as (binary|string)"):
        changed(plan, batch)


def test_select_list_quotes_and_casts() -> None:
    plan = plan_of("t", [column("id", "int", nullable=False), column("a]t", "datetime2", scale=7)])
    text = change_select_list(plan, "ct", "[ltm].[tran_end_time]")
    assert text.endswith(
        "[ltm].[tran_end_time] AS [tran_end_time], [ct].[id] AS [id], CAST([ct].[a]]t] AS binary(9)) AS [a]]t]"
    )
    assert "[ct].[__$command_id] AS" in text
    assert "CAST(0 AS int) AS [__$command_id]" in change_select_list(plan, "ct", "NULL", command_id=False)


@pytest.mark.parametrize("rows", [[], [4], [3, 2, 1], [1, 3, 5], [0, 1, 2], [1, 3, 6], [5, 5, 5]])
def test_rows_at_equal_distances_are_picked_as_a_slice(rows: list[int]) -> None:
    numbers = np.array(rows, np.int64)
    assert np.arange(10)[spaced(numbers)].tolist() == rows


def test_updates_are_picked_without_a_copy() -> None:
    assert spaced(np.array([1, 3, 5])) == slice(1, 6, 2)
