"""What may be given for transforms, and what is told of the rest."""

import pytest

from cdc_assets.config.build import build_config
from cdc_assets.config.settings.transforms import AddedField, Predicate, RouteSettings, Step, UnwrapSettings
from cdc_assets.config.transforms import transform_chain
from cdc_assets.errors import ConfigurationError
from cdc_assets_tests.unit.publish.transforms.trials import CONNECT, LOGICAL, OUTBOX, REGEX, UNWRAP, ZONES

MINIMUM = {
    "topic.prefix": "shop",
    "database.hostname": "db",
    "database.names": "Shop",
    "database.user": "cdc",
    "database.password": "secret",
    "bootstrap.servers": "kafka:9092",
}


def chain(kind: str, **options: str) -> tuple[Step, ...]:
    own = {f"transforms.t.{name.replace('__', '.')}": text for name, text in options.items()}
    return transform_chain({"bootstrap.servers": "k", "transforms": "t", "transforms.t.type": kind, **own}, "")


def unwrapped(**options: str) -> UnwrapSettings:
    [step] = chain(UNWRAP, **options)
    assert isinstance(step.settings, UnwrapSettings)
    return step.settings


def test_a_configuration_of_a_connector_is_taken() -> None:
    given = {
        "transforms": "unwrap, route",
        "transforms.unwrap.type": UNWRAP,
        "transforms.unwrap.add.fields": "op,source.ts_ms:at",
        "transforms.unwrap.predicate": "ours",
        "transforms.unwrap.negate": "true",
        "transforms.route.type": REGEX,
        "transforms.route.regex": r"(?<all>.*)",
        "transforms.route.replacement": "${all}.new",
        "predicates": "ours",
        "predicates.ours.type": f"{CONNECT}.predicates.TopicNameMatches",
        "predicates.ours.pattern": "shop",
    }
    unwrap, route = build_config(MINIMUM | given).kafka.transforms
    fields = (AddedField("", "op", "__op"), AddedField("source", "ts_ms", "__at"))
    assert unwrap == Step("unwrap", UnwrapSettings(fields=fields), Predicate("shop", True))
    assert route == Step("route", RouteSettings("(?<all>.*)", "${all}.new"))


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({}, "tombstone"),
        ({"drop.tombstones": "true"}, "drop"),
        ({"drop.tombstones": "false"}, "tombstone"),
        ({"delete.handling.mode": "rewrite"}, "rewrite"),
        ({"delete.handling.mode": "rewrite", "drop.tombstones": "false"}, "rewrite-with-tombstone"),
        ({"delete.handling.mode": "none"}, "delete-to-tombstone"),
    ],
)
def test_modes_of_debezium_2_have_their_names_in_3(options: dict[str, str], mode: str) -> None:
    assert unwrapped(**{name.replace(".", "__"): text for name, text in options.items()}).deletes == mode


@pytest.mark.parametrize(
    ("change", "needles"),
    [
        ({"transforms.t.type": "a.B"}, ["a.B", "classes of the JVM", UNWRAP, LOGICAL, REGEX, "mirror.enabled"]),
        ({"transforms.t.type": ""}, ["transforms.t.type"]),
        ({"bootstrap.servers": ""}, ["bootstrap.servers", "never the lake"]),
        ({"value.format": "flinkx"}, ["value.format"]),
        ({"transforms": "t,t"}, ["each name once"]),
        ({"transforms.u.type": UNWRAP}, ["transforms.u.type", "name it in transforms"]),
        ({"transforms.t.ad.fields": "op"}, ["transforms.t.ad.fields", "add.fields", "route.by.field"]),
        ({"transforms.t.add.fields": "op,op"}, ["each name once"]),
        ({"transforms.t.add.fields": "a.b.c"}, ["struct.field"]),
        ({"transforms.t.delete.tombstone.handling.mode": "keep"}, ["keep", "rewrite-with-tombstone"]),
        ({"transforms.t.delete.handling.mode": "none", "transforms.t.drop.tombstones": "false"}, ["two tombstones"]),
        ({"transforms.t.drop.fields.header.name": "h"}, ["ExtractChangedRecordState"]),
        ({"transforms.t.predicate": "p"}, ["predicates", "name it there"]),
        ({"transforms.t.negate": "true"}, ["predicate"]),
        ({"predicates": "p", "transforms.t.predicate": "p", "predicates.p.type": "a.B"}, ["TopicNameMatches"]),
        (
            {"transforms.t.type": REGEX, "transforms.t.regex": "(", "transforms.t.replacement": "a"},
            ["does not compile"],
        ),
        ({"transforms.t.type": REGEX, "transforms.t.regex": "(a)", "transforms.t.replacement": "$2"}, ["$2", "groups"]),
        ({"transforms.t.type": LOGICAL, "transforms.t.topic.regex": "a"}, ["topic.replacement"]),
        ({"transforms.t.type": OUTBOX, "transforms.t.table.expand.json.payload": "true"}, ["structure of a payload"]),
        ({"transforms.t.type": OUTBOX, "transforms.t.table.fields.additional.placement": "a:body"}, ["column:header"]),
        ({"transforms.t.type": OUTBOX, "transforms.t.route.topic.replacement": "${other}"}, ["groups"]),
        ({"transforms.t.type": ZONES}, ["converted.timezone"]),
        ({"transforms.t.type": ZONES, "transforms.t.converted.timezone": "Mars/Base"}, ["Mars/Base", "Europe/Berlin"]),
        ({"transforms.t.type": ZONES, "transforms.t.converted.timezone": "+8"}, ["+08:00"]),
        (
            {"transforms.t.type": ZONES, "transforms.t.converted.timezone": "UTC", "transforms.t.include.list": "t"},
            ["source:"],
        ),
    ],
)
def test_what_is_wrong_is_told(change: dict[str, str], needles: list[str]) -> None:
    given = MINIMUM | {"transforms": "t", "transforms.t.type": UNWRAP} | change
    with pytest.raises(ConfigurationError) as error:
        build_config(given)
    for needle in needles:
        assert needle in str(error.value)
