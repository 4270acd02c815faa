"""A tombstone has the headers of its delete, wherever batches, slices and transactions would end between them."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from cdc_assets.config.kafka import kafka_settings
from cdc_assets.publish import render, rows
from cdc_assets.publish.tombstones import event_of, undivided
from cdc_assets_tests.unit.publish.memory import TOPIC, MemoryBroker
from cdc_assets_tests.unit.publish.transforms.trials import UNWRAP
from cdc_assets_tests.unit.publish.world import World, publisher
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

OPTIONS = {
    "bootstrap.servers": "nowhere:9092",
    "transforms": "t",
    "transforms.t.type": UNWRAP,
    "transforms.t.delete.tombstone.handling.mode": "rewrite-with-tombstone",
    "transforms.t.add.headers": "op,db,source.change_lsn",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with StandIn(databases=(DATABASE,)) as server:
        made = World(server, tmp_path_factory.mktemp("publish") / "lake")
        made.config = replace(made.config, kafka=kafka_settings({}, OPTIONS, ""))
        made.execute("INSERT INTO dbo.t SELECT value, N'a' FROM generate_series(1, 9)")
        made.capture("snapshot")
        for statement in ("DELETE FROM dbo.t WHERE id < 4", "UPDATE dbo.t SET id = 20 WHERE id = 5"):
            made.execute(statement)
            made.execute("UPDATE dbo.t SET note = N'b' WHERE id > 4")
        made.execute("DELETE FROM dbo.t")
        made.capture()
        yield made


@pytest.mark.long
@pytest.mark.parametrize(
    ("most", "at_once", "batch"),
    [
        (1, 1, 1),
        (1, 1000, 1000),
        (2, 3, 2),
        (3, 2, 1),
        (4, 1, 3),
        (7, 1000, 2),
        (1000, 1, 2),
        (1000, 1000, 1),
        (1000, 3, 1000),
    ],
)
def test_tombstones_have_their_deletes_headers(
    world: World, monkeypatch: pytest.MonkeyPatch, most: int, at_once: int, batch: int
) -> None:
    """Each transaction by a publisher that begins anew."""
    read = rows.TopicRows.read

    def in_batches(*given: object, **options: bool) -> Iterator[pa.RecordBatch]:
        for whole in read(*given, **options):  # type: ignore[arg-type]
            yield from (whole.slice(at, batch) for at in range(0, len(whole), batch))

    monkeypatch.setattr(rows.TopicRows, "read", in_batches)
    monkeypatch.setattr(render, "_ROWS", at_once)
    monkeypatch.setattr(render, "_ROWS_WITH_SCHEMA", at_once)
    broker = Ending()
    while True:
        own = publisher(world.config, broker, most)
        own.open()
        try:
            if not own.turn():
                break
        except EndedError:
            continue
    sent = broker.topics[TOPIC]
    tombstones = [number for number, record in enumerate(sent) if record.value is None]
    assert len(tombstones) == 10
    for number in tombstones:
        delete, tombstone = sent[number - 1], sent[number]
        assert tombstone.position == delete.position + "t"
        assert ("__op", b"d") in delete.headers
        assert len(dict(delete.headers).keys() - dict(tombstone.headers).keys()) == 0
        added = [header for header in delete.headers if header[0] in ("__op", "__db", "__source_change_lsn")]
        assert len(added) == 3
        assert [header for header in tombstone.headers if header[0].startswith("__") and header in added][:3] == added
        assert tombstone.headers[-1] == ("__op", b"d")


class EndedError(Exception):
    """The publisher was killed."""


class Ending(MemoryBroker):
    """Ends whoever has committed events."""

    def commit(self, marker: str) -> dict[str, str]:  # type: ignore[override]
        had = bool(self._open)
        super().commit(marker)
        if had:
            raise EndedError
        return {}


def test_batches_are_cut_elsewhere_and_hold_the_same() -> None:
    chance = random.Random("undivided")  # noqa: S311 - cuts that can be made again
    positions = [
        text for number in range(40) for text in ([f"{number:02}", f"{number:02}t"] if number % 3 else [f"{number:02}"])
    ]
    whole = pa.record_batch({"position": positions, "n": list(range(len(positions)))})
    for _ in range(200):
        edges = sorted(chance.sample(range(len(positions) + 1), chance.randint(0, 30)))
        given = [whole.slice(a, b - a) for a, b in zip([0, *edges], [*edges, len(positions)], strict=True)]
        found = list(undivided(iter(given)))
        assert pa.Table.from_batches(found).equals(pa.Table.from_batches([whole]))
        assert all(len(one) and not one["position"][0].as_py().endswith("t") for one in found)


def test_batches_of_other_structures_are_left_as_they_are() -> None:
    one, other = pa.record_batch({"position": ["1"]}), pa.record_batch({"position": ["1t"], "n": [1]})
    assert list(undivided(iter([one, other]))) == [one, other]
    assert event_of("1t") == event_of("1")
