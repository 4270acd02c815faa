"""Recorded lists of tables: they become few, and the same tables lack rows."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import process_time

from hypothesis import example, given, settings
from hypothesis import strategies as some

from cdc_assets.connectors.engine.ledger import FOLDING, Batch, BatchState
from cdc_assets.connectors.engine.row_reads import lacking, still_read
from cdc_assets.core.identifiers import TableId
from cdc_assets.ledger.codec import encode
from cdc_assets.ledger.fenced_log import Row
from cdc_assets_tests.unit.connectors.engine.batches import config_for

EXAMPLES = settings(max_examples=5 * int(os.environ.get("CDC_LAW_EXAMPLES", "20")), deadline=None)
CLASS = "io.debezium.connector.mysql.MySqlConnector"
CONFIG = replace(config_for(Path("lake")), properties={"connector.class": CLASS})
NAMES = ("a", "b", "ab", "A", "axb", "a_b")
TABLES = [TableId("db", "", name) for name in (*NAMES, "a.b", "c")]
ITEMS = (
    "db.a",
    r"db\.a",
    "db.b",
    "db.a.b",
    "db.a_b",
    r"db\.a\.b",
    "db.*",
    "db.a.*",
    ".*b",
    "(?-i:db.A)",
    r"db\.(?<![a-z]{2,})a",
    "db.[",
)
Lists = Mapping[str, str]


def planned(batch: Batch) -> Row:
    return {"event": "planned", "detail": json.dumps({"batch": encode(batch)}), "at": datetime(2026, 1, 1, tzinfo=UTC)}


@some.composite
def lists_of_tables(draw: some.DrawFn) -> Lists:
    kinds = some.sampled_from(["table.include.list", "table.exclude.list", "database.include.list"])
    items = some.lists(some.sampled_from(ITEMS), max_size=3).map(",".join)
    found = draw(some.dictionaries(kinds, items, max_size=2))
    return {name: "db,d.*" if name.startswith("database") else text for name, text in found.items()}


Change = tuple[Lists | None, frozenset[str]]
CHANGES = some.lists(
    some.tuples(some.none() | lists_of_tables(), some.frozensets(some.sampled_from(NAMES), max_size=2)), max_size=12
)


def states(first: Lists, changes: list[Change]) -> tuple[BatchState, list[Lists], dict[str, int]]:
    """What is recorded, and all lists and reads as they came."""
    state = FOLDING.state([planned(Batch(0, {}, [], 1, anew=True, lists=first))])
    lists, read_at = [first], dict[str, int]()
    for number, (one, names) in enumerate(changes, 1):
        lists += [] if one is None else [one]
        own = {f"db.{name}" for name in names}
        read_at |= dict.fromkeys(own, len(lists) - 1)
        assert state.lists is not None
        known = [state.lists, *state.later_lists]
        kept = [] if one is None else still_read(CONFIG, [*known, one], state.read_at)
        batch = Batch(number, {}, [], 1, lists=one, read=sorted(own.union(kept)))
        state = FOLDING.onward([planned(batch)], state)
    return state, lists, read_at


@EXAMPLES
@example({"table.include.list": "db.a"}, [({"table.include.list": "(?-i:db.A)"}, frozenset()), ({}, frozenset())])
@given(lists_of_tables(), CHANGES)
def test_the_same_tables_lack_rows(first: Lists, changes: list[Change]) -> None:
    state, lists, read_at = states(first, changes)
    assert state.lists is not None
    known = (state.lists, *state.later_lists)
    assert known[-1] == lists[-1]
    few, all_ = lacking(CONFIG, known, state.read_at), lacking(CONFIG, lists, read_at)
    assert [table for table in TABLES if few(table)] == [table for table in TABLES if all_(table)]


def test_lists_that_change_for_ever_do_not_grow() -> None:
    """Each time a table comes and is read, or another one takes its place."""
    growing = [
        ({"table.include.list": ",".join(f"db.t{one}" for one in range(n))}, frozenset([f"t{n - 1}"]))
        for n in range(2, 40)
    ]
    state, *_ = states({"table.include.list": "db.t0"}, list[Change](growing))
    assert len(state.later_lists) <= 2
    others: list[Change] = [({"table.include.list": f"db.a,db.t{n}"}, frozenset()) for n in range(40)]
    state, *_ = states({}, others)
    assert len(state.later_lists) <= 2
    left: list[Change] = [({"table.exclude.list": f"db.t{n % 5}"}, frozenset([f"t{(n + 1) % 5}"])) for n in range(40)]
    state, *_ = states({}, left)
    assert len(state.later_lists) <= 6


def test_very_long_lists_in_two_spellings_are_judged_soon() -> None:
    numbers = range(2000)
    plain = {"table.include.list": ",".join(f"db.t{n}" for n in numbers)}
    quoted = {"table.include.list": ",".join(rf"db\.t{n}" for n in numbers if n != 7)}
    begun = process_time()
    state, lists, read_at = states(plain, [(quoted, frozenset()), (plain, frozenset()), (plain, frozenset(["a"]))])
    assert process_time() - begun < 5
    assert state.lists is not None
    few = lacking(CONFIG, (state.lists, *state.later_lists), state.read_at)
    all_ = lacking(CONFIG, lists, read_at)
    tables = [TableId("db", "", name) for name in ("t6", "t7", "t2000")]
    assert [few(table) for table in tables] == [all_(table) for table in tables] == [False, True, True]
