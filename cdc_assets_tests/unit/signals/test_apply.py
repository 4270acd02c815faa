"""What signals mean and what they change."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.lake.codec import decode, encode
from cdc_assets.signals.apply import Outcome, apply
from cdc_assets.signals.model import Problem, Signal, parse
from cdc_assets.signals.state import SignalState

TABLES = [TableId("SalesDb", "dbo", name) for name in ("lines", "orders", "Orders2")]


def execute(own_id: str, *collections: str, **more: object) -> Signal:
    return Signal(own_id, "execute-snapshot", json.dumps({"data-collections": collections, **more}))


def applied(*signals: Signal, state: SignalState | None = None) -> Outcome:
    return apply(state or SignalState(), signals, TABLES, Lsn(bytes(10)))


def queued(outcome: Outcome) -> list[str]:
    return [entry.table.table for entry in outcome.state.queue]


def test_tables_are_queued_in_the_order_of_the_expressions() -> None:
    outcome = applied(execute("a", r"SalesDb\.dbo\.o.*", "SalesDb.dbo.lines"))
    assert queued(outcome) == ["orders", "lines"]
    assert [told.kind for told in outcome.told] == ["STARTED"]


def test_letter_case_counts_and_unknown_tables_are_told() -> None:
    outcome = applied(execute("a", "SalesDb.dbo.LINES"))
    assert queued(outcome) == []
    assert [told.kind for told in outcome.told] == ["STARTED", "TABLE_SCAN_COMPLETED", "COMPLETED"]
    assert outcome.told[1].data["status"] == "UNKNOWN_SCHEMA"


@pytest.mark.parametrize("name", ['"SalesDb"."dbo"."My.Table"', "[SalesDb].[dbo].[My.Table]", "SalesDb.dbo.My.Table"])
def test_a_name_with_dots_may_stand_in_quotes(name: str) -> None:
    table = TableId("SalesDb", "dbo", "My.Table")
    asked = execute("a", name, **{"additional-conditions": [{"data-collection": name, "filter": "id > 1"}]})
    [entry] = apply(SignalState(), [asked], [*TABLES, table], Lsn(bytes(10))).state.queue
    assert (entry.table, entry.condition) == (table, "id > 1")


def test_a_queued_table_and_a_known_id_are_ignored() -> None:
    outcome = applied(
        execute("a", "SalesDb.dbo.lines"), execute("b", "SalesDb.dbo.lines"), execute("a", "SalesDb.dbo.orders")
    )
    assert [(entry.table.table, entry.signal) for entry in outcome.state.queue] == [("lines", "a")]
    assert "before" in outcome.warnings[0]


def test_conditions_belong_to_the_first_match() -> None:
    conditions = [{"data-collection": "SalesDb.dbo.lines", "filter": "qty > 10"}]
    outcome = applied(execute("a", ".*", **{"additional-conditions": conditions, "surrogate-key": "no"}))
    assert {entry.table.table: entry.condition for entry in outcome.state.queue} == {
        "lines": "qty > 10", "orders": "", "Orders2": "",
    }  # fmt: skip
    assert {entry.surrogate for entry in outcome.state.queue} == {"no"}


def test_a_blocking_snapshot_waits_beside_the_queue() -> None:
    select = "SELECT * FROM SalesDb.dbo.lines WHERE qty > 10"
    conditions = [{"data-collection": "SalesDb.dbo.lines", "filter": select}]
    wanted = execute("a", ".*lines", ".*orders", "nothing", type="BLOCKING", **{"additional-conditions": conditions})
    outcome = applied(wanted, wanted)
    assert [(entry.signal, [(table.table, text) for table, text in entry.tables]) for entry in outcome.state.blocking] == [
        ("a", [("lines", select), ("orders", "")])
    ]  # fmt: skip
    assert not outcome.state.queue
    assert not outcome.told
    assert len(outcome.warnings) == 2
    assert not applied(execute("b", "nothing", type="blocking")).state.blocking


def test_stop_pause_resume() -> None:
    outcome = applied(execute("a", ".*"), Signal("b", "pause-snapshot", "{}"), Signal("c", "pause-snapshot", None))
    assert outcome.state.paused
    assert "ignored" in outcome.warnings[0]
    some = applied(Signal("d", "stop-snapshot", '{"data-collections": ["SalesDb.dbo.orders"]}'), state=outcome.state)
    assert queued(some) == ["lines", "Orders2"]
    assert some.state.paused
    assert not applied(Signal("e", "resume-snapshot", '{"type": "INCREMENTAL"}'), state=some.state).state.paused
    everything = applied(Signal("f", "stop-snapshot", None), state=some.state)
    assert not everything.state.queue
    assert not everything.state.paused
    assert (everything.told[-1].kind, everything.told[-1].signal) == ("ABORTED", "a")
    assert "stop ignored" in applied(Signal("g", "stop-snapshot", "{}")).warnings[0]


def test_log_tells_the_position() -> None:
    assert applied(Signal("a", "log", '{"message": "here: {}"}')).lines == [f"here: commit_lsn={Lsn(bytes(10))}"]


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("execute-snapshots", "{}", "not recognized"),
        ("set-binlog-position", "{}", "not recognized"),
        ("execute-snapshot", "{", "cannot be parsed"),
        ("execute-snapshot", "[]", "not a JSON object"),
        ("execute-snapshot", "{}", "data-collections"),
        ("execute-snapshot", '{"data-collections": []}', "data-collections"),
        ("execute-snapshot", '{"data-collections": "t"}', "data-collections"),
        ("execute-snapshot", '{"data-collections": ["("]}', "no regular expression"),
        ("execute-snapshot", '{"data-collections": ["t"], "type": "full"}', "neither"),
        ("execute-snapshot", '{"data-collections": ["t"], "surrogate-key": ["a"]}', "surrogate"),
        ("execute-snapshot", '{"data-collections": ["t"], "additional-conditions": [{}]}', "lacks"),
        ("stop-snapshot", '{"type": "blocking"}', "only incremental"),
        ("log", "{}", "message"),
        ("log", "[" * 100_000, "cannot be parsed"),
    ],
)
def test_nonsense_is_skipped_with_the_reason(kind: str, data: str, reason: str) -> None:
    found = parse(Signal("a", kind, data))
    assert isinstance(found, Problem)
    assert reason in found.reason
    assert len(found.reason) < 600
    assert applied(Signal("a", kind, data)).state.queue == ()


@given(st.text(max_size=20), st.sampled_from(["execute-snapshot", "stop-snapshot", "log", ""]), st.text(max_size=60))
def test_nothing_raises(own_id: str, kind: str, data: str) -> None:
    applied(Signal(own_id, kind, data))


def test_state_survives_the_manifest() -> None:
    state = applied(execute("a", ".*", **{"surrogate-key": "no"}), execute("b", ".*", type="blocking")).state
    assert decode(SignalState, json.loads(json.dumps(encode(state)))) == state
