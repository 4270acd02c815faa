"""Values that nobody may see are in no error and in no list of what is configured."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc_assets.cli.main import app
from cdc_assets.config.build import build_config
from cdc_assets.errors import ConfigurationError
from cdc_assets_tests.unit.config.minimum import MINIMUM

HIDING = MINIMUM | {"custom.sanitize.pattern": r"(hostname|\.list|topic\.prefix|topic\.name)$"}


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("database.hostname", "hidden..it", "host name"),
        ("topic.prefix", "hidden/it", "letters"),
        ("table.include.list", "hidden(it", "regular expressions, comma separated"),
        ("schema.history.internal.kafka.password", "hidden\0it", "text without NUL"),
        ("notification.sink.topic.name", "hidden/it", "letters"),
    ],
)
def test_error_without_the_value(name: str, text: str, allowed: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        build_config(HIDING | {name: text})
    assert name in str(raised.value)
    assert allowed in str(raised.value)
    assert "hidden" not in str(raised.value)


def test_pattern_has_nothing_to_do_with_topics() -> None:
    assert build_config(HIDING).events.sanitize_pattern == ""
    assert build_config(HIDING | {"topic.sanitize.pattern": "[^a-z]"}).events.sanitize_pattern == "[^a-z]"


@pytest.mark.parametrize(("pattern", "told"), [(r"[^\w.-]", True), ("orders|lines", True), ("hostname", False)])
def test_pattern_that_finds_no_property_is_reported(pattern: str, told: bool) -> None:
    ignored = dict(build_config(MINIMUM | {"custom.sanitize.pattern": pattern}).ignored)
    assert ("topic.sanitize.pattern" in ignored.get("custom.sanitize.pattern", "")) is told


SECRETS = {
    "database.password": "s3cret!",
    "column.mask.hash.SHA-256.with.salt.s3cret!": "dbo.a.x",
    "signal.consumer.sasl.password": "s3cret!",
    "lake.storage.option.AWS_SECRET_ACCESS_KEY": "s3cret!",
    "producer.ssl.key.password": "s3cret!",
    "schema.history.internal.producer.sasl.jaas.config": "s3cret!",
    "database.user": "s3cret!",
}


def test_list_of_what_is_configured(tmp_path: Path) -> None:
    path = tmp_path / "shop.json"
    texts = MINIMUM | SECRETS | {"custom.sanitize.pattern": r"\.USER", "lake.path": "${env:LAKE}"}
    path.write_text(json.dumps(texts))
    told = CliRunner().invoke(app, ["properties", "-c", str(path)], env={"COLUMNS": "200", "LAKE": "x"}).output
    assert "s3cret!" not in told
    lines = {line.split()[0]: line.split()[-1] for line in told.splitlines() if line.strip()}
    hidden = {name.replace("s3cret!", "********") for name in SECRETS}
    assert {name for name, value in lines.items() if value == "********"} == hidden
    assert (lines["database.hostname"], lines["lake.path"]) == ("db", "${env:LAKE}")


def test_list_of_a_wrong_configuration_ends_with_the_error(tmp_path: Path) -> None:
    path = tmp_path / "shop.json"
    path.write_text(json.dumps(MINIMUM | {"database.prot": "1"}))
    result = CliRunner().invoke(app, ["properties", "-c", str(path)], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "database.names" in result.output
    assert "did you mean database.port" in result.output
