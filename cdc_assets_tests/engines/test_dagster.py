"""Captures of real servers through Dagster: assets, sensor, checks, snapshots that are asked for, commands."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest
from deltalake import DeltaTable

from cdc_assets.defs.build import build_definitions
from cdc_assets.defs.engines.resource import ConnectorResource
from cdc_assets.defs.spark import SparkResource
from cdc_assets_tests.engines.servers import MariaDb, Postgres, Server

pytestmark = [
    pytest.mark.engines,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning"),
]
KEYS = {"mysql": ["shop", "shop"], "postgres": ["shop", "postgres", "public"]}


@dataclass
class Deployment:
    """One capture in Dagster."""

    kind: str
    server: Server
    folder: Path
    instance: dg.DagsterInstance

    @property
    def file(self) -> Path:
        return self.folder / "captures" / "shop.json"

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def write(self, **more: str) -> None:
        self.file.parent.mkdir(exist_ok=True)
        own = {"topic.prefix": "shop", "lake.path": str(self.lake), "stream.idle.timeout.ms": "4000"}
        if self.kind == "mysql":
            own["database.server.id"] = "5407"
        properties = self.server.properties() | own | {name.replace("_", "."): text for name, text in more.items()}
        self.file.write_text(json.dumps(properties))

    def definitions(self) -> dg.Definitions:
        return build_definitions(self.file, spark=SparkResource(master="local[1]"), state_dir=self.folder / "state")

    def key(self, table: str, role: str) -> dg.AssetKey:
        return dg.AssetKey([*KEYS[self.kind], f"{table}.{role}"])

    def run(self, job: str, assets: list[dg.AssetKey] | None = None, **options: Any) -> dg.ExecuteInProcessResult:
        definitions = self.definitions()
        found = definitions.resolve_job_def(job)
        return found.execute_in_process(instance=self.instance, asset_selection=assets, raise_on_error=False, **options)

    def tick(self) -> Any:
        repository = self.definitions().get_repository_def()
        (sensor,) = repository.sensor_defs
        resources = {"cdc_shop": ConnectorResource(config_file=str(self.file))}
        context = dg.build_sensor_context(instance=self.instance, resources=resources, repository_def=repository)
        with context:
            data = sensor.evaluate_tick(context)
        return data.run_requests[0] if data.run_requests else data

    def follow(self) -> None:
        """Runs as the sensor asks for them, until it asks for none."""
        for _ in range(4):
            request = self.tick()
            if not isinstance(request, dg.RunRequest):
                assert "Nothing new" in request.skip_message
                return
            run = self.run(request.job_name, request.asset_selection, tags=dict(request.tags))
            assert run.success
        raise AssertionError(f"there is always something new: {request}")

    def checks(self) -> dict[str, dg.AssetCheckEvaluation]:
        result = self.run("shop_headroom")
        return {found.check_name: found for found in result.get_asset_check_evaluations()}

    def operations(self, table: str) -> list[str]:
        parts = ["shop", *KEYS[self.kind][-1:], table]
        rows = DeltaTable(str(self.lake / ".".join(parts))).to_pyarrow_table().sort_by("position").to_pylist()
        return [row["value"]["op"] for row in rows if row["value"]]


@contextmanager
def deployed(kind: str, folder: Path) -> Iterator[Deployment]:
    folder.mkdir(exist_ok=True)
    server = MariaDb(folder / "server.log") if kind == "mysql" else Postgres(folder / "server.log")
    with server, dg.DagsterInstance.ephemeral() as instance:
        found = Deployment(kind, server, folder, instance)
        found.write()
        yield found


def materialized(result: dg.ExecuteInProcessResult) -> dict[dg.AssetKey, dict[str, Any]]:
    return {
        event.asset_key: {
            name: entry.value for name, entry in event.step_materialization_data.materialization.metadata.items()
        }
        for event in result.get_asset_materialization_events()
        if event.asset_key
    }


@pytest.mark.parametrize("kind", ["mysql", "postgres"])
def test_a_capture_in_dagster(kind: str, tmp_path: Path) -> None:
    with deployed(kind, tmp_path) as shop:
        shop.server.execute("create table items (id int primary key, name varchar(60))")
        shop.server.execute("insert into items values (1, 'one'), (2, 'two')")
        keys = shop.definitions().resolve_asset_graph().get_all_asset_keys()
        assert {shop.key("items", role) for role in ("source", "snapshot", "changes")} <= keys
        before = shop.checks()
        assert not any(found.passed for found in before.values() if found.check_name == "complete_to_log_end")

        shop.follow()
        assert shop.operations("items") == ["r", "r"]
        assert "Nothing new" in shop.tick().skip_message
        after = shop.checks()
        assert {name: found.passed for name, found in after.items()} == {
            "complete_to_log_end": True,
            "health": True,
            "retention_headroom": True,
        }, after

        shop.server.execute("insert into items values (3, 'three')")
        shop.server.execute("update items set name = 'zwei' where id = 2")
        assert not shop.checks()["complete_to_log_end"].passed
        shop.follow()
        assert shop.operations("items") == ["r", "r", "c", "u"]
        assert shop.checks()["complete_to_log_end"].passed

        again = shop.run("shop_snapshot", [shop.key("items", "snapshot")])
        assert again.success
        assert materialized(again)[shop.key("items", "snapshot")]["rows_reads"] == 3
        assert shop.operations("items") == ["r", "r", "c", "u", "r", "r", "r"]


def test_a_transaction_that_was_begun_before_others_and_is_committed_after_them_is_noticed(tmp_path: Path) -> None:
    with deployed("postgres", tmp_path) as shop:
        shop.server.execute("create table items (id int primary key, name varchar(60))")
        shop.follow()
        with psycopg.connect(host="127.0.0.1", port=shop.server.port, user="dbz", dbname="postgres") as late:
            late.execute("insert into items values (1, 'begun first')")
            shop.server.execute("insert into items values (2, 'committed first')")
            shop.follow()
            assert shop.operations("items") == ["c"]
        assert not shop.checks()["complete_to_log_end"].passed
        shop.follow()
        assert shop.operations("items") == ["c", "c"]
        assert shop.checks()["complete_to_log_end"].passed


SIGNALS = "create table signals (id varchar(64) primary key, type varchar(32), data varchar(2048))"


@pytest.mark.parametrize("kind", ["mysql", "postgres"])
def test_signals_from_the_launchpad(kind: str, tmp_path: Path) -> None:
    """An incremental and a blocking snapshot by the signal table, taken up by the run that the sensor starts."""
    with deployed(kind, tmp_path) as shop:
        schema = KEYS[kind][-1]
        shop.server.execute(SIGNALS)
        shop.server.execute("create table items (id int primary key, name varchar(60))")
        shop.server.execute("insert into items values (1, 'one'), (2, 'two'), (3, 'three')")
        shop.write(signal_data_collection=f"{schema}.signals", incremental_snapshot_chunk_size="2")
        shop.follow()
        read = ["r", "r", "r"]
        assert shop.operations("items") == read
        for times, snapshot in enumerate(("incremental", "blocking"), 2):
            config = {"ops": {"shop_ask": {"config": {"tables": [f"{schema}.items"], "snapshot": snapshot}}}}
            assert shop.run("shop_signal", run_config=config).success
            shop.follow()
            assert shop.operations("items") == times * read, snapshot
        asked = {"ops": {"shop_read_tables": {"config": {"type": "incremental"}}}}
        assert shop.run("shop_snapshot", [shop.key("items", "snapshot")], run_config=asked).success
        assert shop.operations("items") == 4 * read
        shop.follow()
        assert shop.checks()["complete_to_log_end"].passed


def test_a_server_that_is_away_stops_its_own_capture_alone(tmp_path: Path) -> None:
    with ExitStack() as stack:
        away, other = (stack.enter_context(deployed(kind, tmp_path / kind)) for kind in ("mysql", "postgres"))
        for shop in (away, other):
            shop.server.execute("create table items (id int primary key, name varchar(60))")
            shop.server.execute("insert into items values (1, 'one')")
            shop.follow()
        away.server.execute("insert into items values (2, 'two')")
        request = away.tick()
        away.server.stop()
        begun = time.monotonic()
        assert not any(check.passed for check in away.checks().values())
        assert "cannot be reached" in away.tick().skip_message
        assert time.monotonic() - begun < 60
        assert not away.run(request.job_name, request.asset_selection).success  # the sensor asked just before
        other.server.execute("insert into items values (2, 'two')")
        other.follow()
        assert other.operations("items") == ["r", "c"]
        assert all(check.passed for check in other.checks().values())
        away.server.start()
        assert away.run("shop_changes").success
        assert away.operations("items") == ["r", "c"]
        assert all(check.passed for check in away.checks().values())


@pytest.mark.parametrize("kind", ["mysql", "postgres"])
def test_commands_know_such_captures(kind: str, tmp_path: Path) -> None:
    with deployed(kind, tmp_path) as shop:
        shop.server.execute("create table items (id int primary key, name varchar(60))")
        shop.server.execute("insert into items values (1, 'one')")
        assert "captured tables" in command(shop, "doctor")
        assert "Nothing captured yet" in command(shop, "status", code=2)
        command(shop, "capture", "--idle", "4")
        status = command(shop, "status")
        assert re.search(r"\.items +streaming ", status)
        assert "lag by cause: poll" in status
        report = json.loads(command(shop, "status", "--json"))
        assert (report["health"] == "in trouble", report["troubles"]) == (False, [])
        assert report["databases"][0]["committed"] or kind == "mysql"
        assert '"name":"one"' in command(shop, "tail", "items")
        assert "items" in command(shop, "summary")
        shop.write(database_password="${env:NOT_THERE}")
        assert "cannot be queried" in command(shop, "status", code=2)
        assert '"name":"one"' in command(shop, "tail", "items")


def command(shop: Deployment, *arguments: str, code: int = 0) -> str:
    call = [sys.executable, "-m", "cdc_assets.cli.main", *arguments, "--config", str(shop.file)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout
