"""An object store that is busy, cuts connections, loses answers, or is away: a capture waits, and takes its own commits for its own."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.config.settings import CaptureConfig, LakeSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.steps import listening
from cdc_assets.errors import FencedError, LakeAwayError
from cdc_assets.lake.location import Location
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.table_state import TableState
from cdc_assets_tests.faulty_store import IMPATIENT, Fault, FaultyStore, faulty
from cdc_assets_tests.object_store import BUCKET, open_store, options
from cdc_assets_tests.unit.lake.writing import schema_of, write
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer

pytestmark = pytest.mark.contract

NOW = datetime(2026, 10, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyStore]:
    with open_store() as address, faulty(address, tmp_path_factory.mktemp("faults")) as found:
        yield found


@pytest.fixture
def store(opened: FaultyStore) -> Iterator[FaultyStore]:
    yield opened
    opened.heal()


def settings(store: FaultyStore, path: Path) -> LakeSettings:
    """A lake of its own for each test, whose client gives up soon."""
    return LakeSettings(f"s3://{BUCKET}/{path.name}", tuple((options(store.address) | IMPATIENT).items()))


def tables_of(store: FaultyStore, path: Path) -> TopicTables:
    return TopicTables(Location.of(settings(store, path)), "shop")


def state(number: int) -> TableState:
    return TableState(TableId("SalesDb", "dbo", f"t{number}"), number, None)


@pytest.mark.parametrize("fault", ["lost answer", "busy", "cut"])
def test_row_of_the_manifest_whose_answer_is_lost(store: FaultyStore, tmp_path: Path, fault: Fault) -> None:
    """One request fails, and the store's client repeats it: if it had been carried out, the repetition is refused."""
    manifest = Manifest(tables_of(store, tmp_path), "shop")
    manifest.claim(NOW)
    for number in range(3):
        store.spoil(fault, "PUT", "_delta_log", times=1)
        manifest.mark(NOW, "SalesDb", [state(number)])
    store.heal()
    assert len(manifest.state.tables) == 3
    assert Manifest(tables_of(store, tmp_path), "shop").read() == manifest.state


@pytest.mark.parametrize("written", [True, False])
def test_row_of_which_it_is_not_known_whether_it_was_written(store: FaultyStore, tmp_path: Path, written: bool) -> None:
    """The store does not answer any more."""
    manifest = Manifest(tables_of(store, tmp_path), "shop")
    manifest.claim(NOW)
    store.spoil("lost answer" if written else "cut", "PUT", "_delta_log", times=2, then="busy")
    with pytest.raises(LakeAwayError, match="503"):
        manifest.mark(NOW, "SalesDb", [state(1)])
    with pytest.raises(LakeAwayError):
        manifest.end_doubt(NOW)
    store.heal()
    manifest.end_doubt(NOW)
    assert (state(1).table in manifest.state.tables) is written
    manifest.mark(NOW, "SalesDb", [state(2)])
    assert Manifest(tables_of(store, tmp_path), "shop").read().tables == manifest.state.tables
    successor = Manifest(tables_of(store, tmp_path), "shop")
    successor.claim(NOW)
    with pytest.raises(FencedError):
        manifest.mark(NOW, "SalesDb", [state(3)])


@pytest.mark.long
def test_commit_of_a_topic_whose_answer_is_lost_leaves_its_mark(store: FaultyStore, tmp_path: Path) -> None:
    tables, schema = tables_of(store, tmp_path), schema_of(id=pa.int32())
    tables.ensure("topic", schema)
    files = write(tables, schema, 3, {"id": 1}, {"id": 2})
    store.spoil("lost answer", "PUT", "_delta_log", times=1)
    tables.commit("topic", None, files, 3, {})
    assert tables.fresh_marks() == {"topic": Mark(3, 1, 2)}

    files = write(tables, schema, 4, {"id": 1})
    store.spoil("lost answer", "PUT", "_delta_log")
    with pytest.raises(LakeAwayError):
        tables.commit("topic", None, files, 4, {})
    store.heal()
    assert tables.committed("topic", 4)
    assert tables.fresh_marks() == {"topic": Mark(4, 2, 3)}


@pytest.fixture(scope="module")
def orders(opened: FaultyStore) -> tuple[SimulatedServer, CaptureConfig, TableId]:
    """A captured table with a first snapshot."""
    server = SimulatedServer()
    table = server.create("orders", rows=2)
    server.idle_tick()
    lake = settings(opened, Path("orders"))
    config = make_config(lake.path, storage_options=lake.storage_options)
    make_capture(server, config).snapshot()
    return server, config, table


@pytest.mark.long
@pytest.mark.parametrize(
    ("key", "step", "fault"),
    [
        (10, "window-planned", "lost answer"),
        (11, "files-written", "busy"),
        (12, "table-committed", "cut"),
        (13, "window-complete", "refused"),
    ],
)
def test_capture_waits_for_a_store_that_is_away(
    store: FaultyStore, orders: tuple[SimulatedServer, CaptureConfig, TableId], key: int, step: str, fault: str
) -> None:
    server, config, table = orders
    server.commit((table, "insert", key, "a"))
    spoiled, back = False, threading.Timer(0.3, store.open)

    def spoil(name: str) -> None:
        nonlocal spoiled
        if name != step or spoiled:
            return
        spoiled = True
        if fault == "refused":
            store.close()
            back.start()
        else:
            store.spoil(fault, times=9)  # type: ignore[arg-type]

    with listening(spoil):
        assert make_capture(server, config).stream().troubled == ()
    assert spoiled
    if back.ident:
        back.join()
    server.commit((table, "insert", key + 100, "b"))
    make_capture(server, config).stream()
    keys = [row["key"]["id"] for row in rows_of_topic(config, f"shop.{table}") if row["value"]["op"] == "c"]  # type: ignore[index]
    assert sorted(keys) == sorted({*keys, key, key + 100})
