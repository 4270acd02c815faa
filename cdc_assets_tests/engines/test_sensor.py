"""The sensor of a real database's capture in a real daemon: it waits for changes, for the database, and for the right password."""

import json
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.scheduler.instigation import InstigatorTick
from deltalake import DeltaTable

from cdc_assets_tests.e2e.dev import Dev, dev
from cdc_assets_tests.engines.servers import MariaDb, Postgres, Server

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1200)]
OF_CHANGES = dg.RunsFilter(job_name="shop_changes")
PASSWORD = "entirely-mistyped"


@dataclass
class Watched:
    """A capture that the daemon's sensor follows."""

    server: Server
    folder: Path
    daemon: Dev

    def keys(self) -> set[int]:
        """Of the rows in the lake."""
        topics = [topic for topic in self.folder.glob("lake/shop.*.items") if DeltaTable.is_deltatable(str(topic))]
        return {key["id"] for topic in topics for key in DeltaTable(str(topic)).to_pyarrow_table()["key"].to_pylist()}

    def insert(self, key: int) -> float:
        """Insert a row and wait until it is in the lake; seconds until a run was asked for."""
        before, began = self.runs(), time.time()
        self.server.execute(f"insert into items values ({key})")
        self.daemon.wait_until(lambda: key in self.keys(), f"row {key} is in the lake")
        self.daemon.wait_until(self.daemon.idle, "the run ends")
        [*_, first] = self.daemon.instance.get_run_records(OF_CHANGES, limit=self.runs() - before)
        return first.create_timestamp.timestamp() - began

    def runs(self) -> int:
        """So many there were; those of the half-hourly checks do not count."""
        return self.daemon.instance.get_runs_count(OF_CHANGES)

    def ticks(self, count: int) -> Sequence[InstigatorTick]:
        """The next ticks that begin from now on, when they have ended."""
        instance, began = self.daemon.instance, time.time()
        [sensor] = [found for found in instance.all_instigator_state() if found.name == "shop_log"]

        def ended() -> list[InstigatorTick]:
            found = instance.get_ticks(sensor.instigator_origin_id, sensor.selector_id, after=began)
            return [tick for tick in found if tick.status.value != "STARTED"]

        self.daemon.wait_until(lambda: len(ended()) >= count, f"{count} ticks")
        return ended()


def write(server: Server, folder: Path, **more: str) -> Path:
    """The capture's configuration."""
    file = folder / "captures" / "shop.json"
    file.parent.mkdir(exist_ok=True)
    own = {"topic.prefix": "shop", "lake.path": str(folder / "lake"), "database.server.id": "5407"}
    own |= {"engine.heap": "512m", "stream.idle.timeout.ms": "2000", "publication.autocreate.mode": "filtered"}
    own["table.include.list"] = ".*[.]items"
    file.write_text(
        json.dumps(server.properties() | own | {name.replace("_", "."): text for name, text in more.items()})
    )
    return file


@contextmanager
def watched(kind: type[Server], folder: Path) -> Iterator[Watched]:
    with kind(folder / "server.log") as server:
        server.execute("create table items (id int primary key)")
        server.execute("insert into items values (1)")
        server.execute("create table other (id int primary key)")
        if isinstance(server, Postgres):
            server.require_password("secret")
        file = write(server, folder)
        with dev(folder, {"CDC_CONFIG": str(file), "CDC_STATE_DIR": str(folder / "state")}) as daemon:
            found = Watched(server, folder, daemon)
            daemon.wait_until(lambda: found.keys() == {1}, "the snapshot", 400)
            daemon.wait_until(daemon.idle, "the run ends")
            yield found


@pytest.mark.parametrize("kind", [MariaDb, Postgres])
def test_the_sensor_waits_for_changes_and_for_the_database(kind: type[Server], tmp_path: Path) -> None:
    with watched(kind, tmp_path) as shop:
        assert shop.insert(2) < 15
        runs = shop.runs()
        shop.server.execute("insert into other values (1)")
        idle = shop.ticks(4)
        assert {str(tick.skip_reason).partition(":")[0].strip(".") for tick in idle} == {"Nothing new"}
        assert shop.runs() == runs, "an idle database starts no run, nor does a table that is not captured"
        assert shop.insert(3) < 15

        shop.server.stop(signal.SIGKILL)
        runs = shop.runs()
        away = shop.ticks(3)
        assert all("cannot be reached" in str(tick.skip_reason) for tick in away[:-1]), away
        assert shop.runs() == runs
        shop.server.start()
        shop.insert(4)

        write(shop.server, tmp_path, database_password=PASSWORD)
        refused = shop.ticks(3)[0]
        assert refused.status.value == "FAILURE"
        assert refused.error is not None
        assert refused.error.cause is not None
        assert "refuses the user 'dbz'" in refused.error.cause.message
        assert "check database.user and database.password" in refused.error.cause.message
        runs = shop.runs()
        shop.ticks(1)
        assert shop.runs() == runs
        write(shop.server, tmp_path)
        assert shop.insert(5) < 30
        assert shop.keys() == {1, 2, 3, 4, 5}
        assert PASSWORD not in (tmp_path / "dagster.log").read_text()
        assert not [
            file
            for file in (tmp_path / "dagster").rglob("*")
            if file.is_file() and PASSWORD.encode() in file.read_bytes()
        ]
