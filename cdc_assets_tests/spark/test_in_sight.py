"""With default settings every kind of job over rows runs on Spark, in processes that are not the driver's, and is told."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.spark import daemon
from cdc_assets.assembly.capture import open_capture
from cdc_assets.assembly.mirrors import open_mirrors
from cdc_assets.assembly.reconciler import open_reconciler
from cdc_assets.cli.report import print_report
from cdc_assets.core.jobs import Job
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.ran_on import JobAccount
from cdc_assets.defs.spark import SparkResource
from cdc_assets.mirror.work import StepReport
from cdc_assets.overview.checks.check import Inspection
from cdc_assets.overview.report_builder import report_of
from cdc_assets.reconcile.run import Wishes
from cdc_assets.shared.progress import Progress
from cdc_assets_tests.shop import Shop, open_shop
from mssql_standin import sample

pytestmark = pytest.mark.spark

KINDS = {"snapshot", "window", "incremental", "mirror", "reconcile", "rewriting", "retention"}


class Observed:
    """A runner that also asks each task in which process it is.

    Args:
        runner: runs the tasks.
    """

    def __init__(self, runner: TaskRunner) -> None:
        self._runner, self.parallelism, self.may_start_twice = runner, runner.parallelism, False
        self.processes: set[int] = set()
        self.modules: set[str] = set()
        self.accounts: dict[int, JobAccount] = {}

    def get_ready(self) -> None:
        self._runner.get_ready()

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any], job: Job) -> list[Any]:
        assert job.account is not None
        self.accounts[id(job.account)] = job.account
        self.modules.add(function.__module__)
        found = self._runner.run(lambda task: (os.getpid(), function(task)), tasks, job)
        self.processes.update(process for process, _ in found)
        return [result for _, result in found]

    def counted(self) -> dict[str, tuple[int, int, int]]:
        """Jobs and tasks on Spark, and tasks here, by kind."""
        total: dict[str, tuple[int, int, int]] = {}
        for account in self.accounts.values():
            for kind, ran in account.by_kind().items():
                jobs, tasks, here = total.get(kind, (0, 0, 0))
                total[kind] = jobs + ran.jobs, tasks + ran.tasks, here + ran.here
        return total


def imported_before_a_first_task() -> set[str]:
    """What the process imports from which Spark forks its workers."""
    code = f"import sys; from importlib import import_module; [*map(import_module, {daemon._OF_TASKS!r})]; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


class Tomorrow(SystemClock):
    """The clock of a run a day later, when topics may drop what they hold."""

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as found:
        found.write(
            {
                "signal.data.collection": f"{sample.DATABASE}.dbo.{sample.SIGNAL_TABLE}",
                "mirror.enabled": "true",
                "mirror.table.include.list": "dbo.customers",
                "lake.compact.after.files": "3",
                "lake.topic.cleanup.policy": "compact",
                "lake.topic.retention.hours": "1",
            }
        )
        yield found


@pytest.mark.long
def test_every_kind_of_job_runs_on_spark(
    shop: Shop, spark_resource: SparkResource, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = spark_resource.lazy().session()  # as in a run whose session is there
    runner, done, steps = Observed(spark_resource.early_runner()), list[Progress](), list[StepReport]()
    config = shop.config()

    def stream(change: str) -> None:
        shop.execute(change)
        with open_capture(config, runner, done.append) as capture:
            capture.snapshot()
            capture.stream()

    rename = "UPDATE dbo.customers SET name = N'{}' WHERE id < 5"
    for number in range(3):
        stream(rename.format(number))
    signal = '{"data-collections": ["SalesDb.dbo.products"], "type": "incremental"}'.replace("SalesDb", sample.DATABASE)
    stream(f"INSERT INTO dbo.{sample.SIGNAL_TABLE} VALUES (N'one', N'execute-snapshot', N'{signal}')")
    assert not open_mirrors(config, runner, steps.append).catch_up()
    monkeypatch.setattr("cdc_assets.assembly.capture.SystemClock", Tomorrow)
    stream(rename.format("the last"))
    with open_reconciler(config, runner) as (mirrors, reconciler):
        (table,) = mirrors.named(["dbo.customers"])
        assert reconciler.reconcile(table, Wishes()).differing == 0

    counted = runner.counted()
    assert counted.keys() == KINDS
    assert all(tasks >= jobs > 0 for jobs, tasks, _ in counted.values()), counted
    assert not any(here for _, _, here in counted.values()), counted
    assert os.getpid() not in runner.processes
    assert runner.modules <= imported_before_a_first_task()
    application = f"Spark {session.sparkContext.master} ({session.sparkContext.applicationId}): "
    assert {progress.kind for progress in done} == {"snapshot", "stream", "incremental"}
    for told in [str(progress.ran_on) for progress in done] + [str(report.ran_on) for report in steps]:
        assert told.startswith(application)
    capsys.readouterr()
    print_report(Inspection(report_of(shop.view(), datetime.now(UTC))))
    told = capsys.readouterr().out
    for kind in ("snapshot", "window", "incremental", "mirror", "reconcile"):
        assert f"{kind} jobs ran on {application}" in told
