"""The topics in Kafka as an asset; no broker is needed."""

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dagster as dg
import pytest

from cdc_assets.adapters.kafka.marker import KafkaMarker
from cdc_assets.config.load import load_config
from cdc_assets.defs import schedule
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.derived_runs import KAFKA_TAG
from cdc_assets.defs.kafka import KafkaFollower
from cdc_assets.errors import ConfigurationError
from cdc_assets.overview.checks.sqlserver import PUBLISHED, published_result
from cdc_assets.publish.view import PublishedReport
from cdc_assets_tests.shop import Shop, open_shop, tick, tick_with_cursor

KEY = dg.AssetKey(["shop", "kafka"])
NOBODY = {"kafka.enabled": "true", "bootstrap.servers": "127.0.0.1:1", "errors.max.retries": "0"}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as shop:
        yield shop


def verdict(instance: dg.DagsterInstance) -> tuple[bool, str]:
    """The newest result of the check."""
    key = dg.AssetCheckKey(KEY, PUBLISHED.name)
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    assert record.evaluation is not None
    return record.evaluation.passed, record.evaluation.description or ""


@pytest.mark.long
def test_a_tick_asks_a_broker_that_is_away_once_and_briefly(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    newest = KafkaMarker.newest

    def counted(self: KafkaMarker, *, final: bool = False) -> str | None:
        asked.append(self._limit_s)
        return newest(self, final=final)

    monkeypatch.setattr(KafkaMarker, "newest", counted)
    monkeypatch.setattr("cdc_assets.assembly.publishing._TICK_S", 0.2)
    monkeypatch.setattr("cdc_assets.assembly.publishing._UNREACHABLE_S", 600.0)
    monkeypatch.setattr("cdc_assets.assembly.publishing.TICK_MARKER._away", {})
    shop.write(NOBODY)
    with dg.DagsterInstance.ephemeral() as instance:
        assert shop.snapshot(instance).success
        tick(shop, instance)
        tick(shop, instance)
        assert asked == [0.2]


@pytest.mark.long
def test_a_broker_that_is_away_fails_the_check_and_never_the_run_nor_delays_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    leave = KafkaFollower.__exit__

    def timed(self: KafkaFollower, *error: Any) -> None:
        began = time.monotonic()
        leave(self, *error)
        waited.append(time.monotonic() - began)

    monkeypatch.setattr(KafkaFollower, "__exit__", timed)
    monkeypatch.setattr("cdc_assets.defs.kafka._SILENT_S", 20.0)
    shop.write(NOBODY)
    with dg.DagsterInstance.ephemeral() as instance:
        assert shop.snapshot(instance).success
        shop.add_customers(2)
        assert shop.changes(instance).success
        assert len(shop.events("customers")) > 2
        assert instance.get_latest_materialization_event(KEY) is None
        passed, reason = verdict(instance)
        assert not passed
        assert "127.0.0.1:1" in reason
        assert "Nothing new" in tick(shop, instance).skip_message
        assert [seconds < 10 for seconds in waited] == [True, True]


def test_the_asset_is_there_only_if_it_is_enabled(shop: Shop) -> None:
    def keys() -> set[dg.AssetKey]:
        return {spec.key for spec in shop.definitions().resolve_all_asset_specs()}

    assert KEY not in keys()
    shop.write(NOBODY)
    assert KEY in keys()


@pytest.mark.parametrize(
    ("properties", "name"),
    [({}, "bootstrap.servers"), ({"bootstrap.servers": "k:9092", "value.converter": "x.Y"}, "value.converter")],
)
def test_what_cannot_be_published_is_refused_at_once(shop: Shop, properties: dict[str, str], name: str) -> None:
    shop.write({"kafka.enabled": "true", **properties})
    with pytest.raises(ConfigurationError, match=name):
        load_config(shop.file, shop.environment)


@pytest.mark.long
def test_a_topic_that_is_stopped_is_tried_again_on_a_quiet_capture(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is new, and the manifest does not grow: each start of publishing tries it, after pauses that grow."""
    shop.write(NOBODY)
    stopped = {"shop.SalesDb.dbo.customers": "a record is larger than the broker takes"}
    found = PublishedReport(window=3, waiting=1, behind_s=0.0, stopped=stopped)
    known = PublishedReport(window=3, waiting=1, behind_s=0.0)
    monkeypatch.setattr("cdc_assets.assembly.publishing._TICK_S", 0.2)
    with dg.DagsterInstance.ephemeral() as instance:
        assert shop.snapshot(instance).success
        loaded = shop.definitions()

        def answer() -> Any:
            return tick_with_cursor(shop, instance, loaded=loaded)[0]

        def publish() -> bool:
            """A run as the sensor asks for it."""
            request = answer()
            assert isinstance(request, dg.RunRequest), request.skip_message
            assert (request.job_name, request.tags[KAFKA_TAG]) == ("shop_publish", "1")
            with patch.object(CaptureResource, "publish", return_value=stopped):
                return shop.run("shop_publish", instance, tags=dict(request.tags)).success

        with patch.object(CaptureResource, "published", side_effect=[known, known, found, found]):
            assert not publish(), "the topic has just stopped"
        with patch.object(CaptureResource, "published", return_value=found):
            assert "Publishing to Kafka failed; the next attempt starts after" in answer().skip_message
            monkeypatch.setattr(schedule, "FIRST_PAUSE", timedelta(0))
            assert publish(), "it still is"
            monkeypatch.setattr(schedule, "FIRST_PAUSE", timedelta(minutes=1))
            assert "Publishing to Kafka failed; the next attempt starts after" in answer().skip_message
            monkeypatch.setattr(schedule, "FIRST_PAUSE", timedelta(0))
            assert publish()
            assert publish()
        with patch.object(CaptureResource, "published", return_value=PublishedReport(window=4)) as asked:
            assert [answer().skip_message for _ in range(3)] == ["Nothing new."] * 3
            assert asked.call_count == 1, "the broker is not asked again before the manifest has grown"


def test_late_publishing_is_the_same_result_at_each_look() -> None:
    """It was another one, and another record, every three seconds, for the time by which it is late was in it."""
    found = [
        published_result(PublishedReport(window=number, waiting=number, behind_s=100.0 + 3 * number))
        for number in range(3)
    ]
    assert not any(result.passed for result in found)
    assert len({result.text for result in found}) == 1
    assert [result.facts["windows_behind"] for result in found] == [0, 1, 2]
