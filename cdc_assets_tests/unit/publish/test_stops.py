"""A topic that is stopped keeps its place, whatever stopped it, and whatever other topics do meanwhile."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.publish.offset import parse_published
from cdc_assets.publish.rows import TopicRows
from cdc_assets_tests.unit.publish.memory import MemoryBroker
from cdc_assets_tests.unit.retention.world import HOURS, World, publish_all, publisher, require_published
from cdc_assets_tests.unit.streaming.lake_reader import events_of


class Case(NamedTuple):
    """A stop in a lake with two topics.

    Args:
        stopped: topics that are to stop.
    """

    world: World
    broker: MemoryBroker
    patch: pytest.MonkeyPatch
    stopped: tuple[str, ...]

    def end(self) -> None:
        """Remove the cause."""
        self.patch.undo()
        self.broker.refuses = lambda _topic, _record: ""
        self.broker.at_commit.clear()
        self.broker.unwritable.clear()


def at_send(case: Case) -> None:
    second = {sorted(case.world.ever[table])[1] for table in stopped(case)}
    case.broker.refuses = lambda topic, record: (
        "it is refused" if topic in case.stopped and record.position in second else ""
    )


def at_send_and_at_commit(case: Case) -> None:
    """The record has ended the transaction."""
    at_send(case)
    at_commit(case)


def at_its_tombstone(case: Case) -> None:
    case.broker.refuses = lambda topic, record: (
        "it is refused" if topic in case.stopped and record.value is None else ""
    )


def at_commit(case: Case) -> None:
    case.broker.at_commit |= dict.fromkeys(case.stopped, "it has no key")


def not_writable(case: Case) -> None:
    case.broker.unwritable |= dict.fromkeys(case.stopped, "the user may not write it")


def unreadable(case: Case) -> None:
    read = TopicRows.read

    def broken(self: TopicRows, *given: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        if self.topic in case.stopped:
            raise KeyError("window_id")
        return read(self, *given, **named)

    case.patch.setattr(TopicRows, "read", broken)


def one_beside_another(case: Case) -> None:
    """One is refused when it is sent, and its attempt is ended by what the commit tells of the other."""
    first, *_ = case.stopped
    at_send(case._replace(stopped=(first,)))
    case.broker.at_commit |= dict.fromkeys(case.stopped[1:], "it has no key")


CAUSES: Mapping[Callable[[Case], None], int] = {
    at_send: 1,
    at_send_and_at_commit: 1,
    at_its_tombstone: 1,
    at_commit: 1,
    not_writable: 1,
    unreadable: 1,
    one_beside_another: 2,
}


@pytest.fixture
def world(tmp_path: Any) -> World:
    made = World(str(tmp_path / "lake"))
    for picks in ([0, 1, 2, 3], [0, 1, 4, 5]):
        made.turn(picks)
    return made


@pytest.mark.long
@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("again", [False, True])
def test_every_record_comes_once_after_the_cause_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch, cause: Callable[[Case], None], again: bool
) -> None:
    names = tuple(world.topic(table) for table in world.tables[: CAUSES[cause]])
    case = Case(world, MemoryBroker(), monkeypatch, names)
    cause(case)
    own = publish_all(world, case.broker)
    assert own.stopped.keys() == set(names)
    for number in range(3):
        world.turn([0, 1, 2, 3])  # of which the other topic is published
        if again and number < 2:
            own = publish_all(world, case.broker)
        while own.turn():
            pass
        assert own.stopped.keys() == set(names)
        assert marked(case) == set(names)
    own.record_offset()
    world.later(3 * HOURS)
    world.stream()
    kept = {table: events_of(world.config, table) for table in world.tables}
    assert all(len(kept[table]) == len(world.ever[table]) for table in stopped(case)), "retention waits for them"
    assert all(len(kept[table]) < len(world.ever[table]) for table in set(world.tables) - set(stopped(case)))
    case.end()
    again_there = publish_all(world, case.broker)
    assert not again_there.stopped
    assert not marked(case)
    require_published(world, case.broker)


@pytest.mark.long
def test_a_topic_is_told_as_stopped_until_it_has_passed_what_stopped_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(world, MemoryBroker(), monkeypatch, (world.topic(world.tables[0]),))
    at_commit(case)
    publish_all(world, case.broker)
    case.end()
    found = publisher(world, case.broker)
    found.open()
    assert marked(case) == set(case.stopped), "it has just started"
    found.turn()
    assert not marked(case)


def test_what_passed_is_told_also_if_there_is_nothing_to_publish(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(world, MemoryBroker(), monkeypatch, (world.topic(world.tables[0]),))
    not_writable(case)
    publish_all(world, case.broker)
    assert marked(case)
    case.patch.setattr(TopicRows, "read", lambda *_, **__: iter(()))
    case.broker.unwritable.clear()
    publish_all(world, case.broker)
    assert not marked(case)


def marked(case: Case) -> set[str]:
    """Topics that the newest marker tells as stopped."""
    return set(parse_published(case.broker.marker or "").stopped)


def stopped(case: Case) -> list[TableId]:
    return [table for table in case.world.tables if case.world.topic(table) in case.stopped]
