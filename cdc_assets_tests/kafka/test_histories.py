"""Random histories of a table reach their topic once and in order, though publishers are killed at their steps, and the broker.

`CDC_LAW_EXAMPLES` sets how many histories are tried.
"""

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.envelope.json import event_text
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.e2e.chains import PUBLISH
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.publishing import Publishing, murmur2
from cdc_assets_tests.unit.lake.writing import join_all
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

HISTORIES = int(os.environ.get("CDC_LAW_EXAMPLES", "2"))
_BROKER = "broker"
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Record = tuple[bytes | None, bytes | None]


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_each_event_is_there_once_and_in_its_order(server: StandIn, tmp_path: Path, broker: Broker, seed: int) -> None:
    chance = random.Random(f"history {seed}")  # noqa: S311 - histories that can be made again
    partitions = chance.choice([1, 3])
    options = {
        "kafka.transaction.rows": str(chance.choice([1, 3, 20, 1000])),
        "topic.creation.default.partitions": str(partitions),
        "topic.creation.default.replication.factor": "1",
        "producer.override.compression.type": chance.choice(_CODECS),
        "errors.max.retries": "-1",
    }
    case = Publishing(server, tmp_path, broker, f"history{seed}", **options)
    rows = set(range(chance.choice([0, 1, 30])))
    if rows:
        case.insert(*rows)
    case.capture("snapshot")
    for plug in chance.sample([*PUBLISH, _BROKER, ""], chance.randint(2, 4)):
        for _ in range(chance.randint(0, 3)):
            case.execute(transaction(chance, rows))
            if chance.random() < 0.5:
                case.capture()
        case.capture()
        if chance.random() < 0.2:
            join_all(TopicTables.of(case.config), case.topic)
        pull(plug, case, chance)
    case.publish()
    found = defaultdict[int, list[Record]](list)
    for one in case.sent():
        found[one.partition].append((one.key, one.value))
    assert found == by_partition(lake(case), partitions)


def transaction(chance: random.Random, rows: set[int]) -> str:
    """Statements of one transaction, which change the rows that there are."""
    statements = []
    for _ in range(chance.choice([1, 2, 40])):
        key, kind = chance.choice([*rows, chance.randrange(1000)]), chance.random()
        if key not in rows:
            statements.append(f"INSERT INTO dbo.t VALUES ({key}, N'{'new ' * chance.choice([1, 500])}')")
            rows.add(key)
        elif kind < 0.3:
            statements.append(f"DELETE FROM dbo.t WHERE id = {key}")
            rows.remove(key)
        elif kind < 0.5 and key + 1000 not in rows:
            statements.append(f"UPDATE dbo.t SET id = {key + 1000} WHERE id = {key}")
            rows ^= {key, key + 1000}
        else:
            statements.append(f"UPDATE dbo.t SET note = N'{chance.random()}' WHERE id = {key}")
    return f"BEGIN TRANSACTION; {'; '.join(statements)}; COMMIT"


def pull(plug: str, case: Publishing, chance: random.Random) -> None:
    """Publish, and have the publisher die at a step, or the broker meanwhile."""
    if plug != _BROKER:
        done = case.command(crash=plug)
        assert done.returncode in ((-signal.SIGKILL, 0) if plug else (0,)), done.stdout + done.stderr
        return
    publisher = case.start()
    time.sleep(chance.uniform(0.5, 3))
    case.broker.kill()
    case.broker.start()
    out, err = publisher.communicate(timeout=300)
    assert publisher.returncode == 0, out + err


def lake(case: Publishing) -> Sequence[Record]:
    """Keys and values of the table's events in their order, as the topic should have them."""
    handle = TopicTables.of(case.config).open(case.topic)
    assert handle is not None
    rows = handle.to_pyarrow_table().sort_by([("window_id", "ascending"), ("position", "ascending")])
    rows = rows.cast(pa.schema(handle.schema().to_arrow()))
    sides = []
    for name in ("key", "value"):
        texts = event_text(rows.schema.field(name), rows[name].combine_chunks(), schema=True, defaults=True)
        sides.append([None if text is None else text.encode() for text in texts.to_pylist()])
    return list(zip(*sides, strict=True))


def by_partition(records: Sequence[Record], partitions: int) -> dict[int, list[Record]]:
    """Where Java's producer would send them."""
    found = defaultdict[int, list[Record]](list)
    for key, value in records:
        assert key is not None
        found[(murmur2(key) & 0x7FFFFFFF) % partitions].append((key, value))
    return found
