"""Random histories of a small table, and what they make of it, row by row."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as some

from cdc_assets.core.lsn import Lsn
from cdc_assets.lake.keys import KeyPart
from cdc_assets.lake.row_shape import CHANGED_AT, MISSING, OPERATION, POSITION
from cdc_assets.mirror.shape import Shape, ShapeColumn

KEYED = Shape(
    (ShapeColumn("id", pa.int32(), False), ShapeColumn("a", pa.string()), ShapeColumn("big", pa.string(), large=True)),
    (KeyPart("id"),),
)
KEYLESS = Shape(
    (ShapeColumn("id", pa.int32()), ShapeColumn("a", pa.string())), (KeyPart("id"), KeyPart("a")), keyed=False
)

Row = dict[str, Any]


def lsn(number: int) -> str:
    return str(Lsn.from_int(number))


@dataclass(frozen=True)
class Step:
    """One event: what happens to a row, in which transaction.

    Args:
        kind: `c`, `u`, `d`, or `r` for a READ of the row as it is.
        omitted: whether the log omits the large value, which did not change.
    """

    commit: int
    kind: str
    row: Row
    before: Row | None = None
    omitted: bool = False


@some.composite
def histories(draw: some.DrawFn, *, keyed: bool = True, most: int = 40) -> list[Step]:
    """Changes of a few rows that a server could have logged, in order."""
    rows: dict[int, Row] = {}
    copies: list[Row] = []
    steps, commit = list[Step](), 1
    for _ in range(draw(some.integers(0, most))):
        commit += draw(some.booleans())
        key, value, big = (
            draw(some.integers(1, 5)),
            draw(some.sampled_from("xyz")),
            draw(some.sampled_from(["B", "C", None])),
        )
        if not keyed:
            steps += _of_copies(draw, commit, copies, {"id": key, "a": value})
            continue
        own = rows.get(key)
        if own is None:
            rows[key] = {"id": key, "a": value, "big": big}
            steps.append(Step(commit, "c", rows[key]))
            continue
        kind = draw(some.sampled_from("uuudr"))
        if kind == "d":
            steps.append(Step(commit, "d", rows.pop(key)))
        elif kind == "r":
            steps.append(Step(commit, "r", own))
        else:
            omitted = draw(some.booleans())
            rows[key] = {"id": key, "a": value, "big": own["big"] if omitted else big}
            steps.append(Step(commit, "u", rows[key], own, omitted))
    return steps


def _of_copies(draw: some.DrawFn, commit: int, copies: list[Row], new: Row) -> list[Step]:
    kind = draw(some.sampled_from("ccud")) if copies else "c"
    if kind == "c":
        copies.append(new)
        return [Step(commit, "c", new)]
    old = copies.pop(draw(some.integers(0, len(copies) - 1)))
    if kind == "d":
        return [Step(commit, "d", old)]
    copies.append(new)
    return [Step(commit, "u", new, old)]


def events(shape: Shape, steps: list[Step]) -> pa.Table:
    """Steps as events in natural types."""
    rows: list[Row] = []
    for number, step in enumerate(steps):
        position = f"{lsn(step.commit)}/{number:08x}/{lsn(number)}/0"
        if not shape.keyed and step.kind == "u":
            rows.append({**(step.before or {}), POSITION: position, OPERATION: "-"})
        values = dict(step.row)
        if shape.keyed:
            values |= {MISSING + "big": step.omitted}
            if step.omitted:
                values["big"] = "__unavailable"
        rows.append({**values, POSITION: position, OPERATION: step.kind, CHANGED_AT: None})
    return pa.Table.from_pylist(rows, schema=shape.events)


def rows_after(steps: list[Step], commit: int) -> dict[int, Row]:
    """The rows of a table with a key after a commit."""
    rows: dict[int, Row] = {}
    for step in steps:
        if step.commit <= commit:
            if step.kind == "d":
                del rows[step.row["id"]]
            else:
                rows[step.row["id"]] = step.row
    return rows


def copies_after(steps: list[Step], commit: int) -> Counter[tuple[int, str]]:
    """The rows of a table without a key after a commit, and how many there are of each."""
    copies: Counter[tuple[int, str]] = Counter()
    for step in steps:
        if step.commit <= commit:
            if step.before is not None:
                copies[step.before["id"], step.before["a"]] -= 1
            copies[step.row["id"], step.row["a"]] += -1 if step.kind == "d" else 1
    return +copies
