"""Runs are told apart rightly: whose they are, and whether they live."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import dagster as dg
import pytest
from dagster import DagsterRun, DagsterRunStatus
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.utils import make_new_run_id

from cdc_assets.core.processes import own_process
from cdc_assets.defs import process, runs, schedule, sensors, service
from cdc_assets.defs.derived_runs import MIRRORS_TAG, KafkaRuns, mirroring
from cdc_assets.defs.failures import as_step
from cdc_assets.defs.mirrors import MIRRORS_LEFT_TAG
from cdc_assets.defs.names import Names
from cdc_assets.defs.process import process_of, process_of_run, process_tag
from cdc_assets.defs.run_troubles import troubles_of_runs
from cdc_assets.defs.runs import COMMITTED_TAG, FAILURE_REASON_TAG, MADE_WAY_TAG, PROGRESS_TAG, CaptureRuns
from cdc_assets.defs.runtime import Runtime
from cdc_assets.defs.schedule import failures_in_a_row, is_failing, pause_ends, pause_of
from cdc_assets.defs.service import start_id
from cdc_assets.lake.audit import Examined, Loss, Turns
from cdc_assets.publish.view import PublishedReport
from cdc_assets_tests.unit.streaming.captures import make_config

NAMES, KEY = Names("shop"), dg.AssetKey(["shop", "orders"])
RUNS = CaptureRuns(frozenset({NAMES.changes}), frozenset({KEY}), frozenset({NAMES.changes_op}))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture(scope="module")
def dead() -> str:
    """A process that has ended."""
    code = "from cdc_assets.core.processes import own_process; print(own_process())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def job(name: str, *steps: str) -> dg.JobDefinition:
    """A job of a user with these steps."""
    ops = [dg.op(name=step)(lambda: None) for step in steps]

    @dg.job(name=name)
    def made() -> None:
        for op in ops:
            op()

    return made


def run_of(
    instance: dg.DagsterInstance,
    made: dg.JobDefinition,
    status: DagsterRunStatus = DagsterRunStatus.STARTED,
    location: str = "",
    **tags: str,
) -> DagsterRun:
    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), "__repository__")
    origin = RemoteJobOrigin(repository, made.name) if location else None
    return instance.create_run_for_job(made, status=status, tags=tags, remote_job_origin=origin)


def test_a_run_of_a_users_job_that_selects_nothing_is_known_by_its_steps(instance: dg.DagsterInstance) -> None:
    theirs = run_of(instance, job("nightly", NAMES.changes_op, "report"))
    part = run_of(instance, job("hourly", f"{NAMES.changes_op}_2"))
    other = run_of(instance, job("other", "report"))
    assert theirs.asset_selection is None
    found = {run.run_id for run in RUNS.active(instance)}
    assert found == {theirs.run_id, part.run_id}
    assert other.run_id not in found


def test_a_capture_of_that_name_in_another_location_is_another_one(instance: dg.DagsterInstance) -> None:
    made = job(NAMES.changes, NAMES.changes_op)
    staging = run_of(instance, made, location="staging")
    ours, unknown = run_of(instance, made, location="prod"), run_of(instance, made)
    here = RUNS.of("__repository__@prod")
    assert {run.run_id for run in here.active(instance)} == {ours.run_id, unknown.run_id}
    assert len(RUNS.active(instance)) == 3
    for run in (staging, ours):
        instance.report_run_failed(run)
    assert [record.dagster_run.run_id for record in here.finished(instance, 10)] == [ours.run_id]


def test_a_run_again_has_not_the_process_of_the_run_before(instance: dg.DagsterInstance, dead: str) -> None:
    made = job(NAMES.changes, NAMES.changes_op)
    first = run_of(instance, made, **process_tag(make_new_run_id(), dead))
    assert process_of(first) is None
    assert [run.run_id for run in RUNS.active(instance)] == [first.run_id]
    instance.add_run_tags(first.run_id, process_tag(first.run_id, dead))
    assert not RUNS.active(instance)
    ended = instance.get_run_by_id(first.run_id)
    assert ended is not None
    assert ended.status is DagsterRunStatus.FAILURE


def test_a_run_again_has_not_committed_what_the_run_before_has(instance: dg.DagsterInstance) -> None:
    made = job(NAMES.changes, NAMES.changes_op)
    tags = {COMMITTED_TAG: "", FAILURE_REASON_TAG: "STEP_FAILURE"}
    run = instance.create_run_for_job(made, status=DagsterRunStatus.STARTED, tags=tags)
    instance.report_run_failed(run)
    assert failures_in_a_row(RUNS.finished(instance, 1)) == 1


def test_a_run_that_has_committed_windows_before_it_failed_begins_a_new_row(instance: dg.DagsterInstance) -> None:
    """The cause of the failure before was over, so nobody has to wait for twice as long."""
    made = job(NAMES.changes, NAMES.changes_op)
    for windows in ("", "12", ""):
        tags = {FAILURE_REASON_TAG: "STEP_FAILURE", PROGRESS_TAG: windows}
        run = instance.create_run_for_job(made, status=DagsterRunStatus.STARTED, tags=tags)
        instance.report_run_failed(run)
    assert failures_in_a_row(RUNS.finished(instance, 3)) == 2


def test_the_last_run_is_the_newest_that_has_ended_whatever_is_at_work(instance: dg.DagsterInstance) -> None:
    jobs = {name: job(name, f"{name}_op") for name in (NAMES.changes, NAMES.follow)}
    ours = CaptureRuns(frozenset(jobs), frozenset())
    run_of(instance, jobs[NAMES.changes], DagsterRunStatus.FAILURE, **{FAILURE_REASON_TAG: "STEP_FAILURE"})
    good = run_of(instance, jobs[NAMES.follow], DagsterRunStatus.SUCCESS)
    run_of(instance, jobs[NAMES.follow], DagsterRunStatus.STARTING)
    assert [record.dagster_run.run_id for record in ours.finished(instance, 1)] == [good.run_id]
    assert not list(troubles_of_runs(instance, ours, is_reported=False))


@pytest.mark.parametrize("status", [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED])
def test_a_failure_is_told_until_a_run_reports(instance: dg.DagsterInstance, status: DagsterRunStatus) -> None:
    made = job(NAMES.changes, NAMES.changes_op)
    failed = run_of(instance, made, DagsterRunStatus.FAILURE, **{FAILURE_REASON_TAG: "STEP_FAILURE"})
    run_of(instance, made, status)
    (told,) = troubles_of_runs(instance, RUNS, is_reported=False)
    assert told.what.startswith(f"{failed.run_id[:8]} failed")
    assert not list(troubles_of_runs(instance, RUNS, is_reported=True))


def test_runs_that_end_without_a_word_are_told_if_they_are_many(instance: dg.DagsterInstance) -> None:
    """Dagster starts each of them, none says anything, and the lake gets nothing."""
    made, told = job(NAMES.changes, NAMES.changes_op), list[str]()
    for number, reason in enumerate(("RUN_WORKER_FAILED", "START_TIMEOUT", "", "")):
        run = run_of(instance, made, DagsterRunStatus.FAILURE, **({FAILURE_REASON_TAG: reason} if reason else {}))
        told = [trouble.what for trouble in troubles_of_runs(instance, RUNS, is_reported=False)]
        assert bool(told) == (number >= 2) == is_failing(RUNS.finished(instance, 10))
    (text,) = told
    assert text.startswith(f"{run.run_id[:8]} and the 3 before it ended")
    assert "(RUN_WORKER_FAILED, START_TIMEOUT, its process is gone)" in text
    run_of(instance, made, DagsterRunStatus.FAILURE, **{PROGRESS_TAG: "4"})
    assert not list(troubles_of_runs(instance, RUNS, is_reported=False)), "it went on"


def test_runs_that_end_without_a_word_are_started_after_pauses_if_they_are_many(instance: dg.DagsterInstance) -> None:
    """Else whatever kills them would be met again every few seconds, for ever."""
    made, pauses = job(NAMES.changes, NAMES.changes_op), list[float]()
    for _ in range(5):
        ended = run_of(instance, made)
        instance.report_run_failed(ended)
        records, _ = pause_of(RUNS, instance)
        assert records[0].dagster_run.run_id == ended.run_id
        until, end = pause_ends(records), records[0].end_time
        assert end is not None
        pauses.append(round(until.timestamp() - end) if until else 0)
    assert pauses == [0, 0, 15, 30, 60]
    assert "the next starts after" in pause_of(RUNS, instance)[1]


def test_runs_that_make_way_for_another_code_location_again_and_again_are_told(instance: dg.DagsterInstance) -> None:
    """Each has read something; but each waits for the other, and reports the same assets."""
    made, told = job(NAMES.changes, NAMES.changes_op), list[str]()
    for number in range(4):
        run_of(instance, made, DagsterRunStatus.SUCCESS, **{COMMITTED_TAG: "1", MADE_WAY_TAG: "shop@other"})
        for is_reported in (False, True):
            told = [trouble.what for trouble in troubles_of_runs(instance, RUNS, is_reported=is_reported)]
            assert bool(told) == (number >= 2)
    assert "its runs (shop@other) capture into the same lake" in told[0]
    run_of(instance, made, DagsterRunStatus.SUCCESS, **{COMMITTED_TAG: "1"})
    assert not list(troubles_of_runs(instance, RUNS, is_reported=False)), "it went on to the end"


def test_a_run_that_was_started_from_the_page_of_an_asset_is_one_of_the_last_runs(
    instance: dg.DagsterInstance,
) -> None:
    """Its job is Dagster's own. Its failure is told, and signals that it has read and not carried out are looked for."""

    @dg.multi_asset(name=NAMES.changes_op, specs=[dg.AssetSpec(KEY)])
    def changes(context: dg.AssetExecutionContext) -> None:
        with as_step(context):
            raise dg.Failure("The lake is gone.", allow_retries=False)

    run_of(instance, job(NAMES.changes, NAMES.changes_op), DagsterRunStatus.SUCCESS)
    failed = dg.materialize([changes], instance=instance, raise_on_error=False)
    last = RUNS.finished(instance, 10)
    assert (len(last), last[0].dagster_run.run_id) == (2, failed.run_id)
    (told,) = troubles_of_runs(instance, RUNS, is_reported=False)
    assert "failed: The lake is gone" in told.what
    assert not list(troubles_of_runs(instance, RUNS.of("other@location"), is_reported=False))


def test_a_run_that_published_and_was_terminated_is_not_followed_at_once(instance: dg.DagsterInstance) -> None:
    made = job(NAMES.publish, NAMES.publish_op)
    own = CaptureRuns(frozenset({NAMES.publish}), frozenset())
    waits: Any = SimpleNamespace(recorded=lambda: 7, published=lambda: PublishedReport(waiting=3))
    kafka = KafkaRuns(SimpleNamespace(names=NAMES))  # type: ignore[arg-type]
    request = kafka.request(instance, own, waits)
    assert isinstance(request, dg.RunRequest)
    run_of(instance, made, DagsterRunStatus.SUCCESS, **{COMMITTED_TAG: "3"})
    assert isinstance(kafka.request(instance, own, waits), dg.RunRequest)
    instance.report_run_canceled(run_of(instance, made))
    said = kafka.request(instance, own, waits)
    assert isinstance(said, dg.SkipReason)
    assert "was terminated; the next starts after" in str(said.skip_message)


def test_a_topic_without_numbers_of_windows_that_is_stopped_is_tried_again(instance: dg.DagsterInstance) -> None:
    """Such as that of transactions: no row of the manifest, and no mark, says that it lacks something."""
    found, own = (
        PublishedReport(window=3, stopped={"shop.transaction": "too large"}),
        CaptureRuns(frozenset(), frozenset()),
    )
    lake: Any = SimpleNamespace(recorded=lambda: 7, published=lambda: found)
    kafka = KafkaRuns(SimpleNamespace(names=NAMES))  # type: ignore[arg-type]
    assert isinstance(kafka.request(instance, own, lake), dg.RunRequest)
    found = PublishedReport(window=3)
    assert kafka.request(instance, own, lake) is None


def test_mirrors_that_lag_again_are_made_again_whoever_has_written(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line writes to topics, too, and no run of the capture's jobs tells of it."""
    rows, made = [1], job(NAMES.mirror, NAMES.mirror_op)
    own = CaptureRuns(frozenset({NAMES.mirror}), frozenset())
    catalog = SimpleNamespace(keys=lambda _: {KEY: "t"}, names=NAMES, mirror_runs=lambda: own)
    resource = SimpleNamespace(mirrors=lambda: SimpleNamespace(behind=lambda _: ["shop.t"]), recorded=lambda: rows[-1])
    ask: Any = partial(mirroring, catalog, resource, instance, RUNS, [], Turns())  # type: ignore[arg-type]
    keys = [ask().run_key]
    for _ in range(2):
        run_of(instance, made, DagsterRunStatus.SUCCESS, **ask().tags)
        assert ask() is None, "it has come as far as it could"
        rows.append(rows[-1] + 1)
        keys.append(ask().run_key)
    assert len(set(keys)) == 3
    for _ in range(8):
        rows.append(rows[-1] + 1)
        instance.report_run_failed(run_of(instance, made, **{MIRRORS_TAG: "shop.t"}))
    assert ask() is None, "it is refused; a pause lasts, whatever is written"
    monkeypatch.setattr(schedule, "LONGEST_PAUSE", timedelta(0))
    instance.report_run_failed(run_of(instance, made, **ask().tags))
    assert ask() is None, "nothing more is there"
    rows.append(rows[-1] + 1)
    assert ask() is not None, "what it met may be over, and no run of the capture's jobs comes"


def catalog_of(*, has_kafka: bool) -> Any:
    """What the sensor is made for: a capture of one table."""
    own, publishing = (CaptureRuns(frozenset({name}), frozenset()) for name in (NAMES.mirror, NAMES.publish))
    return SimpleNamespace(
        config=make_config(Path("lake")),
        names=NAMES,
        tables=[1],
        keys=lambda _: {KEY: "t"},
        runs=lambda: RUNS,
        mirror_runs=lambda: own,
        publishing_runs=lambda: publishing,
        has_kafka=has_kafka,
    )


@pytest.mark.parametrize("left", [False, True])
def test_mirrors_that_a_run_for_several_has_not_made_are_requested_under_a_new_key(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, left: bool
) -> None:
    """Dagster starts nothing under a used key: the request would be repeated for ever, and hold the stream and Kafka back."""
    lag, kafka = ["shop.a", "shop.b"], list[int]()
    mirrors, fresh = SimpleNamespace(behind=lambda _: list(lag)), dg.RunRequest("new", job_name=NAMES.follow)
    resource: Any = SimpleNamespace(mirrors=lambda: mirrors, recorded=lambda: 7)
    decider = sensors._Decider(catalog_of(has_kafka=True))
    monkeypatch.setattr(decider._published, "request", lambda *_: kafka.append(1))
    tags = {COMMITTED_TAG: "2", **({MIRRORS_LEFT_TAG: "true"} if left else {})}
    run_of(instance, job(NAMES.changes, NAMES.changes_op), DagsterRunStatus.SUCCESS, **tags)

    def answer(todo: Any) -> Any:
        monkeypatch.setattr(sensors, "_request", lambda *_: todo)
        context: Any = dg.build_sensor_context(instance, cursor=f" · start {decider._start}")
        return decider.answer(context, resource, RUNS.finished(instance, 10))

    keys, quiet = list[str](), dg.SkipReason("Nothing new.")
    for lag[:] in (["shop.a", "shop.b"], ["shop.b"]):
        assert (answer(fresh).job_name == NAMES.mirror) == (left and not keys), "a stream waits for one try only"
        request = answer(quiet)
        keys.append(request.run_key)
        made = run_of(instance, job(NAMES.mirror, NAMES.mirror_op), DagsterRunStatus.STARTED, **request.tags)
        assert answer(fresh) is fresh, "a run of mirrors works"
        instance.report_run_failed(made)
    assert len(set(keys)) == 2
    assert not kafka.clear()
    assert answer(quiet) is quiet, "a pause"
    assert kafka


def test_mirrors_that_are_refused_get_no_run_for_each_part_of_them_that_a_tick_finds(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is time to examine some of many; what a tick before has found is found again."""
    refused, topics = {f"shop.t{number}" for number in range(5)}, [f"shop.t{number}" for number in range(40)]

    def behind(turns: Turns | None = None) -> list[str]:
        turns = turns or Turns()
        seen = turns.lacking.union(sorted(topics, key=turns.of)[:8])
        turns.note({topic: Examined(None, Loss(topic, "is gone") if topic in refused else None) for topic in seen})
        return sorted(seen & refused)

    catalog, quiet = catalog_of(has_kafka=False), dg.SkipReason("Nothing new.")
    resource: Any = SimpleNamespace(mirrors=lambda: SimpleNamespace(behind=behind), recorded=lambda: 7)
    decider, found = sensors._Decider(catalog), []
    monkeypatch.setattr(sensors, "_request", lambda *_: quiet)
    for tick in range(60):
        context: Any = dg.build_sensor_context(instance, cursor=f" · start {decider._start}")
        request: Any = decider.answer(context, resource, [])
        if request is not quiet:
            found.append((tick, request.tags[MIRRORS_TAG]))
            made = run_of(instance, job(NAMES.mirror, NAMES.mirror_op), **request.tags)
            instance.report_run_failed(made)
    assert found[-1][1] == ", ".join(sorted(refused))
    assert found[-1][0] < 5, "all were examined once"


def test_a_run_whose_process_nobody_knows_is_left_to_dagster(instance: dg.DagsterInstance) -> None:
    run = run_of(instance, job(NAMES.changes, NAMES.changes_op))
    instance.add_run_tags(run.run_id, process_tag(run.run_id, ""))
    with patch.object(runs, "_SILENT_S", -1), patch.object(runs, "_LOADED", time.time() + 1):
        assert RUNS.active(instance)


@pytest.mark.parametrize("step", [NAMES.changes_op, "report", ""])
def test_a_run_in_which_somebody_elses_step_works_is_not_ended_for_its_silence(
    instance: dg.DagsterInstance, step: str
) -> None:
    run = run_of(instance, job(NAMES.changes, NAMES.changes_op, "report"), DagsterRunStatus.STARTING)
    instance.report_dagster_event(dg.DagsterEvent("PIPELINE_START", run.job_name), run.run_id)
    if step:
        instance.report_dagster_event(dg.DagsterEvent("STEP_START", run.job_name, step_key=step), run.run_id)
    with patch.object(runs, "_SILENT_S", -1), patch.object(runs, "_LOADED", time.time() + 1):
        assert bool(RUNS.active(instance)) == (step == "report")


@pytest.mark.parametrize(
    ("executor", "config", "knows"),
    [
        (dg.in_process_executor, {}, "own"),
        (dg.multiprocess_executor, {}, "parent"),
        (dg.multi_or_in_process_executor, {}, "parent"),
        (dg.multi_or_in_process_executor, {"execution": {"config": {"in_process": {}}}}, "own"),
        (dg.executor(name="kubernetes")(lambda _: None), {}, ""),
    ],
)
def test_the_process_of_a_run_is_not_that_of_one_of_its_steps(executor: Any, config: Any, knows: str) -> None:
    @dg.op
    def nothing() -> None: ...

    @dg.job(executor_def=executor)
    def made() -> None:
        nothing()

    class Context:
        job_def = made
        run = DagsterRun("made", run_config=config)

    class Parent:
        pid = 1

    with patch.object(process, "parent_process", return_value=Parent), patch.object(process, "identified", str):
        found = process_of_run(Context())  # type: ignore[arg-type]
    assert found == {"own": own_process(), "parent": "1", "": ""}[knows]


# ---- the time that a run may take ---------------------------------------------------------------------------------


def runtime(instance: dg.DagsterInstance, run: DagsterRun, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    monkeypatch.setattr(dg.DagsterInstance, "run_monitoring_max_runtime_seconds", 100)
    return Runtime(SimpleNamespace(instance=instance, run=run))  # type: ignore[arg-type]


def test_the_limit_of_a_run_counts_from_its_last_commit(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limit(run: DagsterRun) -> str:
        found = instance.get_run_by_id(run.run_id)
        assert found is not None
        return found.tags.get(dg.MAX_RUNTIME_SECONDS_TAG, "")

    run, began = run_of(instance, job(NAMES.snapshot, NAMES.snapshot_op)), time.time()
    mine = runtime(instance, run, monkeypatch)
    assert limit(run) == ""
    with patch("cdc_assets.defs.runtime.time", return_value=began + 5000):
        mine.note_progress()
    assert 5090 < int(limit(run)) < 5110
    with patch("cdc_assets.defs.runtime.time", return_value=began + 9000):
        mine.note_progress()
        assert int(limit(run)) < 5110, "not with each commit"
        with patch("cdc_assets.defs.runtime.monotonic", return_value=time.monotonic() + 30):
            mine.note_progress()
        assert int(limit(run)) > 9090, "but before a short limit is over"
        tags = instance.get_run_by_id(run.run_id).tags  # type: ignore[union-attr]
        again = instance.create_run_for_job(job(NAMES.snapshot, NAMES.snapshot_op), tags=dict(tags))
        runtime(instance, again, monkeypatch).note_progress()
        assert limit(again) == "100" or int(limit(again)) > 5110

    theirs = run_of(instance, job(NAMES.snapshot, NAMES.snapshot_op), **{dg.MAX_RUNTIME_SECONDS_TAG: "7"})
    runtime(instance, theirs, monkeypatch).note_progress()
    assert limit(theirs) == "7", "somebody gave it that"


# ---- publishing -------------------------------------------------------------------------------------------------


def test_who_waits_in_a_queue_or_is_dead_publishes_nothing(instance: dg.DagsterInstance, dead: str) -> None:
    made = job(NAMES.publish, NAMES.publish_op)
    publishing = CaptureRuns(frozenset({NAMES.publish}), frozenset())
    own = run_of(instance, job(NAMES.changes, NAMES.changes_op))

    def somebody() -> bool:
        return publishing.others_at_work(instance, own)

    queued = run_of(instance, made, DagsterRunStatus.QUEUED, "prod")
    assert not somebody()
    started = run_of(instance, made)
    assert somebody()
    instance.add_run_tags(started.run_id, process_tag(started.run_id, dead))
    assert not somebody()
    ended = instance.get_run_by_id(started.run_id)
    assert ended is not None
    assert ended.status is DagsterRunStatus.FAILURE
    assert [run.run_id for run in publishing.active(instance)] == [queued.run_id]


# ---- starts ----------------------------------------------------------------------------------------------------


@contextmanager
def command(folder: Path, name: str, says: str = "start_id(make_config('lake'))") -> Iterator[Path]:
    """A command of Dagster that starts two code servers, each of which prints something: which start it is of."""
    code = (
        "from cdc_assets.defs.service import is_of_daemon, start_id; "
        f"from cdc_assets_tests.unit.streaming.captures import make_config; print({says})"
    )
    script = folder / name
    script.write_text(
        f"import subprocess, sys\nfor _ in range(2):\n    subprocess.run([sys.executable, '-c', {code!r}], check=True)\n"
    )
    yield script


@pytest.mark.long
def test_another_code_server_is_another_start_only_of_another_service(tmp_path: Path) -> None:
    def starts(name: str) -> list[str]:
        with command(tmp_path, name) as script:
            return subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout.split()

    first, again, other = starts("dagster-daemon"), starts("dagster-daemon"), starts("supervisor")
    assert first[0] == first[1]
    assert again[0] != first[0]
    assert other[0] != other[1], "each of them is the service"


@pytest.mark.long
@pytest.mark.parametrize(("name", "is_daemon"), [("dagster-daemon", "True"), ("dagster-webserver", "False")])
def test_a_code_server_of_the_daemon_knows_that(tmp_path: Path, name: str, is_daemon: str) -> None:
    with command(tmp_path, name, "is_of_daemon()") as script:
        said = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout.split()
    assert said == [is_daemon, is_daemon]


def test_what_is_read_at_a_start_decides_whether_it_is_another(tmp_path: Path) -> None:
    config = make_config(str(tmp_path))
    always = make_config(str(tmp_path), mode="always")
    assert start_id(config) == start_id(config)
    assert start_id(config) != start_id(always)
    with patch.object(service, "_service", return_value="another"):
        assert start_id(config) != start_id(always)
