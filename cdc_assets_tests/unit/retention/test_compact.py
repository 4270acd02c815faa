"""What a compacted topic keeps, and who may read it."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.adapters.spark.lsn_range import EARLIEST, LsnRange
from cdc_assets.config.load import config_of
from cdc_assets.core.lsn import Lsn
from cdc_assets.errors import ConfigurationError, EventsDroppedError, MirrorError
from cdc_assets.lake import audit
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror import capture, steps
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.describe import Description
from cdc_assets.overview import CaptureOverview
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.config.minimum import MINIMUM
from cdc_assets_tests.unit.publish.memory import MemoryBroker
from cdc_assets_tests.unit.retention.world import HOURS, World, publish_all, publisher, require_published
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of

STEPS = ["compaction-written", "retention-recorded", "retention-announced", "topic-compacted:2", "compaction-complete"]
TURNS = ([0, 1, 2, 3], [2, 3, 6, 7], [0, 1, 4, 5], [2, 3, 2, 3])


def made(path: Path, **changes: object) -> World:
    """Some windows that are mirrored, and old, with a hand-over between them."""
    world = World(str(path), policy="compact", **changes)
    for number, picks in enumerate(TURNS):
        world.turn(picks)
        if number == 1:
            world.hand_over(0)
    world.later(2 * HOURS)
    return world


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> World:
    return made(tmp_path_factory.mktemp("old") / "lake")


@pytest.fixture
def world(old: World, tmp_path: Path) -> World:
    return old.copy(tmp_path / "lake")


def rebuilt(world: World) -> None:
    """Make the mirrors anew, and compare them with the server at each commit since."""
    world.rebuild(None)
    world.check()


@pytest.mark.long
def test_each_key_keeps_its_last_event_and_the_mirror_can_be_made_anew(world: World) -> None:
    world.stream()
    world.check()
    for table in world.tables:
        holds = world.holds(table)
        assert holds.rows == holds.after == holds.compacted
        head = [event for event in events_of(world.config, table) if str(event.lsn) <= holds.after]
        newest = max(world.ever[table])
        keys = Counter(event.key for event in head if event.position != newest)
        assert set(keys.values()) == {1}
        assert keys.keys() >= world.rows_at(table, Lsn.parse(holds.after)).keys()
    rebuilt(world)
    world.turn([0, 1, 2, 3])
    world.check()


@pytest.mark.long
@pytest.mark.parametrize("place", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_row_that_its_last_transaction_deletes_does_not_come_back_from_another_of_its_files(
    world: World, place: int
) -> None:
    """Only the newest event of all stays for the sake of its position, and not that of each file in which the transaction ends."""
    first, other = world.tables
    kept = min(world.server.rows[first])
    world.server.commit((first, "insert", 900, "gone"), (first, "delete", 900, ""), (first, "update", kept, "last"))
    world.server.commit((other, "insert", 901, "later"))
    world.turn([1])
    world.cut(place)
    world.later(2 * HOURS)
    world.stream()
    assert world.holds(first).rows == max(world.ever[first])[:22], "the transaction is compacted"
    rebuilt(world)
    world.later(2 * HOURS)
    world.stream()
    rebuilt(world)


@pytest.mark.long
def test_it_is_compacted_again_when_as_much_is_new(world: World) -> None:
    world.stream()
    before = [world.holds(table).compacted for table in world.tables]
    world.turn([0, 1])
    world.later(2 * HOURS)
    world.stream()
    assert [world.holds(table).compacted for table in world.tables] == before, "little is new"
    for _ in range(12):
        world.work([2, 3, 2, 3, 6, 7])
    world.turn([0, 1])
    world.later(2 * HOURS)
    world.stream()
    assert all(world.holds(table).compacted > one for table, one in zip(world.tables, before, strict=True))
    rebuilt(world)


@pytest.mark.long
def test_young_events_and_those_that_the_mirror_lacks_stay(world: World) -> None:
    world.work([2, 3])
    world.stream()
    last = str(world.server.history[-1].lsn)
    world.later(HOURS)
    world.stream()
    assert all(world.holds(table).after < last for table in world.tables)
    world.check()


@pytest.mark.parametrize("step", STEPS)
def test_after_a_crash_the_next_look_goes_on(world: World, step: str) -> None:
    name, _, times = step.partition(":")
    with cut_at(name, int(times or "1")):
        assert world.stream() == name
    world.check()
    rebuilt(world)
    world.later(HOURS)
    world.stream()
    assert all(not world.holds(table).is_begun and world.holds(table).compacted for table in world.tables)
    rebuilt(world)


def test_a_first_step_of_a_mirror_does_not_end_inside_what_was_compacted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.stream()
    monkeypatch.setattr(steps, "STEP_ROWS", 1)
    rebuilt(world)


def test_a_mirror_that_died_while_it_was_made_anew_keeps_its_events(world: World) -> None:
    with cut_at("mirror-planned"):
        world.mirror(anew=True)
    assert all(world.mirrors().states()[world.topic(table)].pending for table in world.tables)
    world.stream()
    assert not any(world.holds(table).rows for table in world.tables), "it is waited for"
    assert not world.mirror()
    world.stream()
    world.check()


def overtaken(world: World, monkeypatch: pytest.MonkeyPatch) -> CaptureMirrors:
    """Mirrors between whose look at the topic and whose plan events go."""
    late = world.mirrors()
    found = late.found

    def overtaken(wanted: object = None) -> object:
        seen = found(wanted)  # type: ignore[arg-type]
        world.stream()
        return seen

    monkeypatch.setattr(late, "found", overtaken)
    return late


@pytest.mark.long
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_mirror_that_is_to_be_made_anew_while_events_go_stays_as_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    world.config = replace(world.config, lake=replace(world.config.lake, topic_policy=policy))
    refused = overtaken(world, monkeypatch).catch_up(anew=True)
    assert all("left unchanged" in str(error) for error in refused.values())
    assert refused.keys() == {world.topic(table) for table in world.tables}
    world.check()
    world.turn([0, 1])
    world.check()


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_mirror_that_died_before_it_gave_up_continues_as_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.config = replace(world.config, lake=replace(world.config.lake, topic_policy=policy))
    with pytest.raises(PowerCutError), cut_at("mirror-planned"):
        overtaken(world, monkeypatch).catch_up(anew=True)
    assert all(world.holds(table).after for table in world.tables)
    assert not world.mirror()
    assert "start the rebuild again" in caplog.text
    assert not any(state.pending for state in world.mirrors().states().values()), "which bars retention"
    world.check()
    for _ in range(3):
        world.turn([0, 1, 2, 3])
    world.check()


@pytest.mark.combinations
@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_step_that_died_before_its_events_went_is_planned_again_by_what_is_left(
    tmp_path: Path, policy: str, is_first: bool
) -> None:
    """Its table is left out for a while, so nobody needs the events."""
    world = World(str(tmp_path / "lake"), policy=policy)
    assert is_first or not world.mirror()
    for picks in TURNS:
        world.work(picks)
        world.stream()
    with cut_at("mirror-planned"):
        world.mirror(anew=True)
    mirrored = world.config
    lake = replace(mirrored.lake, topic_unmirrored=True)
    world.config = replace(mirrored, mirror=replace(mirrored.mirror, enabled=False), lake=lake)
    world.later(2 * HOURS)
    world.work([0, 1])
    world.stream()
    world.config = mirrored
    assert all(world.holds(table).after for table in world.tables)
    assert {type(error) for error in world.mirror().values()} <= {EventsDroppedError}
    world.work([0, 1, 2, 3])
    world.stream()
    world.read_again()
    world.turn([2, 3])
    states = world.mirrors().states()
    world.begins = {topic: state.begin for topic, state in states.items()}
    assert all(world.begins.values())
    world.check()


def test_a_table_without_a_key_keeps_its_events(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    found = CaptureMirrors.found

    def keyless(self: CaptureMirrors, *wanted: Any, **how: Any) -> object:
        tables, troubles = found(self, *wanted, **how)
        abouts = [replace(one.description, shape=replace(one.description.shape, keyed=False)) for one in tables]
        return [replace(one, description=about) for one, about in zip(tables, abouts, strict=True)], troubles

    monkeypatch.setattr(CaptureMirrors, "found", keyless)
    world.stream()
    monkeypatch.undo()
    assert not any(world.holds(table).after for table in world.tables)
    world.check()


@pytest.mark.parametrize("halts", [True, False])
def test_a_topic_whose_key_has_changed_keeps_its_events(
    world: World, monkeypatch: pytest.MonkeyPatch, halts: bool
) -> None:
    """Its events behind a place are told apart by other columns than those before it: no key is right for all of them."""
    found = CaptureMirrors.found

    def halted(self: CaptureMirrors, *wanted: Any, **how: Any) -> object:
        tables, troubles = found(self, *wanted, **how)
        halt = MirrorError("Its key has other columns. Next: read the table again.") if halts else None
        return [replace(one, halt=halt) for one in tables], troubles

    monkeypatch.setattr(CaptureMirrors, "found", halted)
    world.stream()
    assert all(bool(world.holds(table).after) is not halts for table in world.tables)


def refused(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """Have events of some of a topic's tables not tell which row they are about."""
    describe = capture.describe

    def shortened(*given: Any) -> Description:
        refusal = ConfigurationError("message.key.columns", "a", "the same columns", "read it again")
        return replace(describe(*given), coarse=dict.fromkeys(numbers, refusal))

    monkeypatch.setattr(capture, "describe", shortened)


@pytest.mark.parametrize("coarse", [(0,), ()])
def test_a_topic_with_keys_that_events_shorten_keeps_its_events(
    world: World, monkeypatch: pytest.MonkeyPatch, coarse: tuple[int, ...]
) -> None:
    """What compaction drops is gone for good: not by a key that takes two rows for one."""
    refused(monkeypatch, *coarse)
    world.stream()
    assert all(bool(world.holds(table).after) is not bool(coarse) for table in world.tables)


@pytest.mark.long
def test_events_that_another_key_tells_go_once_the_table_was_read_again_and_that_is_old(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(monkeypatch, 0)
    named = tuple(f"dbo.{table.table}:id,note" for table in world.tables)
    world.config = replace(world.config, events=replace(world.config.events, message_key_columns=named))
    tables, topics = TopicTables.of(world.config), [world.topic(table) for table in world.tables]
    former = {topic: len(rows_of(tables, topic)) for topic in topics}
    for _ in range(3):
        world.work([2, 3, 6, 7, 0, 1])
    world.stream()
    assert {tables.generations(topic)[0] for topic in topics} == set(topics)
    assert all("message.key.columns" in str(world.mirror()[topic]) for topic in topics), "which status tells"
    world.later(2 * HOURS)
    world.stream()
    world.read_again()
    assert not world.mirror()
    world.later(HOURS / 2)
    world.stream()
    assert {topic: len(rows_of(tables, topic)) for topic in topics} == former, "the reading is young"
    world.turn([0, 1])
    world.later(2 * HOURS)
    world.stream()
    assert all(len(rows_of(tables, topic)) == 1 for topic in topics), "the newest event"
    rebuilt(world)
    world.turn([2, 3, 2, 3])
    world.check()


@pytest.mark.long
def test_a_topic_without_a_mirror_whose_key_has_changed_waits_until_its_reading_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rows of before could be one by the newest key: none of them goes before the reading has told all rows anew."""
    world = World(str(tmp_path / "lake"), mirrored=False, policy="compact", topic_unmirrored=True)
    for picks in TURNS:
        world.work(picks)
        world.stream()
    altered = str(world.server.transactions[-1])

    def changed(_: str, entries: Any, __: Any, target: steps.Target, ___: str) -> object:
        return list(entries), replace(target, altered=(altered,)), None

    monkeypatch.setattr(capture, "followed", changed)
    world.later(2 * HOURS)
    world.read_again()
    world.later(HOURS / 2)
    world.stream()
    assert not any(world.holds(table).after for table in world.tables), "the reading is young"
    world.work([0, 1])
    world.stream()
    world.later(2 * HOURS)
    world.stream()
    for table in world.tables:
        left, read = events_of(world.config, table), str(state_of(world.config).tables[table].snapshot_lsn)
        assert all(event.position[:22] >= read for event in left)
        world._check_fold(table, Lsn.parse(world.holds(table).rows), {event.position for event in left})


def rows_of(tables: TopicTables, directory: str) -> pa.Table:
    """Events of a topic's oldest table."""
    tables.forget(directory)
    handle = tables.open(directory)
    assert handle is not None
    return handle.to_pyarrow_table(columns=["position"])


@pytest.mark.long
def test_what_was_lost_before_the_table_was_read_again_goes(world: World) -> None:
    """Rows of which no event tells since are gone, whatever older events say."""
    world.server.clean_up(world.server.transactions[-1])
    world.work([6, 7, 14, 15])
    world.stream()
    world.read_again()
    world.turn([0, 1])
    world.later(2 * HOURS)
    world.stream()
    rebuilt(world)


@pytest.mark.long
def test_after_events_went_by_age_a_snapshot_makes_it_whole(world: World) -> None:
    by_key = world.config
    world.config = replace(by_key, lake=replace(by_key.lake, topic_policy="delete"))
    world.stream()
    assert not any(world.holds(table).rows for table in world.tables)
    world.config = by_key
    world.turn([0, 1, 2, 3])
    world.later(2 * HOURS)
    world.stream()
    assert not any(world.holds(table).rows for table in world.tables)
    assert {type(error) for error in world.mirror(anew=True).values()} <= {EventsDroppedError}
    world.read_again()
    world.turn([2, 3, 2, 3])
    assert not world.mirror()
    world.later(2 * HOURS)
    world.stream()
    assert all(world.holds(table).rows for table in world.tables)
    rebuilt(world)


def test_readers_are_told_and_may_have_what_is_left(world: World) -> None:
    world.stream()
    table = world.tables[0]
    topic, holds = world.topic(table), world.holds(table)
    whole, earliest = (LsnRange.parse(start) for start in ("", EARLIEST))
    with pytest.raises(EventsDroppedError, match=f"holds every event after {holds.after}"):
        whole.held_by(topic, holds)
    assert earliest.held_by(topic, holds) == LsnRange()
    with pytest.raises(EventsDroppedError, match="--from-lsn"):
        publisher(world, MemoryBroker()).open()


def test_what_is_not_published_stays(world: World) -> None:
    broker = MemoryBroker()
    first = publisher(world, broker)
    first.open()
    world.stream()
    assert not any(world.holds(table).after for table in world.tables)
    while first.turn():
        pass
    first.record_offset()
    world.later(HOURS)
    world.stream()
    assert all(world.holds(table).after for table in world.tables)
    world.turn([0, 1])
    assert not publish_all(world, broker).stopped
    require_published(world, broker)


def test_audit_and_status_find_no_loss(world: World) -> None:
    world.stream()
    state = state_of(world.config)
    found = audit.audit(TopicTables.of(world.config), state.marks, list(state.marks))
    assert not [result.loss for result in found.values() if result.loss]
    overview = CaptureOverview(world.config, audit_s=None)
    assert not overview.losses
    assert all(overview.state.retained[world.topic(table)].after for table in world.tables)


def test_a_capture_without_mirrors_or_age_is_refused() -> None:
    properties = MINIMUM | {"lake.topic.cleanup.policy": "compact"}
    for lacking in (
        {"mirror.enabled": "true"},
        {"lake.topic.retention.hours": "24", "lake.topic.retention.unmirrored": "true"},
    ):
        with pytest.raises(ConfigurationError, match=r"lake\.topic\.cleanup\.policy"):
            config_of(properties | lacking, {})
    config = config_of(properties | {"mirror.enabled": "true", "lake.topic.retention.hours": "24"}, {})
    assert config.lake.topic_policy == "compact"
