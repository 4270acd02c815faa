"""The sample shop behind a stand-in, and a capture of it, as tests use them."""

import json
import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dagster as dg

from cdc_assets.config.load import load_config
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.defs.build import build_definitions
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.partitions import all_ranges, range_partitions
from cdc_assets.defs.spark import SparkResource
from cdc_assets.defs.sqlserver import SqlServerCdcResource
from cdc_assets.overview import CaptureOverview
from demo.summary import live_rows
from mssql_standin import sample
from mssql_standin.control import StandIn

TABLES = ("customers", "order_lines", "orders", "products")
ROOT = Path(__file__).parent.parent


def key(table: str, role: str) -> dg.AssetKey:
    """Asset key of a table of the shop."""
    return dg.AssetKey(["shop", sample.DATABASE, "dbo", f"{table}.{role}"])


@dataclass
class Shop:
    """A server with the sample database, a configuration file and an empty lake."""

    server: StandIn
    folder: Path
    properties: dict[str, str] = field(default_factory=dict)
    spark: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.write({})

    @property
    def file(self) -> Path:
        """The capture's configuration file."""
        return self.folder / "captures" / "shop.json"

    @property
    def environment(self) -> dict[str, str]:
        """What processes need to find the capture."""
        return {
            "CDC_CONFIG": str(self.file),
            "CDC_SHOP_PASSWORD": self.server.password,
            "CDC_STATE_DIR": str(self.folder / "state"),
        }

    def write(self, properties: Mapping[str, str]) -> None:
        """(Re)write the configuration file with some properties changed or added."""
        self.properties = json.loads((ROOT / "resources" / "captures" / "shop.json").read_text()) | {
            "database.port": str(self.server.port),
            "lake.path": str(self.folder / "lake"),
            "poll.interval.ms": "20",
            "stream.idle.timeout.ms": "50",
            **properties,
        }
        if "mirror.enabled" not in properties:
            self.properties.pop("mirror.enabled", None)
        if "signal.data.collection" not in properties:  # most tests are about the four tables alone
            del self.properties["signal.data.collection"]
            self.properties.setdefault("table.exclude.list", f"dbo\\.{sample.SIGNAL_TABLE}")
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.properties))

    def config(self) -> CaptureConfig:
        """The settings."""
        return load_config(self.file, os.environ | self.environment)

    def definitions(self) -> dg.Definitions:
        """As `resources.definitions` builds them."""
        with self.in_environment():
            return build_definitions(self.file, spark=SparkResource(master="local[2]", spark_config=self.spark))

    @contextmanager
    def in_environment(self) -> Iterator[None]:
        """This process with the environment that a capture's process has."""
        with patch.dict(os.environ, self.environment):
            yield

    def execute(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run a statement on the server; returns when its changes are captured."""
        rows = self.server.execute(statement, *parameters, database=sample.DATABASE)
        self.server.agent.drain()
        return rows

    def add_customers(self, count: int) -> None:
        """Insert customers, one transaction each."""
        for number in range(count):
            self.execute("INSERT INTO dbo.customers (name) VALUES (?)", f"customer {number} {secrets.token_hex(3)}")

    @contextmanager
    def statements(self) -> Iterator[Counter[str]]:
        """Our statements during a block by the name in their comment; the driver has some of its own."""
        found: Counter[str] = Counter()
        take = self.server.engine.faults

        def counted(session: Any, statement: str, *rest: Any) -> Any:
            if name := re.match(r"/[*] cdc-assets: (\w+)", statement):
                found[name.group(1)] += 1
            return take(session, statement, *rest)

        with patch.object(self.server.engine, "faults", counted):
            yield found

    # ---- running ---------------------------------------------------------------------------------------------

    def run(
        self, job: str, instance: dg.DagsterInstance, assets: list[dg.AssetKey] | None = None, **options: Any
    ) -> dg.ExecuteInProcessResult:
        """Run a job of the capture in this process."""
        with self.in_environment():
            return (
                self.definitions()
                .resolve_job_def(job)
                .execute_in_process(instance=instance, asset_selection=assets, raise_on_error=False, **options)
            )

    def snapshot(
        self, instance: dg.DagsterInstance, *, due_only: bool = True, **options: Any
    ) -> dg.ExecuteInProcessResult:
        """Snapshot all ranges, as the sensor does or as a person does."""
        options.setdefault("tags", dict(all_ranges(range_partitions(8))))
        run_config = {"ops": {"shop_read_tables": {"config": {"due_only": due_only}}}}
        return self.run("shop_snapshot", instance, run_config=run_config, **options)

    def changes(self, instance: dg.DagsterInstance, **options: Any) -> dg.ExecuteInProcessResult:
        """Read what was committed, as somebody asks for it."""
        return self.run("shop_changes", instance, **options)

    def follow(self, instance: dg.DagsterInstance, **options: Any) -> dg.ExecuteInProcessResult:
        """Follow the log until it is quiet, as the sensor does."""
        return self.run("shop_follow", instance, **options)

    # ---- looking ---------------------------------------------------------------------------------------------

    def view(self) -> CaptureOverview:
        """The lake as people see it."""
        return CaptureOverview(self.config())

    def events(self, table: str) -> list[dict[str, Any]]:
        """Events of a table in position order."""
        return self.rows(f"shop.{sample.DATABASE}.dbo.{table}")

    def rows(self, directory: str) -> list[dict[str, Any]]:
        """Rows of one of the lake's tables in position order."""
        handle = self.view().lake.open(directory)
        return [] if handle is None else list(handle.to_pyarrow_dataset().to_table().sort_by("position").to_pylist())

    def transactions(self) -> list[tuple[str, str]]:
        """Status and id of each transaction event, in order."""
        return [(row["value"]["status"], row["value"]["id"]) for row in self.rows("shop.transaction")]

    def differences(self) -> dict[str, tuple[int, int]]:
        """Tables whose events do not lead to the server's number of rows: (by events, on the server)."""
        view = self.view()
        found: dict[str, tuple[int, int]] = {}
        for topic in view.tables:
            live = live_rows(view.lake, view.directories(topic.topic))
            (count,) = self.execute(f"SELECT COUNT(*) FROM {topic.table.quoted}")[0]
            if live != count:
                found[topic.topic] = (live, count)
        return found

    def doubled(self) -> list[str]:
        """Positions that occur more than once in a topic."""
        found: list[str] = []
        for table in TABLES:
            positions = [event["position"] for event in self.events(table)]
            found += sorted({position for position in positions if positions.count(position) > 1})
        return found


@contextmanager
def open_shop(folder: Path, **counts: int) -> Iterator[Shop]:
    """A fresh server with the sample tables (few rows unless `counts` says) and their first changes captured."""
    with StandIn() as server:
        server.execute(f"CREATE DATABASE [{sample.DATABASE}]")
        with server.connect(sample.DATABASE) as connection:
            sample.create(connection.execute, **({"customers": 40, "products": 10, "orders": 80} | counts))
        server.agent.drain()
        yield Shop(server, folder)


def tick(shop: Shop, instance: dg.DagsterInstance) -> Any:
    """Evaluate the sensor once: its request or its reason."""
    return tick_with_cursor(shop, instance)[0]


def tick_with_cursor(
    shop: Shop, instance: dg.DagsterInstance, cursor: str | None = None, loaded: dg.Definitions | None = None
) -> tuple[Any, str]:
    """The same, of a code location that is loaded now or was before, from a cursor; with the cursor that it leaves."""
    definitions = loaded or shop.definitions()
    (sensor,) = definitions.get_repository_def().sensor_defs
    resources = {
        "cdc_shop": CaptureResource(server=SqlServerCdcResource(config_file=str(shop.file)), spark=SparkResource())
    }
    context = dg.build_sensor_context(
        instance=instance, resources=resources, repository_def=definitions.get_repository_def(), cursor=cursor
    )
    with shop.in_environment(), context:
        data = sensor.evaluate_tick(context)
    return (data.run_requests[0] if data.run_requests else data), str(data.cursor)
