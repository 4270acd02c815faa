"""Byte strings by all channels at once: none stops the stream, none is told as a fault, and the signals behind them act.

They are signals that somebody has broken: bytes flipped, cut off and put in, values of other types, texts and numbers of
other sizes. `CDC_LAW_EXAMPLES` says how many hundreds; one by default.
"""

import copy
import io
import json
import logging
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.config import patterns
from cdc_assets.errors import ConfigurationError
from cdc_assets.lake.location import Location
from cdc_assets.signals import requests, tables
from cdc_assets.signals.inbox import Inbox
from cdc_assets.signals.model import Signal
from cdc_assets_tests.unit.adapters.kafka.broker import Broker
from cdc_assets_tests.unit.signals.world import World
from mssql_standin.control import StandIn

ROUNDS = int(os.environ.get("CDC_LAW_EXAMPLES", "1"))
STRINGS = 100
"""Of a round, after which the stream must have gone on."""

LONGEST = 8000
"""Characters in a row of the signal table: the driver keeps the interpreter's lock while it waits for long values, and the
server that is to send them is in the same process."""
SLOW = r"(?:.|..)*(?=!)"
NAMES = [
    "dbo.orders",
    "SalesDb.dbo.orders",
    "SalesDb[.]dbo[.]o.*",
    '"SalesDb"."dbo"."orders"',
    ".*",
    "dbo.nothing",
    SLOW,
    "(",
]
TYPES = [
    "execute-snapshot",
    "stop-snapshot",
    "pause-snapshot",
    "resume-snapshot",
    "schema-changes",
    "log",
    "snapshot-window-open",
]
CHANGE = {
    "type": "ALTER",
    "id": '"SalesDb"."dbo"."orders"',
    "table": {
        "primaryKeyColumnNames": ["id"],
        "columns": [
            {
                "name": "id",
                "typeName": "int",
                "jdbcType": 4,
                "position": 1,
                "optional": False,
                "defaultValueExpression": "1",
            },
            {"name": "version", "typeName": "int", "jdbcType": 4, "position": 2, "optional": True},
        ],
    },
}
ODD: list[Callable[[random.Random], bytes]] = [
    lambda rng: rng.choice(
        [b"\\ud800", b"\\udfff\\ud800", b"\xed\xa0\x80", b"\xff\xfe", b"\x00", b"\\u0000", b"\xef\xbb\xbf"]
    ),
    lambda rng: rng.choice([b"[", b'{"a":', b"("]) * rng.choice([1, 100, 5000, 50_000]),
    lambda rng: b"9" * rng.choice([1, 30, 400, 5000]),
    lambda rng: rng.choice(
        [b"1e999", b"-0", b"NaN", b"-Infinity", b"null", b"true", b"{}", b"[]", b'""', b"'", b"]", b"}"]
    ),
    lambda rng: rng.choice([b"x", b"\xc3\xa9", b" ", b"\n", b"\\", b'"', b"{}", b"%s"]) * rng.choice([1, 300, 70_000]),
    lambda rng: bytes(rng.randrange(256) for _ in range(rng.randrange(8))),
    lambda rng: b'"type":"log","data":{"message":"twice"},',
]
VALUES: list[Any] = [
    None,
    True,
    -1,
    2**70,
    1.5,
    "",
    "x" * 5000,
    [],
    {},
    [[]],
    {"a": {}},
    "\ud800",
    "a\0b",
    "é",
    [None],
    ["\udc00"],
]


def whole(rng: random.Random) -> dict[str, Any]:
    """A signal that makes sense, or nearly."""
    data: dict[str, Any] = {
        "data-collections": rng.sample(NAMES, rng.randrange(1, 3)),
        "type": rng.choice(["incremental", "blocking", "INCREMENTAL"]),
        "message": "at {}",
        "database": "SalesDb",
        "changes": [CHANGE],
    }
    if rng.random() < 0.4:
        text = rng.choice(["id > 1", "SELECT * FROM SalesDb.dbo.orders", "1 = 'x", "id /*", "1=1) OR (1=1", "é = 1"])
        data["additional-conditions"] = [{"data-collection": rng.choice(NAMES), "filter": text}]
    if rng.random() < 0.2:
        data["surrogate-key"] = rng.choice(["version", "nothing", "[id]"])
    return {"id": rng.choice(["a", "b", "é", "x" * 300]), "type": rng.choice(TYPES), "data": data}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Containers in JSON data, with a key of each of their values."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def broken(rng: random.Random) -> bytes:
    """One of them, perhaps broken in its values, then perhaps in its bytes."""
    entry = json.loads(json.dumps(whole(rng)))
    for _ in range(rng.choice([0, 0, 1, 1, 3])):
        container, key = rng.choice(list(places(entry)))
        container[key] = copy.deepcopy(rng.choice(VALUES))
    if rng.random() < 0.3:
        entry["data"] = json.dumps(entry.get("data"))
    text = json.dumps(entry, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    for _ in range(rng.choice([0, 0, 1, 1, 2, 5])):
        start = rng.randrange(len(text) + 1)
        text = text[:start] + rng.choice(ODD)(rng) + text[start + rng.choice([0, 0, 1, 20]) :]
    return text[: rng.randrange(len(text) + 1)] if rng.random() < 0.1 else text


def literal(text: str) -> str:
    """T-SQL for a text, whatever it holds."""
    parts = re.split("([\0\ud800-\udfff])", text.replace("'", "''"))
    return " + ".join(
        [f"N'{part}'" if place % 2 == 0 else f"NCHAR({ord(part)})" for place, part in enumerate(parts) if part]
        or ["N''"]
    )


class Senders:
    """Ways by which a byte string reaches the capture.

    Args:
        world: whose capture.
        broker: of the topic of signals.
        file: of signals.
    """

    def __init__(self, world: World, broker: Broker, file: Path) -> None:
        self._world, self._broker, self._file = world, broker, file
        self._inbox = Inbox(Location.of(world.config.lake), "shop")
        self.refused: list[str] = []
        """What the command and the launchpad would show."""
        self.ways = [self.row, self.split, self.line, self.message, self.request, self.asked]

    def row(self, sent: bytes, rng: random.Random) -> None:
        """The whole as data, of a type that exists."""
        text = sent.decode("utf-8", rng.choice(["surrogateescape", "replace"]))
        self._insert("row", rng.choice(TYPES), text)

    def split(self, sent: bytes, rng: random.Random) -> None:
        """Its parts, if it has any, in the columns."""
        try:
            entry = json.loads(sent)
            own_id, kind, data = str(entry["id"])[:100], str(entry["type"]), json.dumps(entry["data"])
        except (ValueError, TypeError, KeyError, RecursionError):
            own_id, kind, data = "cut", sent[:30].decode("latin-1"), sent[30:].decode("latin-1")
        self._insert(own_id, kind, data)

    def _insert(self, own_id: str, kind: str, data: str) -> None:
        values = ", ".join(map(literal, (own_id[:200], kind[:2000], data[:LONGEST])))
        self._world.sql(f"INSERT INTO dbo.cdc_signal VALUES ({values})")

    def line(self, sent: bytes, rng: random.Random) -> None:
        """A line of the file, or several, with or without an end."""
        with self._file.open("ab") as file:
            file.write(sent + rng.choice([b"\n", b"\r\n", b"\n\n"]))

    def message(self, sent: bytes, rng: random.Random) -> None:
        """A message of the topic."""
        self._broker.send(sent)

    def request(self, sent: bytes, rng: random.Random) -> None:
        """A file in the inbox."""
        folder = Path(self._world.config.lake.path) / "shop.__signals"
        folder.mkdir(exist_ok=True)
        name = rng.choice([f"{time.time_ns():014d}", "é" * 20, "a b"]).encode() + rng.choice([b"", b"", b"\xff\xfe"])
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name + b".json")).write_bytes(sent)

    def asked(self, sent: bytes, rng: random.Random) -> None:
        """What the command and the launchpad do, with parts of it as their arguments."""
        part = sent.decode("utf-8", "surrogateescape")
        text = [part[start : start + 40] for start in (rng.randrange(len(part) + 1) for _ in range(3))]
        try:
            signal = requests.compose(
                rng.choice(["run", part[:50]]), rng.choice(TYPES), [rng.choice(NAMES), text[0]], {text[1]: text[2]},
                snapshot=rng.choice(["incremental", "blocking"]), surrogate=rng.choice(["", text[2]]), message=text[2],
            )  # fmt: skip
            requests.ask(self._world.config, signal)
        except ConfigurationError as refused:
            self.refused.append(str(refused))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MATCH_S", 0.02)
    monkeypatch.setattr(tables, "_MATCHING_S", 0.05)


@pytest.mark.usefixtures("quick")
@pytest.mark.law
@pytest.mark.timeout(120 * ROUNDS)
def test_nothing_that_anybody_sends_stops_the_stream(
    server: StandIn, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seed, broker, file = int(os.environ.get("CDC_LAW_SEED", "0")), Broker(), tmp_path / "signals.txt"
    channels = ("source", "file", "kafka")
    world = World(
        server, str(tmp_path / "lake"), channels=channels, file=str(file), kafka_servers=broker.address,
        columns="id nvarchar(200), type nvarchar(2000), data nvarchar(max)",
    )  # fmt: skip
    table = world.make("orders", "id int PRIMARY KEY, version int NULL")
    world.sql("INSERT INTO dbo.orders VALUES (-1, -1), (-2, -2), (-3, NULL)")
    server.agent.drain()
    world.run("snapshot")
    senders, written = Senders(world, broker, file), io.BytesIO()
    handler = logging.StreamHandler(io.TextIOWrapper(written, "utf-8", write_through=True))
    logging.getLogger().addHandler(handler)
    for number in range(ROUNDS):
        rng = random.Random(f"{seed}/{number}")  # noqa: S311 - a test
        for _ in range(STRINGS):
            rng.choice(senders.ways)(broken(rng), rng)
        world.sql(f"INSERT INTO dbo.orders VALUES ({number}, 0)")
        server.agent.drain()
        world.run()
        created = [event["value"]["after"]["id"] for event in world.events(table) if event["value"]["op"] == "c"]
        assert created[-1] == number, f"round {number}"
        text = written.getvalue().decode()
        for word in ("Traceback", "Logging error", "bug in cdc-assets", "Internal"):
            assert word not in text, f"round {number}"
            assert word not in capfd.readouterr().err, f"round {number}"
        written.truncate(0)
    logging.getLogger().removeHandler(handler)
    assert all(len(text.encode()) < 10_000 for text in senders.refused)
    assert not file.exists()
    assert not senders._inbox.waiting({})
    Inbox(Location.of(world.config.lake), "shop").put(Signal("end", "stop-snapshot", None))
    time.sleep(0.002)
    before = len(world.reads(table))
    data = json.dumps({"data-collections": ["dbo.orders"]})
    Inbox(Location.of(world.config.lake), "shop").put(Signal("done", "execute-snapshot", data))
    world.run()
    assert len(world.reads(table)) == before + 3 + ROUNDS
