"""What signals mean and what they change."""

import json
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.signal import Signal
from cdc_assets.ledger.codec import decode, encode
from cdc_assets.ledger.signal_state import SignalState
from cdc_assets.signals import tables as tables_module
from cdc_assets.signals.apply import Outcome, apply
from cdc_assets.signals.model import Problem, parse
from cdc_assets.signals.notices import ends

TABLES = [TableId("SalesDb", "dbo", name) for name in ("lines", "orders", "Orders2")]


def execute(own_id: str, *collections: str, **more: object) -> Signal:
    return Signal(own_id, "execute-snapshot", json.dumps({"data-collections": collections, **more}))


def condition(text: str, **more: str) -> str:
    """Data of a signal with a condition."""
    return json.dumps({"data-collections": ["t"], "additional-condition": text, **more})


TWO = execute("two", "SalesDb.dbo.lines", "SalesDb.dbo.orders")
SLOW = r"(?:.|..)*(?=!)"
"""Tries all ways of cutting a name into ones and twos."""


def applied(*signals: Signal, state: SignalState | None = None) -> Outcome:
    return apply(state or SignalState(), [parse(signal) for signal in signals], TABLES, Lsn(bytes(10)))


def queued(outcome: Outcome) -> list[str]:
    return [entry.table.table for entry in outcome.state.queue]


def test_tables_are_queued_in_the_order_of_the_expressions() -> None:
    outcome = applied(execute("a", r"SalesDb\.dbo\.o.*", "SalesDb.dbo.lines"))
    assert queued(outcome) == ["orders", "lines"]
    assert [told.kind for told in outcome.notices] == ["STARTED"]


def test_letter_case_counts_and_unknown_tables_are_reported() -> None:
    outcome = applied(execute("a", "SalesDb.dbo.LINES"))
    assert queued(outcome) == []
    assert [told.kind for told in outcome.notices] == ["STARTED", "TABLE_SCAN_COMPLETED", "ABORTED"]
    assert outcome.notices[1].data["status"] == "UNKNOWN_SCHEMA"
    assert "expected database.schema.table, or schema.table" in outcome.warnings[0]
    assert str(TABLES[0]) in outcome.warnings[0]


def test_two_parts_mean_a_table_where_no_three_do() -> None:
    conditions = [{"data-collection": "dbo[.]orders", "filter": "id > 1"}]
    outcome = applied(execute("a", "dbo.lines", "dbo.o.*", **{"additional-conditions": conditions}))
    assert [(entry.table.table, entry.condition) for entry in outcome.state.queue] == [
        ("lines", ""),
        ("orders", "id > 1"),
    ]
    assert not outcome.warnings
    stopped = applied(execute("b", "dbo.x"), Signal("c", "stop-snapshot", '{"data-collections": ["dbo.lines", "dbo.x"]}'),
                      state=outcome.state)  # fmt: skip
    assert queued(stopped) == ["orders"]
    assert "'dbo.x' matches no table of the incremental snapshot" in stopped.warnings[-1]
    whole = TableId("dbo", "orders", "lines")  # three parts win over two
    [entry] = apply(SignalState(), [parse(execute("d", "dbo.orders.*"))], [*TABLES, whole], None).state.queue
    assert entry.table == whole


@pytest.mark.parametrize("name", ['"SalesDb"."dbo"."My.Table"', "[SalesDb].[dbo].[My.Table]", "SalesDb.dbo.My.Table"])
def test_a_name_with_dots_may_stand_in_quotes(name: str) -> None:
    table = TableId("SalesDb", "dbo", "My.Table")
    asked = execute("a", name, **{"additional-conditions": [{"data-collection": name, "filter": "id > 1"}]})
    [entry] = apply(SignalState(), [parse(asked)], [*TABLES, table], Lsn(bytes(10))).state.queue
    assert (entry.table, entry.condition) == (table, "id > 1")


def test_a_queued_table_and_a_repeated_request_are_ignored() -> None:
    request = replace(execute("a", "SalesDb.dbo.lines"), once=True)
    outcome = applied(request, execute("b", "SalesDb.dbo.lines"), replace(request, data=TWO.data))
    assert [(entry.table.table, entry.signal) for entry in outcome.state.queue] == [("lines", "a")]
    assert "already carried out" in outcome.warnings[0]


def test_ids_may_repeat() -> None:
    """The pair of the connector's documents has one id."""
    stop = Signal("ad-hoc-1", "stop-snapshot", '{"data-collections": ["dbo.lines"], "type": "INCREMENTAL"}')
    outcome = applied(replace(TWO, id="ad-hoc-1"), stop, replace(stop, data=None), replace(TWO, id="ad-hoc-1"))
    assert [told.kind for told in outcome.notices] == ["STARTED", "ABORTED", "ABORTED", "STARTED"]
    assert queued(outcome) == ["lines", "orders"]
    assert not outcome.warnings


def test_a_signal_of_which_one_table_is_unknown_does_not_end_well() -> None:
    state = applied(execute("a", "dbo.lines", "dbo.x"), execute("b", "dbo.orders")).state
    assert state.failed == (("a", "dbo.x"),)
    told, after = ends("a", replace(state, queue=state.queue[1:]))
    assert [(one.kind, one.signal, one.data["data_collections"]) for one in told] == [("ABORTED", "a", "dbo.x")]
    told, _ = ends("b", replace(after, queue=()))
    assert [(one.kind, one.signal) for one in told] == [("COMPLETED", "b")]


def test_conditions_belong_to_the_first_match() -> None:
    conditions = [{"data-collection": "SalesDb.dbo.lines", "filter": "qty > 10"}]
    outcome = applied(execute("a", ".*", **{"additional-conditions": conditions, "surrogate-key": "no"}))
    assert {entry.table.table: entry.condition for entry in outcome.state.queue} == {
        "lines": "qty > 10", "orders": "", "Orders2": "",
    }  # fmt: skip
    assert {entry.surrogate for entry in outcome.state.queue} == {"no"}


def test_the_older_form_of_a_condition_holds_for_all_tables_and_alone() -> None:
    newer = [{"data-collection": "SalesDb.dbo.lines", "filter": "qty > 10"}]
    asked = execute("a", ".*", **{"additional-condition": "color = 'blue'", "additional-conditions": newer})
    assert {entry.condition for entry in applied(asked).state.queue} == {"color = 'blue'"}
    assert {entry.condition for entry in applied(execute("a", ".*", **{"additional-condition": " "})).state.queue} == {
        ""
    }


def test_a_blocking_snapshot_waits_beside_the_queue() -> None:
    select = "SELECT * FROM SalesDb.dbo.lines WHERE qty > 10"
    conditions = [{"data-collection": "SalesDb.dbo.lines", "filter": select}]
    wanted = execute("a", ".*lines", ".*orders", "nothing", type="BLOCKING", **{"additional-conditions": conditions})
    outcome = applied(wanted)
    assert [(entry.signal, [(table.table, text) for table, text in entry.tables]) for entry in outcome.state.blocking] == [
        ("a", [("lines", select), ("orders", "")])
    ]  # fmt: skip
    assert not outcome.state.queue
    assert not outcome.notices
    assert len(outcome.warnings) == 1
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
    assert (everything.notices[-1].kind, everything.notices[-1].signal) == ("ABORTED", "a")
    assert "stop ignored" in applied(Signal("g", "stop-snapshot", "{}")).warnings[0]


def test_log_tells_the_position() -> None:
    assert applied(Signal("a", "log", '{"message": "here: {}"}')).lines == [f"here: commit_lsn={Lsn(bytes(10))}"]


def test_a_message_for_the_log_is_one_line_and_commands_no_terminal() -> None:
    data = json.dumps({"message": "well\nERROR all is lost\x1b[2J\u2028\u202e"})
    assert applied(Signal("a", "log", data)).lines == ["well\ufffdERROR all is lost\ufffd[2J\ufffd\ufffd"]


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
        ("execute-snapshot", '{"data-collections": ["("]}', "invalid regular expression"),
        ("execute-snapshot", '{"data-collections": ["t"], "type": "full"}', "neither"),
        ("execute-snapshot", '{"data-collections": ["t"], "surrogate-key": ["a"]}', "surrogate"),
        ("execute-snapshot", '{"data-collections": ["t"], "additional-conditions": [{}]}', "lacks"),
        ("stop-snapshot", '{"type": "blocking"}', "only incremental"),
        ("log", "{}", "message"),
        ("log", "[" * 100_000, "cannot be parsed"),
        ("log", '{"message": "\\ud800"}', "half a surrogate pair"),
        ("log", '{"message": "\ud800"}', "half a surrogate pair"),
        ("log", '{"message": "\\u0000"}', "U+0000"),
        ("log", f'{{"message": {"9" * 5000}}}', "digits"),
        ("log", f'{{"message": "{"x" * 1_000_000}"}}', "1000015 characters"),
        ("stop-snapshot", f'{{"type": "{"x" * 10_000}"}}', "neither"),
        ("execute-snapshot", json.dumps({"data-collections": ["t"] * 1001}), "more than 1000 entries"),
        ("execute-snapshot", json.dumps({"data-collections": ["(" * 10_000]}), "does not compile"),
        ("execute-snapshot", json.dumps({"data-collections": ["a{99999999999}"]}), "does not compile"),
        ("execute-snapshot", '{"data-collections": ["t"], "surrogate-key": "\\udc00"}', "half a surrogate pair"),
        ("execute-snapshot", '{"data-collections": ["t"], "additional-condition": "a = \'\\ud83d\'"}', "surrogate"),
        ("execute-snapshot", condition("1=1) DROP TABLE a SELECT (1"), "one predicate"),
        ("execute-snapshot", condition("1=1", type="blocking"), "one SELECT statement"),
        ("execute-snapshot", condition("DROP TABLE a SELECT 1", type="blocking"), "one SELECT statement"),
    ],
)
def test_nonsense_is_skipped_with_the_reason(kind: str, data: str, reason: str) -> None:
    found = parse(Signal("a", kind, data)).request
    assert isinstance(found, Problem)
    assert reason in found.reason
    assert len(found.reason) < 600
    assert applied(Signal("a", kind, data)).state.queue == ()


def test_an_expression_that_tries_all_ways_is_skipped_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_module, "_MATCHING_S", 0.1)
    table = TableId("SalesDb", "dbo", "a" * 100)
    slow = [
        execute("a", SLOW),
        execute("b", ".*", **{"additional-conditions": [{"data-collection": SLOW, "filter": "1=1"}]}),
    ]
    begun = time.monotonic()
    outcome = apply(
        SignalState(), [parse(signal) for signal in (*slow, *slow, execute("c", "dbo.orders"))], [table, *TABLES], None
    )
    assert time.monotonic() - begun < 20
    assert ["takes too long" in warning for warning in outcome.warnings] == [True] * 4
    assert queued(outcome) == ["orders"]


def test_what_many_wrong_names_and_long_conditions_leave_is_bounded() -> None:
    many = applied(execute("a", *(f"dbo.x{n}" for n in range(1000))))
    assert (len(many.notices), len(many.warnings), len(many.state.failed)) == (22, 20, 0)
    tables = [TableId("SalesDb", "dbo", f"t{n}") for n in range(100)]
    condition = {"additional-condition": "x" * 100_000}
    outcome = apply(SignalState(), [parse(execute("a", ".*", **condition))], tables, None)
    assert not outcome.state.queue
    assert "more than" in outcome.warnings[0]


@given(st.text(max_size=20), st.sampled_from(["execute-snapshot", "stop-snapshot", "log", ""]), st.text(max_size=60))
def test_nothing_raises(own_id: str, kind: str, data: str) -> None:
    applied(Signal(own_id, kind, data))


def test_state_survives_the_manifest() -> None:
    state = applied(execute("a", ".*", **{"surrogate-key": "no"}), execute("b", ".*", type="blocking")).state
    assert decode(SignalState, json.loads(json.dumps(encode(state)))) == state
