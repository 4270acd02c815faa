"""Events and the transforms that are tried on them; what Java's classes make of them is in `golden/transforms.json`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parents[3] / "golden"
GOLDEN = _FOLDER / "transforms.json"
PACKAGE = "io.debezium.transforms"


@dataclass(frozen=True)
class Event:
    """A record; keys, values and headers as JSON with their schemas."""

    topic: str
    key: Any
    value: Any
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """A chain of transforms, and the events that go through it."""

    name: str
    properties: Mapping[str, str]
    events: tuple[Event, ...]

    @property
    def steps(self) -> list[str]:
        """Names of the transforms in their order."""
        return self.properties["transforms"].split(",")


def golden(name: str) -> Event:
    """An event that Debezium sent."""
    found = json.loads((_FOLDER / f"{name}.json").read_text())
    return Event(found["topic"], found["key"], found["value"], found["headers"])


def trial(name: str, events: tuple[Event, ...], kind: str, **options: str) -> Trial:
    """A trial of one transform; `__` in an option's name stands for a point."""
    own = {f"transforms.t.{option.replace('__', '.')}": text for option, text in options.items()}
    return Trial(name, {"transforms": "t", "transforms.t.type": kind, **own}, events)


CUSTOMERS = tuple(golden(name) for name in ("read-first", "create", "update", "delete", "tombstone"))
ORDERS = tuple(golden(name) for name in ("create-in-transaction", "message-key-delete", "message-key-create"))
OTHERS = tuple(golden(name) for name in ("types-read", "types-update-max-unchanged", "defaults-read"))
KEYLESS = tuple(golden(name) for name in ("keyless-delete", "keyless-tombstone"))
ALL = (*CUSTOMERS, *ORDERS, *OTHERS, *KEYLESS)
UNWRAP = f"{PACKAGE}.ExtractNewRecordState"
_MODES = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")

_UNWRAPPED = (
    *(trial(f"unwrap {mode}", ALL, UNWRAP, delete__tombstone__handling__mode=mode) for mode in _MODES),
    trial("unwrap", ALL, UNWRAP),
    trial(
        "unwrap with fields",
        ALL,
        UNWRAP,
        delete__tombstone__handling__mode="rewrite",
        add__fields="op,table,source.ts_ms:when,transaction.id,total_order,lsn,ts_us,snapshot",
        add__fields__prefix="_",
    ),
    trial(
        "unwrap with headers",
        ALL,
        UNWRAP,
        delete__tombstone__handling__mode="rewrite-with-tombstone",
        add__headers="op,db,source.ts_ms,transaction.total_order,source.change_lsn:lsn,snapshot",
        add__fields="op",
    ),
    trial("unwrap with headers of tombstones", ALL, UNWRAP, add__headers="op,source.ts_ms", add__headers__prefix="h_"),
    trial(
        "unwrap by field",
        (*CUSTOMERS, *ORDERS),
        UNWRAP,
        delete__tombstone__handling__mode="rewrite",
        route__by__field="name",
    ),
    trial(
        "unwrap without defaults",
        OTHERS,
        UNWRAP,
        delete__tombstone__handling__mode="rewrite",
        replace__null__with__default="false",
    ),
)

CONNECT = "org.apache.kafka.connect.transforms"
REGEX = f"{CONNECT}.RegexRouter"
LOGICAL = f"{PACKAGE}.ByLogicalTableRouter"
TABLES = r"shop\.(.*)\.(customers|orders|types|nokey)"

_ROUTED = (
    trial("regex", ALL, REGEX, regex=r"(.*)\.dbo\.(?<table>[a-z]+)", replacement=r"${table}-\$$1"),
    trial("regex of a part", CUSTOMERS, REGEX, regex="shop|shop.TestDB.dbo.customers", replacement="$0x"),
    trial("regex without match", CUSTOMERS, REGEX, regex="shop", replacement="other"),
    trial("logical", ALL, LOGICAL, topic__regex=TABLES, topic__replacement="all.$2"),
    trial(
        "logical with key",
        ALL,
        LOGICAL,
        topic__regex=TABLES,
        topic__replacement="9all-$1",
        key__field__name="table",
        key__field__regex=TABLES,
        key__field__replacement="$2!",
        schema__name__adjustment__mode="avro",
    ),
    trial(
        "logical without key",
        (*CUSTOMERS, *KEYLESS),
        LOGICAL,
        topic__regex="(.*)customers",
        topic__replacement="$1c",
        key__enforce__uniqueness="false",
    ),
    trial(
        "logical with a key that there is",
        CUSTOMERS,
        LOGICAL,
        topic__regex="(.*)",
        topic__replacement="a",
        key__field__name="id",
    ),
    Trial(
        "chain with predicates",
        {
            "transforms": "route,tables,unwrap",
            "transforms.route.type": LOGICAL,
            "transforms.route.topic.regex": ".*orders|.*customers",
            "transforms.route.topic.replacement": "both",
            "transforms.unwrap.type": UNWRAP,
            "transforms.unwrap.add.headers": "op",
            "transforms.unwrap.delete.tombstone.handling.mode": "rewrite-with-tombstone",
            "transforms.unwrap.predicate": "both",
            "transforms.tables.type": REGEX,
            "transforms.tables.regex": ".*",
            "transforms.tables.replacement": "$0.tombstones",
            "transforms.tables.predicate": "gone",
            "transforms.tables.negate": "true",
            "predicates": "both,gone",
            "predicates.both.type": f"{CONNECT}.predicates.TopicNameMatches",
            "predicates.both.pattern": "both.*",
            "predicates.gone.type": f"{CONNECT}.predicates.RecordIsTombstone",
        },
        ALL,
    ),
)

TRIALS = (*_UNWRAPPED, *_ROUTED)
