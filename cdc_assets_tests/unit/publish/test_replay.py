"""A range of the lake in topics of another prefix: what the publisher has sent of it, once, without moving the publisher."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cdc_assets.assembly import publishing
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import ConfigurationError, IncompleteReadError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.overview import CaptureOverview
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.span import Replay, Span, replay_of
from cdc_assets_tests.crashes import PowerCutError, cut_after
from cdc_assets_tests.unit.publish.memory import TOPIC, MemoryBroker
from cdc_assets_tests.unit.publish.world import World, published, publisher
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

OTHER = TOPIC.replace("shop", "old", 1)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaptureConfig]:
    with StandIn(databases=(DATABASE,)) as server:
        made = World(server, tmp_path_factory.mktemp("replay") / "lake")
        made.execute("INSERT INTO dbo.t VALUES (1, N'a'), (2, N'b')")
        made.capture("snapshot")
        for number in range(10, 20):
            made.execute(f"INSERT INTO dbo.t VALUES ({number}, N'x')")
            if number % 3 == 0:
                made.execute("DELETE FROM dbo.t WHERE id = 1; UPDATE dbo.t SET note = N'y' WHERE id = 2")
                made.capture()
        made.compact()
        yield made.config


@pytest.fixture(scope="module")
def whole(config: CaptureConfig) -> MemoryBroker:
    broker = MemoryBroker()
    published(config, broker)
    return broker


def moved(broker: MemoryBroker, first: int, last: int, after: str = "", until: str = "~") -> dict[str, list[object]]:
    """What a replay is to send of what was published."""
    found: dict[str, list[object]] = {}
    for topic, records in broker.topics.items():
        chosen = [
            (record.position, record.key, record.value)
            for record in records
            if first <= record.window <= last and after + "~" * bool(after) < record.position < until + "~"
        ]
        if chosen and not topic.startswith("__"):
            found["old" + topic.removeprefix("shop")] = list(chosen)
    return found


@pytest.mark.long
def test_windows_go_into_another_prefix(config: CaptureConfig, whole: MemoryBroker) -> None:
    windows = sorted({record.window for record in whole.topics[TOPIC]})
    broker, place = MemoryBroker(), Feed(config, TopicTables.of(config)).recorded().read()
    first, last = windows[1], windows[2]
    assert not published(config, broker, 2, Replay(Span(first, last), "old"))
    assert broker.held() == moved(whole, first, last)
    assert OTHER in broker.topics
    published(config, broker, 2, Replay(Span(first, last), "old"))
    assert broker.held() == moved(whole, first, last)
    assert Feed(config, TopicTables.of(config)).recorded().read() == place
    assert whole.marker is not None
    with pytest.raises(ConfigurationError, match=f"{first}..{last}, which was replayed"):
        publisher(config, broker, replay=Replay(Span(first), "old")).open()


@pytest.mark.long
def test_a_range_behind_what_is_complete_is_refused_for_what_it_is(config: CaptureConfig) -> None:
    broker = MemoryBroker()
    for span in (Span(500), Span(500, 600)):
        with pytest.raises(ConfigurationError, match=rf"{span.first}\.\..*windows up to \d"):
            publisher(config, broker, replay=Replay(span, "old")).open()
    assert broker.marker is None


@pytest.mark.long
@pytest.mark.parametrize(("first", "last"), [(5, 14), (0, 3), (None, 8), (8, None)])
def test_lsns_go_into_another_prefix(
    config: CaptureConfig, whole: MemoryBroker, first: int | None, last: int | None
) -> None:
    lsns = sorted({record.position[:22] for record in whole.topics[TOPIC]})
    after, until = "" if first is None else lsns[first], "" if last is None else lsns[min(last, len(lsns) - 1)]
    undisturbed, died = MemoryBroker(), MemoryBroker()
    replay = Replay(Span(after=after, until=until), "old")
    assert not published(config, undisturbed, 2, replay)
    assert undisturbed.held() == moved(whole, 0, 10**9, after, until or "~")
    for calls in (*range(1, 20), 500):
        died.called = cut_after(calls)
        try:
            published(config, died, 2, replay)
        except PowerCutError:
            continue
    assert died.held() == undisturbed.held()


@pytest.mark.long
def test_a_range_behind_which_the_lake_ends_is_not_reported_as_published(
    config: CaptureConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(config, kafka=replace(config.kafka, servers="memory:9092"))
    monkeypatch.setattr(publishing, "_check_free", lambda _config, _replay: None)
    [state] = CaptureOverview(config).state.tables.values()

    def publish(span: Span) -> MemoryBroker:
        broker = MemoryBroker()
        monkeypatch.setattr(publishing, "kafka_broker", lambda *_: broker)
        again = Replay(span, "old")
        assert not publishing.publish_topics(config, lambda _: None, follow=False, replay=again)
        return broker

    complete, later = CaptureOverview(config).state.complete_window, "7fffffff:00000000:0001"
    for span in (Span(), Span(1, complete), Span(until=str(state.position))):
        assert OTHER in publish(span).topics
    with pytest.raises(IncompleteReadError, match=rf"0\.\.{complete + 1} is .*up to window {complete}\. "):
        publish(Span(0, complete + 1))
    with pytest.raises(IncompleteReadError, match=f"up to commit LSN {state.position}"):
        publish(Span(until=later))


@pytest.mark.long
def test_flat_records_are_replayed_too(config: CaptureConfig) -> None:
    broker = MemoryBroker()
    flat = replace(config, kafka=replace(config.kafka, flat=True))
    assert not published(flat, broker, 5, Replay(Span(), "old"))
    assert OTHER in broker.topics
    assert not any(topic.startswith("shop") for topic in broker.topics)


def test_what_options_mean() -> None:
    assert replay_of("3..7", "old", "shop") == Replay(Span(3, 7), "old")
    lsn = "0000002a:00000028:0003"
    assert replay_of(f"..{lsn.upper()}", "old", "shop").span == Span(until=lsn)
    assert replay_of(f"{lsn}..", "old", "shop").span == Span(after=lsn)
    assert replay_of("..", "old", "shop").span.text() == "0.."
    assert [Replay(Span(), "old").topic("shop", name) for name in ("shop", "shop.a", "out")] == [
        "old",
        "old.a",
        "old.out",
    ]


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("7..3", "old"),
        ("7", "old"),
        (f"3..{'0' * 8}:{'0' * 8}:0000", "old"),
        ("a..b", "old"),
        ("1..2", "shop"),
        ("1..2", "a b"),
    ],
)
def test_what_means_nothing_is_refused(text: str, prefix: str) -> None:
    with pytest.raises(ConfigurationError):
        replay_of(text, prefix, "shop")
