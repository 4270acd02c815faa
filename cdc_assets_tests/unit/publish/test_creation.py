"""Which rule makes a topic: Java's expressions, and none that never ends."""

from dataclasses import replace

import pytest

from cdc_assets.adapters.kafka.admin import rule_for
from cdc_assets.config.kafka import kafka_settings
from cdc_assets.errors import ConfigurationError

SLOW = r"(?:.|..)*(?=!)"
"""Tries all ways of cutting a name into ones and twos."""


def test_groups_match_as_in_java() -> None:
    texts = {
        "topic.creation.groups": "wide",
        "topic.creation.wide.include": r"(?<own>shop)\..*,x",
        "topic.creation.wide.exclude": r".*\.t",
        "topic.creation.wide.partitions": "12",
    }
    rules = kafka_settings({}, texts, "debezium").rules
    found = [rule_for(name, rules).partitions for name in ("shop.a", "x", "shop.t", "shop", "my.shop.a")]
    assert found == [12, 12, -1, -1, -1]
    slow = [replace(rules[0], include=(SLOW,)), *rules]
    with pytest.raises(ConfigurationError, match="takes too long"):
        rule_for("a" * 100, slow)
    with pytest.raises(ConfigurationError, match=r"topic\.creation\.wide\.include"):
        kafka_settings({}, texts | {"topic.creation.wide.include": "("}, "debezium")
