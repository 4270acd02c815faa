"""What the page, the command `status`, the checks and the metrics say of a capture at one moment, as people meet them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import dagster as dg

from cdc_assets_tests.e2e.conftest import Daemon
from cdc_assets_tests.shop import Shop
from cdc_assets_tests.ways.collector import Collector

PAGE = dg.AssetKey(["shop", "windows"])
PUSHED = "pushed metrics"
NEXT_RUN_S = 60.0
"""Seconds that the next run may take to begin where one has failed: until then nobody pushes metrics."""


@dataclass(frozen=True)
class Seen:
    """Whether all was well, and the words.

    Args:
        is_healthy: as this sight says.
        words: all that it says.
    """

    is_healthy: bool
    words: str


@dataclass
class Status:
    """`cdc-assets status`, whose exit code says the same.

    Args:
        shop: of whose capture.
    """

    shop: Shop

    def __post_init__(self) -> None:
        """A process keeps the environment in which it began."""
        self._environment = os.environ | self.shop.environment

    def look(self) -> Seen:
        """What it says now."""
        command = [sys.executable, "-m", "cdc_assets.cli.main", "status", "--json"]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=120, check=False)
        said = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        assert (said.get("health") in ("healthy", "working")) is (done.returncode == 0), done.stdout + done.stderr
        return Seen(said.get("health") == "healthy", done.stdout + done.stderr)


Looks = Mapping[str, Callable[[], Seen]]
"""What is looked at, by its name."""


@dataclass
class Sight:
    """Looks at the capture of a `dagster dev`.

    Args:
        collector: to which the capture's run pushes; None where no run lives that could.
    """

    daemon: Daemon
    collector: Collector | None = None

    def __post_init__(self) -> None:
        """A code server keeps its checks, also after a password was changed."""
        self._status = Status(self.daemon.shop)
        with self.daemon.shop.in_environment():
            self._keys = list(self.daemon.shop.definitions().resolve_asset_graph().asset_check_keys)

    def looks(self, *, is_command_asked: bool = True) -> Looks:
        """All of them.

        Args:
            is_command_asked: whether the command is asked, too.
        """
        looks: dict[str, Callable[[], Seen]] = {"page": self.page, "checks": self.checks}
        if is_command_asked:
            looks["status"] = self._status.look
        if (collector := self.collector) is not None:
            looks[PUSHED] = lambda: Seen(*collector.look())
        return looks

    def page(self) -> Seen:
        """Dagster's page of the capture: the newest report."""
        event = self.daemon.instance.get_latest_materialization_event(PAGE)
        found = event.asset_materialization.metadata if event and event.asset_materialization else {}
        words = {name: str(value.value) for name, value in found.items()}
        return Seen(words.get("health") == "healthy", "\n".join(words.values()))

    def checks(self) -> Seen:
        """The newest results of all checks of the capture."""
        records = self.daemon.instance.event_log_storage.get_latest_asset_check_execution_by_key(self._keys)
        failed = []
        for key, record in records.items():
            event = record.event.dagster_event if record.event else None
            if event is None or event.event_type is not dg.DagsterEventType.ASSET_CHECK_EVALUATION:
                continue  # planned by a run
            result = event.asset_check_evaluation_data
            if not result.passed:
                failed.append(f"{key.to_user_string()}: {result.description or result.metadata}")
        return Seen(not failed, "\n".join(failed))


def _await(look: Callable[[], Seen], healthy: bool, since: float, within_s: float) -> tuple[float, str, bool]:
    """Seconds until the look that says it was begun, what the last one said, and whether that is it."""
    while True:
        asked = time.monotonic() - since  # what it says is at least as new as that
        seen = look()
        if seen.is_healthy is healthy:
            return asked, seen.words, True
        if time.monotonic() - since > within_s:
            return asked, seen.words, False
        time.sleep(0.5)


def await_all(looks: Looks, *, healthy: bool, since: float, within_s: float) -> dict[str, tuple[float, str]]:
    """Seconds from `since`, a time of `time.monotonic`, until each look says so, with its words.

    Each looks in a thread of its own, so that none waits for the answer of another.

    Raises:
        AssertionError: one does not say it in time.
    """
    later = {PUSHED: NEXT_RUN_S if healthy else 0.0}
    with ThreadPoolExecutor(len(looks)) as pool:
        found = {
            name: pool.submit(_await, look, healthy, since, within_s + later.get(name, 0.0))
            for name, look in looks.items()
        }
        seen = {name: future.result() for name, future in found.items()}
    late = [name for name, (_, _, is_said) in seen.items() if not is_said]
    assert not late, f"not {'healthy' if healthy else 'unhealthy'} within {within_s} s: " + "\n".join(
        f"{name}: {seen[name][1]}" for name in late
    )
    return {name: (took, words) for name, (took, words, _) in seen.items()}
