"""`dagster dev` as users start it, in a process group of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from cdc_assets_tests.patience import wait_until
from cdc_assets_tests.shop import ROOT

MODULE = "resources.definitions"
"""The project's code location."""
_LAUNCH = """mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on RunConfigValidationInvalid { errors { message } }
  ... on PythonError { message } } }"""

_AGAIN = """mutation ($params: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_TERMINATE = """mutation($runId: String!) { terminateRun(runId: $runId) {
  __typename ... on TerminateRunFailure { message } ... on PythonError { message } } }"""

_SENSOR = "query($selector: SensorSelector!) { sensorOrError(sensorSelector: $selector) { ... on Sensor { id } } }"
_STOP = "mutation($id: String!) { stopSensor(id: $id) { __typename } }"


@dataclass
class Dev:
    """A running `dagster dev`.

    Args:
        port: of its pages.
        fuse: write a step's name here and the next run that reaches it is killed.
        instance: its run storage, read from outside.
        process: `dagster dev` itself, which leads a process group.
    """

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

        def told() -> str:
            runs = [(run.job_name, run.status.value, run.run_id[:8]) for run in self.instance.get_runs()]
            return f"not within {seconds} s: {what}; runs: {runs}"

        wait_until(holds, seconds, told)

    def idle(self) -> bool:
        """Whether no run is at work."""
        return all(run.is_finished for run in self.instance.get_runs())

    @property
    def statuses(self) -> Counter[tuple[str, str]]:
        """How runs have ended, by job."""
        return Counter((run.job_name, run.status.value) for run in self.instance.get_runs())

    def reload(self) -> None:
        """Ask for the code location anew, as the button does, so that new tables are seen."""
        answer = self._ask(
            'mutation { reloadRepositoryLocation(repositoryLocationName: "cdc_assets") { __typename } }', {}
        )
        assert answer["reloadRepositoryLocation"]["__typename"] == "WorkspaceLocationEntry", answer

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

    def execute_again(self, run_id: str) -> str:
        """Execute a run again, as the button does; returns the id of the new one."""
        params = {"parentRunId": run_id, "strategy": "ALL_STEPS"}
        answer = self._ask(_AGAIN, {"params": params})["launchRunReexecution"]
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
        """Not of the half-hourly checks, which come when it is time."""
        failed = self.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
        return [run.tags.get("dagster/failure_reason") for run in failed if "dagster/schedule_name" not in run.tags]


@contextmanager
def dev(folder: Path, environment: Mapping[str, str], without: str = "", module: str = MODULE) -> Iterator[Dev]:
    """Start it with the project's own `dagster.yaml` and `workspace.yaml`, state in a folder.

    Args:
        environment: names the captures and what they need.
        without: a part of `dagster.yaml` that is left out.
        module: code location, in place of the project's.
    """
    home, fuse = folder / "home", folder / "fuse"
    home.mkdir(exist_ok=True)
    settings = (ROOT / "dagster.yaml").read_text()
    assert without in settings
    settings = settings.replace(without, "") if without else settings
    (home / "dagster.yaml").write_text(settings.replace("var/dagster", str(folder / "dagster")))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    workspace = folder / "workspace.yaml"
    workspace.write_text((ROOT / "workspace.yaml").read_text().replace(MODULE, module))
    own = os.environ | environment | {"DAGSTER_HOME": str(home), "CDC_CRASH_AT": f"@{fuse}"}
    own.pop("PYTHONDONTWRITEBYTECODE", None)  # as users have it; else each process compiles all modules again
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(workspace), "-h", "127.0.0.1", "-p", str(port)]
    with (
        dg.DagsterInstance.from_config(str(home)) as instance,  # before the others, who would make its tables too
        (folder / "dagster.log").open("a") as log,
    ):
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=own,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,  # a background shell ignores it
        )
        try:
            yield Dev(port, fuse, instance, process)
        finally:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
