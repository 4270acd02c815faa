"""One list says what may hold a secret, for captures of all kinds: on Dagster's pages, in errors and in listings."""

from collections.abc import Mapping

import pytest

from cdc_assets.config.build import build_config
from cdc_assets.config.engine import engine_config
from cdc_assets.config.load import config_of
from cdc_assets.config.masks import Masks
from cdc_assets.defs.configuration import source_fields
from cdc_assets.errors import ConfigurationError
from cdc_assets.registry import SchemaRegistry
from cdc_assets_tests.unit.config.minimum import MINIMUM

SECRETS = (
    "database.password",
    "database.sslpassword",
    "database.ssl.keystore.password",
    "database.url",
    "database.initial.statements",
    "mongodb.connection.string",
    "driver.accessToken",
    "value.converter.basic.auth.user.info",
    "key.converter.schema.registry.basic.auth.user.info",
    "consumer.override.sasl.jaas.config",
    "consumer.override.ssl.key.pem",
    "producer.override.sasl.password",
    "signal.consumer.sasl.jaas.config",
    "schema.history.internal.producer.sasl.jaas.config",
    "schema.history.internal.consumer.ssl.keystore.key",
    "consumer.ssl.keystore.key",
    "offset.storage.ssl.key.pem",
    "offset.storage.jdbc.connection.url",
    "schema.history.internal.azure.storage.account.connectionstring",
    "lake.storage.option.AZURE_STORAGE_ACCOUNT_KEY",
    "lake.storage.option.AZURE_STORAGE_SAS_KEY",
    "files.storage.option.AWS_SECRET_ACCESS_KEY",
)
KINDS: Mapping[str, Mapping[str, str]] = {
    "sqlserver": {**MINIMUM, "database.password": "${env:SECRET}"},
    "mysql": {"connector.class": "io.debezium.connector.mysql.MySqlConnector", "topic.prefix": "shop"},
    "kafka": {"connector.class": "cdc_assets.KafkaEvents", "topic.prefix": "shop"},
    "files": {"connector.class": "cdc_assets.FileEvents", "topic.prefix": "shop"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SECRETS)
def test_secrets_must_be_placeholders_where_pages_show_them(kind: str, name: str) -> None:
    assert source_fields(KINDS[kind] | {name: "${env:SECRET}"})
    with pytest.raises(ConfigurationError) as told:
        source_fields(KINDS[kind] | {name: "s3cret!"})
    assert name in str(told.value)
    assert "s3cret!" not in str(told.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_salt_in_a_name_and_a_password_in_an_address_cannot_be_written_there(kind: str) -> None:
    for name, text in (
        ("column.mask.hash.SHA-256.with.salt.s3cret!", "${env:COLUMNS}"),
        ("value.converter.schema.registry.url", "https://cdc:s3cret!@registry:8081"),
        ("lake.path", "s3://cdc:s3cret!@bucket/lake"),
    ):
        with pytest.raises(ConfigurationError) as told:
            source_fields(KINDS[kind] | {name: text})
        assert "s3cret!" not in str(told.value)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_secret_may_be_written_there(kind: str) -> None:
    plain = {
        "key.converter.schema.registry.url": "http://registry:8081",
        "value.converter.schema.registry.url": "http://registry:8081",
        "value.converter.schemas.enable": "false",
        "lake.path": "abfss://lake@account.dfs.core.windows.net/here",
        "message.key.columns": "dbo.a:token_id",
    }
    assert source_fields(KINDS[kind] | plain)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("value.converter.schema.registry.url", "ftp://cdc:s3cret!@registry"),
        ("value.converter.schema.registry.url", "http://cdc:s3cret!@registry"),
        ("value.converter.auto.register.schemas", "s3cret!"),
        ("value.converter.token", "s3cret!"),
        ("topic.prefix", "http://cdc:s3cret!@db"),
        ("colum.mask.hash.SHA-256.with.salt.s3cret!", "dbo.a.x"),
        ("Column.Mask.Hash.SHA-256.With.Salt.s3cret!", "dbo.a.x"),
        ("column.mask.hash.SHA-256.with.salt.s3cret!", "dbo(a.x"),
        ("column.mask.hash.SHA-255.with.slat.s3cret!", "dbo.a.x"),
    ],
)
def test_no_error_repeats_what_may_be_secret(name: str, text: str) -> None:
    avro = {
        "kafka.enabled": "true",
        "bootstrap.servers": "k:9092",
        "value.converter": "io.confluent.connect.avro.AvroConverter",
    }
    with pytest.raises(ConfigurationError) as told:
        build_config(MINIMUM | avro | {"value.converter.schema.registry.url": "http://r", name: text})
    assert "s3cret!" not in str(told.value)


def test_no_error_about_another_connector_repeats_it() -> None:
    for name, text in (
        ("metrics.port", "s3cret!"),
        ("engine.heap", "s3cret!"),
        ("lake.column.mask.hash.SHA-256.with.salt.s3cret!", "x"),
    ):
        with pytest.raises(ConfigurationError) as told:
            engine_config(KINDS["mysql"] | {"custom.sanitize.pattern": "metrics|heap", name: text})
        assert "s3cret!" not in str(told.value)


def test_a_password_that_looks_like_a_placeholder_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match=r"database\.password") as told:
        config_of(MINIMUM | {"database.password": "x${s3cret:s3cret!}z"}, {})
    assert "s3cret" not in str(told.value)


def test_a_registry_takes_no_password_in_its_address() -> None:
    with pytest.raises(ConfigurationError, match=r"basic\.auth\.user\.info") as told:
        SchemaRegistry("http://r:8081, http://cdc:s3cret!@registry:8081")
    assert "s3cret!" not in str(told.value)


def test_properties_without_secrets_are_shown() -> None:
    shown = {"skip.messages.without.change": "true", "metrics.otlp": "true", "message.key.columns": "a:b"}
    assert [name for name in shown if Masks(shown).hides(name)] == []
