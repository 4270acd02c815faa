"""The publisher with transforms: each record once in the topic where it is sent, and the place of its own topic kept."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.config.settings.transforms import Predicate, RouteSettings, Step, UnwrapSettings
from cdc_assets.publish.offset import parse_published
from cdc_assets_tests.crashes import PowerCutError, cut_after
from cdc_assets_tests.unit.publish.memory import TOPIC, MemoryBroker
from cdc_assets_tests.unit.publish.world import World, published
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

UNWRAP = Step("unwrap", UnwrapSettings("drop", route_by="note"), Predicate(".*dbo.*"))
MOVE = Step("move", RouteSettings("(.*)", "new.$1"))


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaptureConfig]:
    with StandIn(databases=(DATABASE,)) as server:
        made = World(server, tmp_path_factory.mktemp("transforms") / "lake")
        made.execute("INSERT INTO dbo.t VALUES (1, N'a'), (2, N'b'), (3, NULL), (4, N'a')")
        made.capture("snapshot")
        made.execute("UPDATE dbo.t SET note = N'b' WHERE id = 1; DELETE FROM dbo.t WHERE id > 2")
        made.execute("INSERT INTO dbo.t VALUES (5, N'a')")
        made.capture()
        yield replace(made.config, kafka=replace(made.config.kafka, transforms=(UNWRAP, MOVE)))


def test_records_are_where_the_transforms_send_them(config: CaptureConfig) -> None:
    broker, plain = MemoryBroker(), MemoryBroker()
    assert not published(config, broker)
    published(replace(config, kafka=replace(config.kafka, transforms=())), plain)
    ids = {topic: [r.key for r in records] for topic, records in broker.topics.items()}
    keys = {n: record.key for n, record in zip((1, 2, 3, 4), plain.topics[TOPIC], strict=False)}
    assert ids["new.a"] == [keys[1], keys[4], plain.topics[TOPIC][-1].key]
    assert ids["new.b"] == [keys[2], keys[1]]
    assert ids[f"new.{TOPIC}"] == [keys[3]]
    assert [r.value for r in broker.topics["new.shop"]] == [r.value for r in plain.topics["shop"]]
    assert TOPIC not in broker.topics
    marks = [parse_published(held.marker or "") for held in (broker, plain)]
    assert (marks[0].window, marks[0].places) == (marks[1].window, marks[1].places)


def test_a_crash_at_any_call_repeats_and_loses_nothing(config: CaptureConfig) -> None:
    undisturbed, died = MemoryBroker(), MemoryBroker()
    published(config, undisturbed, 2)
    for calls in (*range(1, 30), 200):
        died.called = cut_after(calls)
        try:
            published(config, died, 2)
        except PowerCutError:
            continue
    assert died.held() == undisturbed.held()


def test_a_topic_that_cannot_be_written_stops_those_that_are_sent_there(config: CaptureConfig) -> None:
    class Closed(MemoryBroker):
        def prepare(self, topics: object) -> dict[str, str]:
            return {"new.b": "closed"} if "new.b" in (topics if isinstance(topics, list) else []) else {}

    broker = Closed()
    stopped = published(config, broker)
    assert list(stopped) == [TOPIC]
    assert "closed" in stopped[TOPIC]
    assert len(broker.topics["new.a"]) == 1
    assert broker.topics["new.shop"]


def test_a_transform_that_fails_stops_its_topic_alone(config: CaptureConfig) -> None:
    wrong = Step("unwrap", UnwrapSettings(route_by="nothing"), Predicate(".*dbo.*"))
    broker = MemoryBroker()
    stopped = published(replace(config, kafka=replace(config.kafka, transforms=(wrong,))), broker)
    assert list(stopped) == [TOPIC]
    assert "route.by.field" in stopped[TOPIC]
    assert broker.topics["shop"]
