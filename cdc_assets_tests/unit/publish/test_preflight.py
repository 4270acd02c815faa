"""What `doctor` tells of Kafka and of a schema registry; no broker is needed."""

from dataclasses import replace

import pytest

from cdc_assets.adapters.kafka import preflight
from cdc_assets.adapters.kafka.preflight import inspect_kafka
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.config.settings.kafka import ConverterSettings
from cdc_assets.publish.preflight import inspect_registries
from cdc_assets_tests.engines.servers import free_port
from cdc_assets_tests.unit.publish.registry import Registry


def away() -> KafkaSettings:
    return KafkaSettings(servers=f"127.0.0.1:{free_port()}")


def test_brokers_that_are_away_and_wrong_options_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_LIMIT_S", 1.0)
    [found] = inspect_kafka(away(), "p")
    assert not found.ok
    assert found.blocking
    assert found.actual.startswith("not reached: ")
    assert "refused" in found.actual
    [found] = inspect_kafka(replace(away(), producer=(("compression.type", "zip"),)), "p")
    assert (found.ok, "producer.compression.type" in found.actual, found.remedy) == (
        False,
        True,
        "correct it, or leave it out.",
    )
    [found] = inspect_kafka(replace(away(), problem=("value.converter", "Proto", "JSON or Avro")), "p")
    assert (found.ok, "Proto" in found.actual, "change it" in found.remedy) == (False, True, True)


def test_a_registry_that_answers_or_not_is_told() -> None:
    with Registry() as registry:
        own = ConverterSettings("avro", registry=registry.address)
        settings = replace(away(), key=own, value=own)
        [found] = inspect_registries(settings)
        assert (found.check, found.subject, found.ok) == ("schema registry", registry.address, True)
        registry.credentials = "Basic x"
        [found] = inspect_registries(settings)
        assert not found.ok
        assert "accepts" in found.actual
        registry.credentials, registry.away = "", True
        [found] = inspect_registries(settings)
        assert (found.ok, "does not answer" in found.actual) == (False, True)
