"""`dagster dev` as users start it, over a shop of its own with a ledger of several key ranges."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from cdc_assets.defs.partitions import range_partitions
from cdc_assets.defs.process import process_of
from cdc_assets_tests.beside import beside
from cdc_assets_tests.e2e.dev import MODULE, Dev, dev
from cdc_assets_tests.shop import TABLES, Shop, key, open_shop
from mssql_standin import sample

HERE = Path(__file__).parent
UNWATCHED = "unwatched"
"""A table with change data capture that the filters leave out."""
RANGES = 4
LEDGER_ROWS = 4000
"""The least that is cut into four ranges."""
_LEDGER = f"""
CREATE TABLE dbo.ledger (id int NOT NULL PRIMARY KEY, amount int NOT NULL);
WITH digit AS (SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
    UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)
INSERT INTO dbo.ledger (id, amount)
SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d, a.d FROM digit a, digit b, digit c, digit e WHERE e.d < {RANGES};
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'ledger', @role_name = NULL;
CREATE TABLE dbo.{UNWATCHED} (id int NOT NULL PRIMARY KEY);
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{UNWATCHED}', @role_name = NULL;
"""
_BACKFILL = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } } }"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this folder starts the real daemon."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.daemon)


@dataclass
class Daemon(Dev):
    """A running `dagster dev` over a shop.

    Args:
        shop: what it captures.
    """

    shop: Shop

    def await_rest(self) -> None:
        """Until no run works and the lake agrees with the server."""
        self.wait_until(lambda: self.idle() and self._settled(), "no run works and the lake agrees with the server")

    def _settled(self) -> bool:
        state = self.shop.view().state
        working = state.pending or state.snapshots or any(own.queue for own in state.signals.values())
        return not working and self.shop.differences() == {}

    @property
    def ranges(self) -> list[str]:
        """All partitions of a snapshot."""
        return list(range_partitions(RANGES).get_partition_keys())

    def backfill(self, assets: Sequence[dg.AssetKey], partitions: Sequence[str] | None) -> str:
        """Materialize partitions, all if None, as the dialog does; returns the id of the backfill."""
        chosen = {"allPartitions": True} if partitions is None else {"partitionNames": list(partitions)}
        params = {"assetSelection": [{"path": asset.path} for asset in assets]} | chosen
        answer = self._ask(_BACKFILL, {"params": params})["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def read_again(self, table: str) -> None:
        """Materialize the snapshot of a table of one partition, as a person does."""
        backfill = self.backfill([key(table, "snapshot")], range_partitions(1).get_partition_keys())
        self.wait_until(lambda: self.backfill_status(backfill) == "COMPLETED_SUCCESS", f"{table} is read again")

    @property
    def pids(self) -> list[int]:
        """Processes of runs that work now."""
        pids = [process_of(run) for run in self.instance.get_runs() if run.status is dg.DagsterRunStatus.STARTED]
        return [int(pid.split("/")[2]) for pid in pids if pid]

    def materialize_all(self) -> str:
        """Materialize all assets and all partitions, as the button does; returns the id of the backfill."""
        graph = self.shop.definitions().resolve_asset_graph()
        return self.backfill(sorted(graph.materializable_asset_keys), None)

    def backfill_status(self, backfill: str) -> str:
        """Where a backfill stands, in Dagster's word."""
        found = self.instance.get_backfill(backfill)
        assert found is not None
        return found.status.value


@contextmanager
def dagster_dev(shop: Shop, spark: str = "", without: str = "", module: str = MODULE) -> Iterator[Daemon]:
    """Start it over a shop, state in the shop's folder.

    Args:
        spark: what its Spark file says.
        without: a part of `dagster.yaml` that is left out.
        module: code location, in place of the project's.
    """
    conf = shop.folder / "spark.conf"
    conf.write_text(spark)
    with dev(shop.folder, shop.environment | {"CDC_SPARK_CONF": str(conf)}, without, module) as found:
        yield Daemon(**vars(found), shop=shop)


@contextmanager
def busy(daemon: Daemon, statement: str) -> Iterator[None]:
    """Two transactions a second, so that a run that follows the log does not end by itself."""

    def work(over: threading.Event) -> None:
        with daemon.shop.server.connect(sample.DATABASE) as connection:
            while not over.wait(0.5):
                connection.execute(statement)

    with beside(work):
        yield


@contextmanager
def dagster_with_ledger(folder: Path) -> Iterator[Daemon]:
    """`dagster dev` over a new shop with a ledger; it has taken the initial snapshot."""
    with open_shop(folder) as shop:
        shop.execute(_LEDGER)
        shop.write(
            {
                "stream.idle.timeout.ms": "1000",
                "table.exclude.list": f"dbo[.]{UNWATCHED}",
                "snapshot.partitions": str(RANGES),
                "signal.data.collection": f"{sample.DATABASE}.dbo.{sample.SIGNAL_TABLE}",
                "incremental.snapshot.chunk.size": "1",  # a round is 64 of them
                "provide.transaction.metadata": "true",
                "max.iteration.transactions": "1",
            }
        )
        with dagster_dev(shop) as found:
            found.wait_until(lambda: _snapshotted(shop), "the sensor takes the initial snapshot")
            yield found


@pytest.fixture(scope="package")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One `dagster dev` for all tests of the package that do not start their own."""
    with dagster_with_ledger(tmp_path_factory.mktemp("daemon")) as found:
        yield found


def _snapshotted(shop: Shop) -> bool:
    state = shop.view().state
    return {*TABLES, "ledger"} <= {table.table for table in state.tables} and not state.snapshots
