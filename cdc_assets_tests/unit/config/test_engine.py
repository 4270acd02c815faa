"""Configurations of captures by other connectors."""

import json
from pathlib import Path

import pytest

from cdc_assets.config.engine import engine_config, is_engine_file, load_engine_config
from cdc_assets.errors import ConfigurationError

MYSQL = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "topic.prefix": "shop",
    "database.password": "${env:SHOP_PASSWORD}",
    "lake.path": "here",
    "lake.storage.option.region": "eu",
    "engine.batch.ms": "500",
    "stream.idle.timeout.ms": "3000",
}


def test_own_properties_are_taken_and_others_handed_on(tmp_path: Path) -> None:
    path = tmp_path / "mysql.json"
    path.write_text(json.dumps(MYSQL))
    config = load_engine_config(
        path, {"SHOP_PASSWORD": "secret", "CDC_DATABASE_HOSTNAME": "db", "CDC_LAKE_PATH": "there"}
    )
    assert (config.name, config.lake.path, config.lake.storage_options) == ("shop", "there", (("region", "eu"),))
    assert (config.batch_s, config.idle_timeout_s, config.heap) == (0.5, 3.0, "1g")
    assert config.properties == {
        "name": "shop",
        "connector.class": MYSQL["connector.class"],
        "topic.prefix": "shop",
        "database.password": "secret",
        "database.hostname": "db",
    }
    assert "secret" not in repr(config)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("io.debezium.connector.mysql.MySqlConnector", True),
        ("io.debezium.connector.sqlserver.SqlServerConnector", False),
        ("", False),
    ],
)
def test_files_are_distinguished_by_their_connector(tmp_path: Path, name: str, other: bool) -> None:
    path = tmp_path / "capture.properties"
    path.write_text(f"connector.class={name}\n")
    assert is_engine_file(path) is other


def test_stores_of_the_engine_are_ours() -> None:
    config = engine_config(
        MYSQL | {"offset.storage": "x", "schema.history.internal.store.only.captured.tables.ddl": "true"}
    )
    assert [name for name, _ in config.ignored] == ["offset.storage"]
    assert config.properties["schema.history.internal.store.only.captured.tables.ddl"] == "true"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("engine.batch.rows", "0"),
        ("engine.batch.ms", "soon"),
        ("engine.heap", "much"),
        ("engine.hep", "1g"),
        ("lake.pth", "x"),
        ("topic.prefix", ""),
    ],
)
def test_wrong_properties_of_ours_are_reported(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        engine_config(MYSQL | {name: text})


@pytest.mark.parametrize(
    ("given", "topic"),
    [
        ({}, "__debezium-heartbeat.shop"),
        ({"topic.heartbeat.prefix": "beats"}, "beats.shop"),
        ({"topic.delimiter": "-"}, "__debezium-heartbeat-shop"),
        ({"topic.heartbeat.name": "beats", "topic.delimiter": "-"}, "beats"),
    ],
)
def test_heartbeats_are_known_by_the_name_that_the_connector_gives_them(given: dict[str, str], topic: str) -> None:
    """Read from its class `AbstractTopicNamingStrategy`."""
    assert engine_config(MYSQL | given).heartbeat_topic == topic
