"""Options of converters: the same meaning as in Kafka Connect, or refused with their names."""

import pytest

from cdc_assets.config.build import build_config
from cdc_assets_tests.unit.config.minimum import MINIMUM

JSON = "org.apache.kafka.connect.json.JsonConverter"
KAFKA = {"bootstrap.servers": "k:9092", "value.converter": JSON}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("value.converter.schema.enable", "false"),
        ("key.converter.nonsense", "1"),
        ("value.converter.schema.content", "x"),
        ("value.converter.auto.register.schemas", "false"),
        ("header.converter.decimal.format", "NUMERIC"),
        ("header.converter.replace.null.with.default", "false"),
        ("header.converter.schema.enable", "false"),
    ],
)
@pytest.mark.parametrize("header", ["org.apache.kafka.connect.storage.SimpleHeaderConverter", JSON])
def test_an_option_that_would_have_no_effect_is_refused(name: str, value: str, header: str) -> None:
    problem = build_config(MINIMUM | KAFKA | {"header.converter": header, name: value}).kafka.problem
    assert problem is not None
    assert problem[0] == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("value.converter.schemas.cache.size", "10"),
        ("key.converter.schemas.enable", "false"),
        ("key.converter.replace.null.with.default", "false"),
        ("value.converter.decimal.format", "numeric"),
        ("header.converter.decimal.format", "BASE64"),
        ("header.converter.replace.null.with.default", "true"),
        ("header.converter.schemas.enable", "false"),
    ],
)
def test_options_of_the_json_converter_are_known(name: str, value: str) -> None:
    assert build_config(MINIMUM | KAFKA | {name: value}).kafka.problem is None


def test_decimals_are_numbers_on_the_side_that_says_so() -> None:
    found = build_config(MINIMUM | KAFKA | {"key.converter.decimal.format": "Numeric"})
    assert (found.kafka.key.numeric, found.kafka.value.numeric) == (True, False)
    assert (found.text.key_decimals, found.text.value_decimals) == ("NUMERIC", "BASE64")
    flat = MINIMUM | KAFKA | {"value.format": "flinkx", "value.converter.decimal.format": "NUMERIC"}
    problem = build_config(flat).kafka.problem
    assert problem is not None
    assert problem[0] == "value.converter.decimal.format"
