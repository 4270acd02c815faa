"""What is dropped from topics, what is not, and who is told."""

from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from cdc_assets.adapters.spark.lsn_range import EARLIEST, LsnRange
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.load import config_of
from cdc_assets.core.interruption import Interrupted
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.steps import listening
from cdc_assets.errors import ConfigurationError, EventsDroppedError, FencedError, LakeError
from cdc_assets.lake import audit
from cdc_assets.lake.location import Location
from cdc_assets.lake.retained import Retained
from cdc_assets.lake.topics import TopicTables
from cdc_assets.lake.upkeep import Upkeep
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.needs import NeedsOfMirrors
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.overview import CaptureOverview, report_of
from cdc_assets.overview.checks.sqlserver import continuity_result
from cdc_assets.overview.report import Trouble
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.offset import Published
from cdc_assets.publish.recorded import RecordedOffset
from cdc_assets.retention import drop, plan
from cdc_assets.retention.drop import Retention
from cdc_assets.retention.files import Newest, TopicFile, newest_in
from cdc_assets_tests.crashes import PowerCutError, ask_to_end, cut_at
from cdc_assets_tests.unit.config.minimum import MINIMUM
from cdc_assets_tests.unit.publish.memory import MemoryBroker
from cdc_assets_tests.unit.retention.world import HOURS, World, publish_all, publisher, require_published
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedClock

RETENTION = ["retention-recorded", "retention-announced", "retention-announced:2", "topic-dropped", "topic-dropped:2"]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Three windows that are mirrored, and old."""
    made = World(str(tmp_path_factory.mktemp("old") / "lake"))
    for picks in ([0, 1, 2, 3], [2, 3, 6, 7], [0, 1, 4, 5]):
        made.turn(picks)
    made.later(2 * HOURS)
    return made


@pytest.fixture
def world(old: World, tmp_path: Path) -> World:
    return old.copy(tmp_path / "lake")


def dropped(world: World) -> list[int]:
    return [len(world.ever[table]) - len(events_of(world.config, table)) for table in world.tables]


@pytest.mark.long
def test_old_events_go_once_their_mirror_has_them(world: World) -> None:
    world.stream()
    assert all(dropped(world))
    world.check()
    assert all(len(events_of(world.config, table)) for table in world.tables), "the newest file tells the position"
    before = dropped(world)
    world.turn([0, 1])
    world.later(HOURS / 2)
    world.stream()
    assert dropped(world) >= before
    young = {event.position for table in world.tables for event in events_of(world.config, table)}
    assert {
        at for table in world.tables for at, event in world.ever[table].items() if event.lsn == last(world)
    } <= young
    world.check()


@pytest.mark.long
@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("error", [LakeError("It cannot be read."), ValueError("nobody has foreseen it")])
def test_a_topic_that_cannot_be_read_keeps_its_events_and_no_other_one_does(
    world: World, monkeypatch: pytest.MonkeyPatch, policy: str, error: Exception
) -> None:
    world.config = replace(world.config, lake=replace(world.config.lake, topic_policy=policy))
    broken = world.topic(world.tables[0])

    def read(location: Location, file: TopicFile) -> Newest:
        if file.directory == broken:
            raise error
        return newest_in(location, file)

    for module in (drop, plan):
        monkeypatch.setattr(module, "newest_in", read)
    world.stream()
    assert [bool(rows) for rows in dropped(world)] == [False, True]
    assert [(topic, str(error) in why) for topic, why in state_of(world.config).kept.items()] == [(broken, True)]
    told = report_of(CaptureOverview(world.config), world.server.now, [Trouble("the server", "It is away.")]).advice
    assert [text.startswith(f"Old events stay in {broken}: ") for text in told] == [True]
    world.check()


@pytest.mark.long
def test_a_clock_that_was_ahead_postpones_no_later_look(world: World) -> None:
    world.server.behind = -timedelta(hours=100 * HOURS)
    world.stream()
    world.server.behind = timedelta()
    world.turn([0, 1, 2, 3])
    world.turn([0, 1, 2, 3])
    before = sum(dropped(world))
    world.later(2 * HOURS)
    world.stream()
    assert sum(dropped(world)) > before
    world.check()


def last(world: World) -> Lsn:
    return world.server.history[-1].lsn


def test_files_of_dropped_events_leave_the_disk_after_the_retention_of_files(tmp_path: Path) -> None:
    world = World(str(tmp_path), retention_hours=0)
    for picks in ([0, 1], [2, 3]):
        world.turn(picks)
    world.later(2 * HOURS)
    world.stream()
    for table in world.tables:
        assert on_disk(world, world.topic(table)) == live(world, world.topic(table))


def on_disk(world: World, topic: str) -> set[str]:
    return {path.name for path in (Path(world.config.lake.path) / topic).glob("*.parquet")}


def live(world: World, topic: str) -> set[str]:
    handle = TopicTables.of(world.config).open(topic)
    assert handle is not None
    return {Path(uri).name for uri in handle.file_uris()}


@pytest.mark.long
@pytest.mark.delta_rs
def test_files_of_the_other_topics_leave_the_disk_where_one_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(str(tmp_path), retention_hours=0)
    for picks in ([0, 1, 2, 3], [2, 3, 6, 7]):
        world.turn(picks)
    world.later(2 * HOURS)
    with monkeypatch.context() as patch:
        patch.setattr(Upkeep, "vacuum", lambda *_: [])
        world.stream()
    tables = TopicTables.of(world.config)
    manifest = Manifest(tables, world.config.events.topic_prefix)
    manifest.claim(world.server.now)
    first, other = sorted(manifest.state.retained)
    assert on_disk(world, other) > live(world, other)
    generations = TopicTables.generations

    def broken(tables: TopicTables, topic: str) -> list[str]:
        if topic == first:
            raise LakeError(f"{topic} cannot be read. Next: restore it.")
        return generations(tables, topic)

    monkeypatch.setattr(TopicTables, "generations", broken)
    clock, runner = SimulatedClock(world.server), LocalRunner(1)
    mirrors = NeedsOfMirrors(world.config, runner, clock)
    Retention(tables, manifest, world.config, clock, runner, mirrors).run()
    assert on_disk(world, other) == live(world, other)
    assert on_disk(world, first) > live(world, first)


def test_what_the_mirror_lacks_stays(world: World) -> None:
    world.work([0, 1, 2, 3])
    world.stream()
    world.later(3 * HOURS)
    world.stream()
    left = {event.position for table in world.tables for event in events_of(world.config, table)}
    assert {at for found in world.ever.values() for at, event in found.items() if event.lsn == last(world)} <= left
    assert not world.mirror()
    world.check()


@pytest.mark.parametrize("explicit", [False, True])
def test_topics_without_a_mirror_lose_nothing_unless_that_is_wanted(tmp_path: Path, explicit: bool) -> None:
    world = World(str(tmp_path), mirrored=False, topic_unmirrored=explicit)
    for picks in ([0, 1], [2, 3], [4, 5]):
        world.work(picks)
        world.stream()
    world.later(2 * HOURS)
    world.stream()
    assert all(dropped(world)) if explicit else not any(dropped(world))
    if explicit:  # a mirror that begins now is told
        world.config = replace(world.config, mirror=replace(world.config.mirror, enabled=True))
        assert {type(error) for error in world.mirror().values()} == {EventsDroppedError}


def test_a_mirror_of_which_a_table_is_gone_keeps_its_events(world: World) -> None:
    table = world.tables[0]
    for path in (Path(world.config.lake.path) / f"{world.topic(table)}.__current").glob("_delta_log/*"):
        path.unlink()
    world.stream()
    assert [bool(count) for count in dropped(world)] == [False, True]


@pytest.mark.parametrize("step", RETENTION)
def test_after_a_crash_the_next_look_goes_on(world: World, step: str) -> None:
    name, _, times = step.partition(":")
    with cut_at(name, int(times or "1")):
        assert world.stream() == name
    world.check()
    world.later(HOURS)
    world.stream()
    assert all(dropped(world))
    world.turn([0, 1])
    world.check()


def test_a_mirror_that_is_made_anew_meanwhile_keeps_its_events(world: World) -> None:
    """It is planned after its place was looked at and before readers are told."""
    planned: list[str] = []

    def rebuild(name: str) -> None:
        if name == "retention-recorded" and not planned:
            planned.append(name)
            with cut_at("mirror-planned"), pytest.raises(PowerCutError):
                world.mirrors().catch_up(anew=True)

    rows = {name: mark.rows for name, mark in state_of(world.config).marks.items()}
    with listening(rebuild):
        world.stream()
    assert planned
    assert not any(dropped(world))
    marks = state_of(world.config).marks
    assert {topic: marks[topic].rows for topic in map(world.topic, world.tables)} == {
        topic: rows[topic] for topic in map(world.topic, world.tables)
    }
    assert not any(world.holds(table).after for table in world.tables)
    assert not world.mirror()
    world.check()


@pytest.mark.long
@pytest.mark.parametrize("step", ["retention-recorded", "retention-announced"])
def test_a_run_that_was_overtaken_sets_nothing_back(world: World, step: str) -> None:
    """It sleeps before readers are told, while its successor drops more."""
    held: list[Retained] = []

    def overtake(name: str) -> None:
        if name == step and not held:
            held.append(Retained())
            for picks in ([0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]):
                world.turn(picks)
            world.later(2 * HOURS)
            world.stream()
            held[:] = [world.holds(table) for table in world.tables]

    with listening(overtake), pytest.raises(FencedError):
        make_capture(world.server, world.config).stream()
    assert all(found.after for found in held)
    assert [world.holds(table) for table in world.tables] == held
    world.check()


def test_a_fenced_writer_drops_nothing(world: World) -> None:
    late = make_capture(world.server, world.config)
    late.claim()
    make_capture(world.server, world.config).claim()
    with pytest.raises(FencedError):
        late._activities.housekeeper.tidy()
    assert not any(dropped(world))


# ---- readers -------------------------------------------------------------------------------------------------------


def test_an_asset_that_asks_for_what_was_dropped_is_told(world: World) -> None:
    world.stream()
    table = world.tables[0]
    topic, holds = world.topic(table), world.holds(table)
    whole, earliest = (LsnRange.parse(start) for start in ("", EARLIEST))
    with pytest.raises(EventsDroppedError, match=f"holds every event after {holds.after}") as refusal:
        whole.held_by(topic, holds)
    assert refusal.value.complete_after == holds.after
    assert earliest.held_by(topic, holds) == LsnRange(Lsn.parse(holds.after))
    assert LsnRange.parse(holds.after).held_by(topic, holds).after == Lsn.parse(holds.after)


@pytest.mark.long
def test_a_mirror_is_made_anew_only_after_the_table_was_read_again(world: World) -> None:
    world.stream()
    refused = world.mirror(anew=True)
    assert {type(error) for error in refused.values()} == {EventsDroppedError}
    assert all("snapshot of the whole table" in str(error) for error in refused.values())
    world.check()
    world.read_again()
    world.turn([0, 1, 2])
    assert not world.mirror(anew=True)
    mirrors = world.mirrors()
    for table in world.tables:
        rows = {row["id"]: row["note"] for row in _current(mirrors, world.topic(table))}
        assert rows == {key: row["note"] for key, row in world.server.rows[table].items()}


def _current(mirrors: CaptureMirrors, topic: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = MirrorReader(mirrors.tables, topic).current().to_pylist()
    return rows


def test_what_is_not_published_stays(world: World) -> None:
    broker = MemoryBroker()
    first = publisher(world, broker)
    first.open()
    world.stream()
    assert not any(dropped(world)), "the lake knows of the publisher, which has published nothing"
    assert first.turn()
    first.record_offset()
    world.later(HOURS)
    world.stream()
    assert all(dropped(world))
    world.turn([0, 1])
    assert not publish_all(world, broker).stopped
    require_published(world, broker)


def test_what_was_published_of_a_former_lake_is_not_published_of_this_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A reset of the whole capture leaves the record of its publisher; numbers of windows begin again. It is told, as it may last for ever."""
    record, away = Feed(world.config, TopicTables.of(world.config)).recorded(), [Trouble("the server", "It is away.")]
    record.write(Published("former", 1000))
    world.stream()
    assert not any(dropped(world))
    assert [told for told in caplog.messages if "publish --forget" in told]
    [told] = report_of(CaptureOverview(world.config), world.server.now, away).advice
    assert told.startswith("Old events stay in the topics of the lake")
    record.forget()
    assert not report_of(CaptureOverview(world.config), world.server.now, away).advice
    world.later(HOURS)
    world.stream()
    assert all(dropped(world))


def test_a_publisher_of_which_the_lake_cannot_know_does_not_begin(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that may only read the lake: retention would drop what it has not published."""

    def refuse(record: RecordedOffset, published: Published) -> None:
        raise LakeError(f"{record.directory} cannot be written for {published.lake}.")

    broker = MemoryBroker()
    with monkeypatch.context() as patch:
        patch.setattr(RecordedOffset, "write", refuse)
        with pytest.raises(LakeError, match="cannot be written"):
            publish_all(world, broker)
        assert not broker.topics
        world.config = replace(world.config, lake=replace(world.config.lake, topic_hours=0))
        assert not publish_all(world, broker).stopped
    require_published(world, broker)


def interrupted(world: World) -> None:
    """A run that is asked to end as soon as one topic is announced."""
    seen, asked = list[str](), ExitStack()

    def ask(name: str) -> None:
        if name == "retention-announced" and not seen:
            seen.append(name)
            ask_to_end(asked)

    with asked, listening(ask), pytest.raises(Interrupted):
        make_capture(world.server, world.config).stream()


def test_a_run_that_is_to_end_leaves_further_topics_to_the_next(world: World) -> None:
    interrupted(world)
    assert sorted(map(bool, dropped(world))) == [False, True]


def test_no_topic_waits_for_ever_if_each_run_is_to_end(world: World) -> None:
    interrupted(world)
    world.turn([0, 1, 2, 3])
    world.later(2 * HOURS)
    interrupted(world)
    assert all(dropped(world))


def test_topics_of_a_database_with_small_lsns_do_not_always_come_first(world: World) -> None:
    busy, other = world.tables
    known = {
        world.topic(busy): Retained("0000001" + "0" * 15, 9),
        world.topic(other): Retained("0000002" + "0" * 15, 4),
    }
    state = SimpleNamespace(tables=world.tables, retained=known)
    one = SimpleNamespace(_manifest=SimpleNamespace(state=state), _config=world.config)
    assert [table for _, table in drop.Retention._in_turn(one)] == [other, busy]  # type: ignore[arg-type]


def test_a_publisher_that_begins_meanwhile_keeps_its_events(world: World) -> None:
    """It has seen that all are there, and says that it needs them, before they are announced as dropped."""
    feed = Feed(world.config, TopicTables.of(world.config))

    def begin(name: str) -> None:
        if name == "retention-recorded":
            feed.recorded().write(Published(feed.lake()))

    with listening(begin):
        world.stream()
    assert not any(dropped(world))
    assert not any(world.holds(table).after for table in world.tables)
    assert not publish_all(world, MemoryBroker(marker=Published(feed.lake()).text())).stopped


def test_a_publisher_that_asks_for_what_was_dropped_is_told(world: World) -> None:
    world.stream()
    newest = max(world.holds(table).after for table in world.tables)
    with pytest.raises(EventsDroppedError, match=f"--from-lsn {newest}"):
        publisher(world, MemoryBroker()).open()
    broker = MemoryBroker()
    assert not publish_all(world, broker, newest).stopped
    for table in world.tables:
        wanted = sorted(at for at in world.ever[table] if at[:22] > newest)
        assert [record.position for record in broker.topics[world.topic(table)]] == wanted


def test_a_forgotten_publisher_is_stopped_when_it_comes_back(world: World) -> None:
    broker = MemoryBroker()
    first = publisher(world, broker)
    first.open()
    Feed(world.config, TopicTables.of(world.config)).recorded().forget()
    world.stream()
    assert all(dropped(world))
    again = publisher(world, broker)
    again.open()
    again.turn()
    assert {world.topic(table) for table in world.tables} <= again.stopped.keys()
    assert "holds every event after" in again.stopped[world.topic(world.tables[0])]


def test_audit_status_and_check_tell_it_and_find_no_loss(world: World) -> None:
    world.stream()
    state = state_of(world.config)
    tables = TopicTables.of(world.config)
    found = audit.audit(tables, state.marks, list(state.marks))
    assert not [result.loss for result in found.values() if result.loss]
    overview = CaptureOverview(world.config, audit_s=None)
    assert not overview.losses
    for table in world.tables:
        holds = world.holds(table)
        assert overview.state.retained[world.topic(table)] == holds
        check = continuity_result(state.tables[table], holds)
        assert check.passed
        assert check.facts["complete_after"] == holds.after


def test_a_capture_without_mirrors_is_refused() -> None:
    properties = MINIMUM | {"lake.topic.retention.hours": "24"}
    with pytest.raises(ConfigurationError, match=r"mirror\.enabled=true"):
        config_of(properties, {})
    assert config_of(properties | {"mirror.enabled": "true"}, {}).lake.topic_hours == 24
    assert config_of(properties | {"lake.topic.retention.unmirrored": "true"}, {}).lake.topic_unmirrored


def test_a_young_file_without_rows_keeps_nothing_and_a_table_that_is_gone_is_not_told_of(world: World) -> None:
    """Spark writes such a file when a job appends nothing."""
    tables, topic = TopicTables.of(world.config), world.topic(world.tables[0])
    handle = DeltaTable(str(Path(world.config.lake.path) / topic))
    schema, path = pa.schema(handle.schema().to_arrow()), Path(world.config.lake.path) / topic / "empty.parquet"
    pq.write_table(schema.empty_table(), path)
    written_ms = int(world.server.now.timestamp() * 1000)
    empty = AddAction(path.name, path.stat().st_size, {}, written_ms, True, '{"numRecords": 0}')
    handle.create_write_transaction([empty], "append", handle.schema())
    manifest = Manifest(TopicTables(tables.location, world.config.name), "shop")
    manifest.claim(world.server.now)
    manifest.record_kept(world.server.now - timedelta(hours=HOURS), "shop.gone", "a row has no position")
    world.stream()
    assert all(dropped(world))
    assert not state_of(world.config).kept
    world.check()
