"""`dagster dev` as users start it, over a shop of its own with a ledger of several key ranges."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cdc_assets.defs.partitions import range_partitions
from cdc_assets.standin import sample
from cdc_assets_tests.beside import beside
from cdc_assets_tests.shop import ROOT, TABLES, Shop, open_shop

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

_LAUNCH = """mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on RunConfigValidationInvalid { errors { message } }
  ... on PythonError { message } } }"""

_TERMINATE = """mutation($runId: String!) { terminateRun(runId: $runId) {
  __typename ... on TerminateRunFailure { message } ... on PythonError { message } } }"""

_SENSOR = "query($selector: SensorSelector!) { sensorOrError(sensorSelector: $selector) { ... on Sensor { id } } }"
_STOP = "mutation($id: String!) { stopSensor(id: $id) { __typename } }"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this folder starts the real daemon."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.daemon)


@dataclass
class Daemon:
    """A running `dagster dev`.

    Args:
        shop: what it captures.
        port: of its pages.
        fuse: write a step's name here and the next run that reaches it is killed.
        instance: its run storage, read from outside.
        process: `dagster dev` itself, which leads a process group.
    """

    shop: Shop
    port: int
    fuse: Path
    instance: dg.DagsterInstance
    process: subprocess.Popen[bytes]

    def cut_power(self) -> None:
        """Kill everything of it at once: daemon, code servers, runs."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def url(self) -> str:
        """Of its pages."""
        return f"http://127.0.0.1:{self.port}"

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = 240) -> None:
        """Look every half second; fails with the state of all runs."""
        deadline = time.monotonic() + seconds
        while not holds():
            runs = [(run.job_name, run.status.value, run.run_id[:8]) for run in self.instance.get_runs()]
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}; runs: {runs}"
            time.sleep(0.5)

    def await_rest(self) -> None:
        """Until no run works and the lake agrees with the server."""
        self.wait_until(lambda: self.idle() and self._settled(), "no run works and the lake agrees with the server")

    def idle(self) -> bool:
        """Whether no run is at work."""
        return all(run.is_finished for run in self.instance.get_runs())

    def _settled(self) -> bool:
        state = self.shop.view().state
        working = state.pending or state.snapshots or any(own.queue for own in state.signals.values())
        return not working and self.shop.differences() == {}

    @property
    def ranges(self) -> list[str]:
        """All partitions of a snapshot."""
        return list(range_partitions(RANGES).get_partition_keys())

    def reload(self) -> None:
        """Ask for the code location anew, as the button does, so that new tables are seen."""
        answer = self._ask(
            'mutation { reloadRepositoryLocation(repositoryLocationName: "cdc_assets") { __typename } }', {}
        )
        assert answer["reloadRepositoryLocation"]["__typename"] == "WorkspaceLocationEntry", answer

    def backfill(self, asset: dg.AssetKey, partitions: Sequence[str]) -> str:
        """Materialize partitions, as the dialog does; returns the id of the backfill."""
        params = {"assetSelection": [{"path": asset.path}], "partitionNames": list(partitions)}
        answer = self._ask(_BACKFILL, {"params": params})["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def backfill_status(self, backfill: str) -> str:
        """Where a backfill stands, in Dagster's word."""
        found = self.instance.get_backfill(backfill)
        assert found is not None
        return found.status.value

    def launch(self, job: str, config: Mapping[str, object], tags: Mapping[str, str] | None = None) -> str:
        """Launch a job with a configuration, as the launchpad does; returns the id of the run."""
        selector = {
            "repositoryLocationName": "cdc_assets",
            "repositoryName": "__repository__",
            "jobName": job,
        }
        own = {"tags": [{"key": name, "value": value} for name, value in (tags or {}).items()]}
        params = {"selector": selector, "runConfigData": config, "executionMetadata": own}
        answer = self._ask(_LAUNCH, {"params": params})["launchRun"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])

    def terminate(self, run_id: str) -> None:
        """End a run, as the button does."""
        answer = self._ask(_TERMINATE, {"runId": run_id})["terminateRun"]
        assert answer["__typename"] == "TerminateRunSuccess", answer

    def stop_sensor(self) -> None:
        """As the switch in the pages does."""
        selector = {
            "repositoryLocationName": "cdc_assets",
            "repositoryName": "__repository__",
            "sensorName": "shop_lsn",
        }
        sensor = self._ask(_SENSOR, {"selector": selector})["sensorOrError"]["id"]
        assert self._ask(_STOP, {"id": sensor})["stopSensor"]["__typename"] == "StopSensorMutationResult"

    def _ask(self, query: str, variables: Mapping[str, object]) -> dict[str, Any]:
        """One question to the web server, as its pages ask; a first run may be through before the server is up."""
        self.wait_until(self._serves, "the web server is up")
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(  # noqa: S310 - our own page
            f"{self.url}/graphql", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own page
            data: dict[str, Any] = json.loads(answer.read())["data"]
        return data

    def _serves(self) -> bool:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", self.port), timeout=10):
            return True
        return False

    def killed_runs(self) -> int:
        """Runs whose process died under them: they failed, but no step of theirs did."""
        return len([reason for reason in self._failures() if reason is None])

    def failed_steps(self) -> int:
        """Runs that failed by themselves."""
        return len([reason for reason in self._failures() if reason is not None])

    def _failures(self) -> list[str | None]:
        failed = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE])
        return [run.tags.get("dagster/failure_reason") for run in self.instance.get_runs(failed)]


@contextmanager
def dagster_dev(shop: Shop, spark: str = "") -> Iterator[Daemon]:
    """Start it with the project's own `dagster.yaml` and `workspace.yaml`, state in the shop's folder.

    Args:
        spark: what its Spark file says.
    """
    (shop.folder / "spark.conf").write_text(spark)
    home, fuse = shop.folder / "home", shop.folder / "fuse"
    home.mkdir(exist_ok=True)
    settings = (ROOT / "dagster.yaml").read_text()
    (home / "dagster.yaml").write_text(settings.replace("var/dagster", str(shop.folder / "dagster")))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    environment = os.environ | shop.environment | {"DAGSTER_HOME": str(home), "CDC_CRASH_AT": f"@{fuse}"}
    environment["CDC_SPARK_CONF"] = str(shop.folder / "spark.conf")
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as users have it; else each process compiles all modules again
    command = [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)]
    with (
        dg.DagsterInstance.from_config(str(home)) as instance,  # before the others, who would make its tables too
        (shop.folder / "dagster.log").open("a") as log,
    ):
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,  # a background shell ignores it
        )
        try:
            yield Daemon(shop, port, fuse, instance, process)
        finally:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


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
