"""When a second capture instance takes over from the first, what is then known, and what nobody can know."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.config.settings import NotificationSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.ledger.table_state import TableState
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of, rows_of_topic
from cdc_assets_tests.unit.streaming.law import check, state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer
from cdc_assets_tests.unit.streaming.tables import HAND_OVER, started, stream_until, told

V1, V2 = "dbo_orders", "dbo_orders_2"


def second(server: SimulatedServer, orders: TableId) -> None:
    """A column more, and an instance that has it."""
    server.add_column(orders, "state")
    server.enable(orders)


def by_a_transaction_of_another_table(server: SimulatedServer, lines: TableId) -> None:
    server.commit((lines, "insert", 11, "b"))


def by_the_capture_job_alone(server: SimulatedServer, lines: TableId) -> None:
    server.idle_tick()


PASSING = [by_a_transaction_of_another_table, by_the_capture_job_alone]


@pytest.mark.parametrize("pass_its_start", PASSING, ids=lambda way: way.__name__)
def test_quiet_table_is_handed_over_when_the_log_has_passed_the_start(
    tmp_path: Path, pass_its_start: Callable[[SimulatedServer, TableId], None]
) -> None:
    server, config, lines, orders = started(tmp_path)
    made = list(server.instances)
    second(server, orders)
    made.append(server.instances[-1])
    make_capture(server, config).stream()
    assert state_of(config).tables[orders].instance == V1, "the log has not passed it"

    pass_its_start(server, lines)
    capture = make_capture(server, config)
    assert capture.stream().troubled == ()
    assert state_of(config).tables[orders].instance == V2
    assert told(config)[-1] == ("ALTER", "orders")
    assert [column.name for column in capture.structures()[orders].columns] == ["id", "note", "state"]

    make_capture(server, config).stream()
    assert told(config).count(("ALTER", "orders")) == 1
    server.disable(V1)
    server.commit((orders, "insert", 12, "c"))
    assert make_capture(server, config).stream().troubled == ()
    check(server, config, made)


def test_running_loop_hands_over_before_the_idle_check_is_due(tmp_path: Path) -> None:
    server, config, _, orders = started(tmp_path, idle_timeout_s=12.0)
    begun = server.now
    steps = iter([lambda: second(server, orders), server.idle_tick, lambda: server.disable(V1)])
    due = [begun.timestamp() + wait for wait in (1, 2, 10)]

    def play() -> bool:
        if due and server.now.timestamp() > due[0]:
            due.pop(0)
            next(steps)()
        return False

    assert make_capture(server, config).stream(should_yield=play).troubled == ()
    assert due == []
    assert state_of(config).tables[orders].instance == V2


@pytest.mark.parametrize("step", [*HAND_OVER[:-1], "window-complete"])
def test_each_step_of_a_hand_over_without_rows_may_be_the_last(tmp_path: Path, step: str) -> None:
    server, config, _, orders = started(tmp_path)
    made = list(server.instances)
    second(server, orders)
    made.append(server.instances[-1])
    server.idle_tick()
    stream_until(server, config, step)
    server.commit((orders, "insert", 12, "c"))
    assert make_capture(server, config).stream().troubled == ()
    assert told(config).count(("ALTER", "orders")) == 1
    check(server, config, made)


def test_second_instance_that_is_dropped_before_it_is_read_leaves_the_first(tmp_path: Path) -> None:
    server, config, lines, orders = started(tmp_path)
    made = list(server.instances)
    second(server, orders)
    server.commit((lines, "insert", 11, "b"), (orders, "insert", 11, "b"))
    stream_until(server, config, "window-planned")
    server.disable(V2)
    server.commit((orders, "insert", 12, "c"))
    assert make_capture(server, config).stream().troubled == ()
    assert state_of(config).tables[orders].instance == V1
    check(server, config, made)


# what leaves the same catalogue behind, with and without a change that nobody holds


def dropped_before_the_log_passed_the_start(server: SimulatedServer, orders: TableId) -> str:
    second(server, orders)
    server.disable(V1)
    return f"{V1} was dropped before it was completely read, and {V2} begins at"


def dropped_with_a_change_unread(server: SimulatedServer, orders: TableId) -> str:
    server.commit((orders, "insert", 50, "lost"))
    return dropped_before_the_log_passed_the_start(server, orders)


def changed_while_there_was_none(server: SimulatedServer, orders: TableId) -> str:
    server.disable(V1)
    server.commit((orders, "insert", 50, "lost"))
    server.enable(orders, V2)
    return f"{V1} was dropped before it was completely read, and {V2} begins at"


def disabled_and_enabled_again(server: SimulatedServer, orders: TableId) -> str:
    server.disable(V1)
    server.commit((orders, "insert", 50, "lost"))
    server.enable(orders)
    return f"{V1} was disabled and enabled again, and begins at"


def cleaned_up(server: SimulatedServer, orders: TableId) -> str:
    server.commit((orders, "insert", 50, "lost"))
    assert server.captured is not None
    server.clean_up(server.captured.next())
    return "were removed by the clean-up job"


LOSING = [
    dropped_before_the_log_passed_the_start,
    dropped_with_a_change_unread,
    changed_while_there_was_none,
    disabled_and_enabled_again,
    cleaned_up,
]


@pytest.mark.parametrize("lose", LOSING, ids=lambda lose: lose.__name__)
def test_what_nobody_can_know_is_a_gap_that_tells_what_happened(
    tmp_path: Path, lose: Callable[[SimulatedServer, TableId], str]
) -> None:
    server, config, lines, orders = started(tmp_path)
    cause = lose(server, orders)
    server.commit((lines, "insert", 60, "b"), (orders, "insert", 60, "b"))
    make_capture(server, config).stream()
    state = state_of(config).tables[orders]
    assert state.status == "gap"
    assert cause in state.reason
    assert ("clean-up" in state.reason) == (lose is cleaned_up)

    make_capture(server, config).snapshot([orders])
    server.commit((orders, "insert", 70, "after"))
    make_capture(server, config).stream()
    assert events_of(config, orders)[-1].key == 70
    cause = disabled_again(server, orders, state_of(config).tables[orders])
    server.commit((orders, "insert", 80, "b"))
    make_capture(server, config).stream()
    assert cause in state_of(config).tables[orders].reason


def disabled_again(server: SimulatedServer, orders: TableId, state: TableState) -> str:
    """The instance that the table is read from now, made anew under its name."""
    assert state.instance
    server.disable(state.instance)
    server.enable(orders, state.instance)
    return f"{state.instance} was disabled and enabled again"


def test_reason_is_right_after_a_hand_over_too(tmp_path: Path) -> None:
    server, config, lines, orders = started(tmp_path)
    second(server, orders)
    server.commit((lines, "insert", 11, "b"))
    make_capture(server, config).stream()
    server.disable(V1)
    cause = disabled_again(server, orders, state_of(config).tables[orders])
    server.commit((orders, "insert", 80, "b"))
    [trouble] = make_capture(server, config).stream().troubled
    assert cause in trouble.reason


def test_older_instance_that_comes_back_into_use_is_a_hand_over(tmp_path: Path) -> None:
    server, config, lines, orders = started(tmp_path)
    second(server, orders)
    server.commit((lines, "insert", 11, "b"))
    make_capture(server, config).stream()
    server.disable(V2)
    server.commit((orders, "insert", 12, "c"))
    assert make_capture(server, config).stream().troubled == ()
    assert state_of(config).tables[orders].instance == V1
    assert events_of(config, orders)[-1].key == 12


def test_hand_over_is_reported_to_whoever_drops_the_first_instance(tmp_path: Path) -> None:
    server, config, _, orders = started(tmp_path)
    config = replace(config, notifications=NotificationSettings(("sink",), "notes"))
    second(server, orders)
    server.idle_tick()
    make_capture(server, config).stream()
    [note] = [row["value"] for row in rows_of_topic(config, "notes")]
    assert dict(note["additional_data"])["capture_instance"] == V1  # type: ignore[index]
