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

OUTBOX = f"{PACKAGE}.outbox.EventRouter"


def outbox_event(op: str | None, number: int, *, whole: bool = True, **row: Any) -> Event:
    """A row of an outbox; None is a tombstone."""
    text = {"type": "string", "optional": True}
    columns: dict[str, Any] = {
        "id": {"type": "int64", "optional": False},
        "aggregatetype": {"type": "string", "optional": False},
        "aggregateid": text,
        "type": text | {"default": "Made"},
        "payload": text,
        "shard": {"type": "int32", "optional": True},
        "version": {"type": "int32", "optional": False},
        "at": {"type": "int64", "optional": True, "name": "io.debezium.time.NanoTimestamp", "version": 1},
        "price": {
            "type": "bytes",
            "optional": True,
            "name": "org.apache.kafka.connect.data.Decimal",
            "version": 1,
            "parameters": {"scale": "2", "connect.decimal.precision": "10"},
            "default": "BOI=",
        },
        "day": {"type": "int32", "optional": True, "name": "org.apache.kafka.connect.data.Date", "version": 1},
        "moment": {"type": "int64", "optional": True, "name": "org.apache.kafka.connect.data.Timestamp", "version": 1},
        "raw": {"type": "bytes", "optional": True},
        "ratio": {"type": "double", "optional": True},
        "whole": {"type": "boolean", "optional": True},
    }
    fields = [schema | {"field": name} for name, schema in columns.items() if whole or name != "shard"]
    start, name = golden("create"), "shop.TestDB.dbo.outbox"
    own = {"type": "struct", "fields": fields, "optional": True, "name": f"{name}.Value"}
    others = start.value["schema"]["fields"][2:]
    images = [own | {"field": image} for image in ("before", "after")]
    schema = {
        "type": "struct",
        "fields": [*images, *others],
        "optional": False,
        "name": f"{name}.Envelope",
        "version": 2,
    }
    full = {"id": number, "aggregatetype": "Order", "aggregateid": f"k{number}", "type": "New", "payload": f"p{number}"}
    full |= {"shard": number % 3, "version": 1, "at": -1_500_000 - number, "price": None}
    full |= {
        "day": 19_000 + number,
        "moment": 1_700_000_000_000 + number,
        "raw": "AQID",
        "ratio": number / 2,
        "whole": True,
    }
    row = {column: value for column, value in (full | row).items() if whole or column != "shard"}
    sides = {"before": None if op in ("c", "r") else row, "after": None if op == "d" else row}
    payload = start.value["payload"] | sides | {"op": op, "ts_ms": 1_700_000_000_000 + number}
    key_field = {"type": "int64", "optional": False, "field": "id"}
    key = {"type": "struct", "fields": [key_field], "optional": False, "name": f"{name}.Key"}
    value = None if op is None else {"schema": schema, "payload": payload}
    return Event(name, {"schema": key, "payload": {"id": number}}, value, start.headers)


_MESSAGES = (
    outbox_event("c", 1),
    outbox_event("r", 2, aggregateid=None, payload=None, type=None, at=None),
    outbox_event("c", 3, payload="", shard=None, at=1_700_000_000_123_456_789, price="Jws="),
    outbox_event("c", 4, payload=" \t\n", aggregateid=""),
    outbox_event("u", 5),
    outbox_event("d", 6),
    outbox_event(None, 6),
    outbox_event("c", 7, payload='{"a": [1, "ü"]}', version=2),
)
_PLACED = "type:header,shard:partition,price:header:cost," + ",".join(
    f"{name}:header" for name in ("day", "moment", "raw", "ratio", "whole")
)
_OUTBOXES = (
    trial("outbox", _MESSAGES, OUTBOX),
    trial("outbox and other events", (*_MESSAGES, *CUSTOMERS[3:]), OUTBOX, route__tombstone__on__empty__payload="true"),
    trial("outbox that fails at updates", _MESSAGES[4:5], OUTBOX, table__op__invalid__behavior="fatal"),
    trial("outbox with headers and partitions", _MESSAGES, OUTBOX, table__fields__additional__placement=_PLACED),
    trial(
        "outbox with an envelope",
        _MESSAGES,
        OUTBOX,
        table__fields__additional__placement="type:envelope,price:envelope:cost,id:header:number",
        table__field__event__timestamp="at",
        route__tombstone__on__empty__payload="true",
    ),
    trial(
        "outbox with versions",
        (_MESSAGES[0], _MESSAGES[2], _MESSAGES[-1]),
        OUTBOX,
        table__fields__additional__placement="type:envelope",
        table__field__event__schema__version="version",
    ),
    trial(
        "outbox by other columns",
        (*_MESSAGES, outbox_event("c", 8, aggregatetype="Customer", type="Gone")),
        OUTBOX,
        route__by__field="aggregatetype",
        route__topic__regex="(Ord)(.*)",
        route__topic__replacement="out.$2",
        table__field__event__key="shard",
        table__field__event__id="type",
        table__field__event__payload="aggregateid",
    ),
    trial(
        "outbox without a column",
        (outbox_event("c", 1, whole=False),),
        OUTBOX,
        table__fields__additional__placement="shard:header",
        table__field__additional__missing="ignore",
    ),
    trial(
        "outbox without a column that is needed",
        (outbox_event("c", 1, whole=False),),
        OUTBOX,
        table__field__event__key="shard",
    ),
)

ZONES = f"{PACKAGE}.TimezoneConverter"
_KINDS = {
    "ms": "io.debezium.time.Timestamp",
    "us": "io.debezium.time.MicroTimestamp",
    "ns": "io.debezium.time.NanoTimestamp",
    "connect": "org.apache.kafka.connect.data.Timestamp",
    "zoned": "io.debezium.time.ZonedTimestamp",
}
_UNITS = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000, "connect": 1_000}


def moment_event(number: int, second: int, zoned: str | None, op: str = "u") -> Event:
    """A wall-clock time in all types that have one."""
    start, name = golden("update"), "shop.TestDB.dbo.moments"
    fields: list[dict[str, Any]] = [
        {
            "type": "string" if column == "zoned" else "int64",
            "optional": True,
            "name": kind,
            "version": 1,
            "field": column,
        }
        | ({"default": 3} if column == "ms" else {})
        for column, kind in _KINDS.items()
    ]
    fields.append({"type": "int32", "optional": True, "name": "io.debezium.time.Date", "version": 1, "field": "day"})
    row: dict[str, Any] = {column: second * unit + number for column, unit in _UNITS.items()} | {
        "zoned": zoned,
        "day": 3,
    }
    own = {"type": "struct", "fields": fields, "optional": True, "name": f"{name}.Value"}
    images = [own | {"field": image} for image in ("before", "after")]
    others = start.value["schema"]["fields"][2:]
    schema = {
        "type": "struct",
        "fields": [*images, *others],
        "optional": False,
        "name": f"{name}.Envelope",
        "version": 2,
    }
    nothing = dict.fromkeys(row)
    source = start.value["payload"]["source"] | {"table": "moments", "ts_ms": second * 1_000 + number, "ts_us": None}
    payload = start.value["payload"] | {"before": row if op == "u" else None, "after": row if number else nothing}
    return Event(name, start.key, {"schema": schema, "payload": payload | {"op": op, "source": source}}, start.headers)


_MOMENTS = (
    moment_event(0, 1_700_000_000, "2023-11-14T22:13:20Z"),
    moment_event(1, 1_711_848_600, "2024-03-31T02:30:00.1234567+01:00"),
    moment_event(2, 1_711_852_200, "2024-03-31T01:00:00+00:00"),
    moment_event(3, 1_729_996_200, "2024-10-27T02:30:00.100000+02:00"),
    moment_event(4, 1_729_999_799, "2024-10-27T00:59:59.999999999Z"),
    moment_event(5, -3_000_000_000, "1874-12-07T20:30:00-04:56:02", "c"),
    moment_event(6, 4_102_444_800, None, "c"),
)
_TIMES = (*_MOMENTS, *CUSTOMERS, *OTHERS)
_ZONED = (
    trial("zone", _TIMES, ZONES, converted__timezone="Europe/Berlin"),
    trial("zone in the west", _TIMES, ZONES, converted__timezone="America/New_York"),
    trial("offset", _TIMES, ZONES, converted__timezone="-03:30"),
    trial("offset of seconds", _MOMENTS, ZONES, converted__timezone="+01:02:03"),
    trial(
        "zone of some",
        _TIMES,
        ZONES,
        converted__timezone="Europe/Berlin",
        include__list="source:moments:ms,moments:before.us,moments:source.ts_ms,topic:shop.TestDB.dbo.customers",
    ),
    trial(
        "zone of either",
        _TIMES,
        ZONES,
        converted__timezone="Europe/Berlin",
        include__list="moments:ns,shop.TestDB.dbo.types:c_dt",
    ),
    trial(
        "zone of others",
        _TIMES,
        ZONES,
        converted__timezone="Europe/Berlin",
        exclude__list="source:customers,moments:us,moments:source.ts_ns",
    ),
)

TRIALS = (*_UNWRAPPED, *_ROUTED, *_OUTBOXES, *_ZONED)
