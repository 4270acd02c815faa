"""Random records of every kind of Connect's schemas: `python -m cdc_assets_tests.engines.kinds FOLDER SEED CHUNKS`.

They are written twice: as the engine's process sends them, chunk after chunk, and as Kafka Connect's JSON converter does.
"""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cdc_assets.connectors.debezium.child import compiled, jars

TEXTS = ["", "a", "ä€😀", 'quoted "\n"', "the same text in many rows"]
CONNECT = "org.apache.kafka.connect.data"


def _java(name: str) -> Any:
    import jpype

    return jpype.JClass(name)


def _boxed(kind: str, value: Any) -> Any:
    return _java(f"java.lang.{kind}").valueOf(str(value))


def _bytes(rng: random.Random) -> Any:
    import jpype

    made = jpype.JArray(jpype.JByte)(rng.randbytes(rng.randrange(9)))
    return made if rng.random() < 0.5 else _java("java.nio.ByteBuffer").wrap(made)


def _decimal(rng: random.Random, digits: int, scale: int) -> Any:
    number = rng.choice(
        [0, 1, -1, 10**digits - 1, 1 - 10**digits, rng.randrange(10**digits), -rng.randrange(10**digits)]
    )
    return _java("java.math.BigDecimal")(_java("java.math.BigInteger")(str(number)), scale)


def _kinds() -> dict[str, tuple[Any, Callable[[random.Random], Any]]]:
    """Of each kind an optional schema, and what makes a value."""
    builder = _java(f"{CONNECT}.SchemaBuilder")

    def number(kind: str, bits: int) -> Callable[[random.Random], Any]:
        ends = [0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]
        return lambda rng: _boxed(kind, rng.choice([*ends, rng.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))]))

    def narrow(digits: int, scale: int) -> Any:
        made = _java(f"{CONNECT}.Decimal").builder(scale)
        return made.parameter("connect.decimal.precision", str(digits)).optional().build()

    def date(unit: int, most: int) -> Callable[[random.Random], Any]:
        return lambda rng: _java("java.util.Date")(rng.randrange(most) * unit)

    def text(rng: random.Random) -> str:
        return rng.choice(TEXTS)

    return {
        "flag": (builder.bool().optional().build(), lambda rng: _boxed("Boolean", rng.random() < 0.5)),
        "i8": (builder.int8().optional().build(), number("Byte", 8)),
        "i16": (builder.int16().optional().build(), number("Short", 16)),
        "i32": (builder.int32().optional().build(), number("Integer", 32)),
        "i64": (builder.int64().optional().build(), number("Long", 64)),
        "f32": (builder.float32().optional().build(), lambda rng: _boxed("Float", rng.randrange(-999, 999) / 8)),
        "f64": (builder.float64().optional().build(), lambda rng: _boxed("Double", rng.random() * 1e9)),
        "text": (builder.string().optional().build(), text),
        "same": (builder.string().optional().build(), lambda _: "same"),
        "given": (builder.string().optional().defaultValue("default").build(), text),
        "raw": (builder.bytes().optional().build(), _bytes),
        "dec": (narrow(9, 2), lambda rng: _decimal(rng, 9, 2)),
        "dec38": (narrow(38, 10), lambda rng: _decimal(rng, 38, 10)),
        "wide": (narrow(60, 3), lambda rng: _decimal(rng, 60, 3)),
        "free": (_java(f"{CONNECT}.Decimal").builder(1).optional().build(), lambda rng: _decimal(rng, 50, 1)),
        "day": (_java(f"{CONNECT}.Date").builder().optional().build(), date(86_400_000, 30_000)),
        "time": (_java(f"{CONNECT}.Time").builder().optional().build(), date(1, 86_400_000)),
        "at": (_java(f"{CONNECT}.Timestamp").builder().optional().build(), date(1, 10**13)),
    }


def _nested(rng: random.Random, kinds: dict[str, Any]) -> dict[str, Any]:
    """Arrays, maps and a struct of these."""
    builder = _java(f"{CONNECT}.SchemaBuilder")
    found = {}
    for name, (schema, value) in rng.sample(sorted(kinds.items()), 5):
        found[f"list_{name}"] = builder.array(schema).optional().build(), _many(value)
    text, make = kinds["text"]
    found["map"] = builder.map(_java(f"{CONNECT}.Schema").STRING_SCHEMA, text).optional().build(), _entries(make)
    inner = rng.sample(sorted(kinds.items()), 4)
    struct = _struct("Inner", inner)
    found["struct"] = struct, lambda rng: _filled(rng, struct, inner)
    found["structs"] = builder.array(struct).optional().build(), _many(found["struct"][1])
    return found


def _many(value: Callable[[random.Random], Any]) -> Callable[[random.Random], Any]:
    def make(rng: random.Random) -> Any:
        made = _java("java.util.ArrayList")()
        for _ in range(rng.randrange(4)):
            made.add(None if rng.random() < 0.3 else value(rng))
        return made

    return make


def _entries(value: Callable[[random.Random], Any]) -> Callable[[random.Random], Any]:
    def make(rng: random.Random) -> Any:
        made = _java("java.util.LinkedHashMap")()
        for number in range(rng.randrange(3)):
            made.put(f"k{number}", None if rng.random() < 0.3 else value(rng))
        return made

    return make


def _struct(name: str, columns: list[Any]) -> Any:
    made = _java(f"{CONNECT}.SchemaBuilder").struct().name(name).optional()
    for column, (schema, _) in columns:
        made = made.field(column, schema)
    return made.build()


def _filled(rng: random.Random, schema: Any, columns: list[Any]) -> Any:
    made = _java(f"{CONNECT}.Struct")(schema)
    missing = rng.choice([0.0, 0.0, 0.3, 1.0])
    for name, (_, value) in columns:
        made.put(name, None if name != "same" and rng.random() < missing else value(rng))
    return made


def write(folder: Path, seed: int, chunks: int) -> None:
    """`<n>.json`, `<n>.bin` and `<n>.events` for each chunk; the encoder is the same for all."""
    import jpype

    @jpype.JImplements("io.debezium.engine.RecordChangeEvent")
    class Event:
        def __init__(self, record: Any) -> None:
            self._record = record

        @jpype.JOverride
        def record(self) -> Any:
            return self._record

    rng, encoder = random.Random(seed), compiled("Column", "Encoder")()  # noqa: S311 - not for secrets
    converter = _java("org.apache.kafka.connect.json.JsonConverter")()
    options = _java("java.util.HashMap")()
    options.put("schemas.enable", "false")
    converter.configure(options, False)
    kinds = _kinds()
    tables = []
    for number in range(3):
        columns = [*kinds.items(), *_nested(rng, kinds).items()]
        rng.shuffle(columns)
        tables.append((f"t{number}", _struct("Row", columns), columns))
    key = _java(f"{CONNECT}.SchemaBuilder").struct().name("Key").field("text", kinds["text"][0]).build()
    keys = [("text", kinds["text"])]
    empty = _java("java.util.HashMap")()
    for chunk in range(chunks):
        events, described = _java("java.util.ArrayList")(), []
        for _ in range(rng.choice([1, 7, 8, 9, 64, 200])):
            topic, schema, columns = rng.choice(tables)
            value = None if rng.random() < 0.1 else _filled(rng, schema, columns)
            own_key = _filled(rng, key, keys)
            headers = _java("org.apache.kafka.connect.header.ConnectHeaders")()
            for count in range(rng.choice([0, 0, 0, 2])):
                headers.addString(f"h{count}", rng.choice(TEXTS))
            record = _java("org.apache.kafka.connect.source.SourceRecord")(
                empty, empty, topic, None, key, own_key, None if value is None else schema, value, None, headers
            )
            events.add(Event(record))
            pair = [(key, own_key), (schema, value)]
            texts = [None if v is None else bytes(converter.fromConnectData(topic, s, v)).decode() for s, v in pair]
            described.append(
                [topic, *(text and json.loads(text) for text in texts), [[h.key(), h.value()] for h in headers]]
            )
        (folder / f"{chunk}.json").write_bytes(bytes(encoder.encode(events, True)))
        (folder / f"{chunk}.bin").write_bytes(bytes(encoder.body()))
        (folder / f"{chunk}.events").write_text(json.dumps(described))


def main(folder: Path, seed: int, chunks: int) -> None:
    """Write them."""
    import jpype

    jpype.startJVM("-Xmx512m", "-Dslf4j.internal.verbosity=ERROR", classpath=jars(), convertStrings=True)
    write(folder, seed, chunks)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
