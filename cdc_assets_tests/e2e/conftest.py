"""`dagster dev` as users start it, over a shop of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from cdc_assets_tests.shop import ROOT, Shop, open_shop

HERE = Path(__file__).parent


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
    """

    shop: Shop
    port: int
    fuse: Path
    instance: dg.DagsterInstance

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

    def reload(self) -> None:
        """Ask for the code location anew, as the button does, so that new tables are seen."""
        query = 'mutation { reloadRepositoryLocation(repositoryLocationName: "cdc_assets") { __typename } }'
        request = urllib.request.Request(  # noqa: S310 - our own page
            f"{self.url}/graphql", json.dumps({"query": query}).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own page
            assert b"WorkspaceLocationEntry" in answer.read()

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
def dagster_dev(shop: Shop) -> Iterator[Daemon]:
    """Start it with the project's own `dagster.yaml` and `workspace.yaml`, state in the shop's folder."""
    home, fuse = shop.folder / "home", shop.folder / "fuse"
    home.mkdir()
    settings = (ROOT / "dagster.yaml").read_text()
    (home / "dagster.yaml").write_text(settings.replace("var/dagster", str(shop.folder / "dagster")))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    environment = os.environ | shop.environment | {"DAGSTER_HOME": str(home), "CDC_CRASH_AT": f"@{fuse}"}
    command = [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)]
    with (
        dg.DagsterInstance.from_config(str(home)) as instance,  # before the others, who would make its tables too
        (shop.folder / "dagster.log").open("w") as log,
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
            yield Daemon(shop, port, fuse, instance)
        finally:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="package")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One `dagster dev` for all tests of the package; it has taken the initial snapshot."""
    with open_shop(tmp_path_factory.mktemp("daemon")) as shop:
        shop.write(
            {
                "stream.idle.timeout.ms": "1000",
                "snapshot.partitions": "4",
                "provide.transaction.metadata": "true",
                "max.iteration.transactions": "1",
            }
        )
        with dagster_dev(shop) as found:
            found.wait_until(lambda: _snapshotted(shop), "the sensor takes the initial snapshot")
            yield found


def _snapshotted(shop: Shop) -> bool:
    state = shop.view().state()
    return len(state.tables) == 4 and not state.snapshots
