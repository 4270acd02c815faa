"""A capture's page while no run tells it: no tick waits long for a look, nothing that is old or of another time is told, and no answer is a trouble."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic, sleep, time

import dagster as dg
import pytest

from cdc_assets.core import asking
from cdc_assets.core.identifiers import TableId
from cdc_assets.defs import watch
from cdc_assets.defs.page import page_of
from cdc_assets.defs.seen import note_seen
from cdc_assets.defs.view import CaptureView, Observation
from cdc_assets.defs.watch import IdlePage
from cdc_assets.errors import LakeError
from cdc_assets.overview import CaptureReport
from cdc_assets.overview.checks.health import HEALTH
from cdc_assets.overview.checks.sqlserver import CAPTURE_JOB, PUBLISHED
from cdc_assets.overview.report import TableReport, Trouble
from cdc_assets_tests.patience import Patience


def seen(*troubles: str) -> Observation:
    """What a look has found."""
    found = tuple(Trouble("SalesDb", what) for what in troubles)
    return Observation(CaptureReport("shop", datetime.now(UTC), troubles=found))


def healthy() -> Observation:
    """All is well."""
    table = TableReport(TableId("SalesDb", "dbo", "orders"), "shop.SalesDb.dbo.orders", "streaming")
    return Observation(CaptureReport("shop", datetime.now(UTC), tables=(table,)))


class Looks:
    """Looks that last until they may end, each with an outcome of its own."""

    def __init__(self) -> None:
        self.may_end, self.begun = threading.Event(), 0
        self.found: Callable[[], Observation] = lambda: seen("quiet")

    def __call__(self) -> Observation:
        """One look."""
        self.begun += 1
        found = self.found
        assert self.may_end.wait(60)
        return found()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of that of the other modules."""
    monkeypatch.setattr(watch, "_GRACE_S", 0.1)
    monkeypatch.setattr(watch, "_SELDOM_S", 1.5)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A storage for each test."""
    with dg.DagsterInstance.ephemeral() as found:
        yield found


@pytest.fixture
def looks() -> Looks:
    """None has begun."""
    return Looks()


@pytest.fixture
def view(looks: Looks) -> CaptureView:
    """A capture that is looked at."""
    return CaptureView("shop", dg.AssetKey("windows"), "windows", looks, checks=[CAPTURE_JOB])


def troubles(page: IdlePage, instance: dg.DagsterInstance, view: CaptureView) -> str:
    """What a tick tells of them once a look has ended."""
    patience = Patience(60)
    while not (events := page.events(instance, view)):
        assert patience
        sleep(0.01)
    return str(events[0].metadata["troubles"].value)


def test_tick_does_not_wait_for_a_look_that_lasts(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks
) -> None:
    page, began = IdlePage(), monotonic()
    assert not page.events(instance, view)
    assert not page.events(instance, view)
    assert monotonic() - began < 30  # a look lasts a minute
    looks.may_end.set()
    assert troubles(page, instance, view) == "1"
    assert looks.begun == 1
    assert not page.events(instance, view)  # it is not time for another one
    assert looks.begun == 1


def test_look_from_before_a_run_is_thrown_away(instance: dg.DagsterInstance, view: CaptureView, looks: Looks) -> None:
    page = IdlePage()
    looks.found = lambda: seen("quiet", "away")
    assert not page.events(instance, view)
    page.forget()
    looks.found = lambda: seen("quiet")
    looks.may_end.set()
    assert troubles(page, instance, view) == "1"
    assert looks.begun == 2


def test_look_from_before_a_run_that_came_and_went_between_two_ticks_is_thrown_away(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks
) -> None:
    page = IdlePage()
    looks.found = lambda: seen("quiet", "away")
    assert not page.events(instance, view)
    looks.found = lambda: seen("quiet")
    note_seen(instance, view.key)
    looks.may_end.set()
    assert troubles(page, instance, view) == "1"
    assert looks.begun == 2


def test_look_from_long_ago_is_thrown_away(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = IdlePage()
    looks.found = lambda: seen("quiet", "away")
    assert not page.events(instance, view)
    looks.may_end.set()
    while page._took == 0.0:
        sleep(0.01)
    looks.found = lambda: seen("quiet")
    monkeypatch.setattr(watch, "time", lambda: time() + 2 * watch._OLD_S)
    assert troubles(page, instance, view) == "1"
    assert looks.begun == 2


def test_look_that_fails_is_told_and_the_next_tick_looks_again(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks
) -> None:
    page = IdlePage()

    def broken() -> Observation:
        raise LakeError("The lake is gone. Next: bring it back.")

    looks.found = broken
    looks.may_end.set()
    page_told, check, health = page.events(instance, view)
    assert "The lake is gone" in str(page_told.metadata["health"])
    assert isinstance(check, dg.AssetCheckEvaluation)
    assert (check.passed, "The lake is gone" in str(check.description)) == (False, True)
    assert isinstance(health, dg.AssetCheckEvaluation)
    assert (health.passed, "The lake is gone" in str(health.description)) == (False, True)
    looks.found = lambda: seen("quiet")
    page._next = 0.0
    assert troubles(page, instance, view) == "1"


def test_look_without_an_end_is_a_trouble_over_what_was_seen_last(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = IdlePage()
    looks.found = healthy
    looks.may_end.set()
    (told, *_) = page.events(instance, view)
    assert str(told.metadata["health"].value) == "healthy"
    instance.report_runless_asset_event(told)
    looks.may_end.clear()
    page._next = 0.0
    assert page.events(instance, view) == []
    monkeypatch.setattr(asking, "_OVERDUE_S", 0.0)
    told, check, _ = page.events(instance, view)
    assert str(told.metadata["health"].value).startswith("not known: The state of the capture is not known: no answer")
    assert told.metadata["tables_streaming"].value == 1
    assert isinstance(check, dg.AssetCheckEvaluation)
    assert not check.passed
    instance.report_runless_asset_event(told)
    looks.may_end.set()
    (told, *_) = page.events(instance, view)
    assert str(told.metadata["health"].value) == "healthy"


def test_what_somebody_else_has_told_is_corrected(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks
) -> None:
    """A run, or the sensor before the code location was loaded again."""
    looks.found = healthy
    looks.may_end.set()
    trouble = page_of(seen("away").report)
    instance.report_runless_asset_event(dg.AssetMaterialization(view.key, metadata=trouble))
    (told, *_) = IdlePage().events(instance, view)
    instance.report_runless_asset_event(told)
    assert str(told.metadata["health"].value) == "healthy"
    assert IdlePage().events(instance, view) == []


def test_page_that_is_not_healthy_is_told_again(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks.may_end.set()
    for told in IdlePage().events(instance, view):
        instance.report_runless_asset_event(told)
    assert IdlePage().events(instance, view) == []
    monkeypatch.setattr(watch, "_IDLE_REPORT_S", 0.0)
    assert len(IdlePage().events(instance, view)) == 2, "with its check"


def test_look_that_will_last_begins_when_the_tick_has_ended(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks
) -> None:
    page = IdlePage()
    looks.may_end.set()
    assert troubles(page, instance, view) == "1"
    page._next, page._took = 0.0, 5.0
    looks.found = lambda: seen("quiet", "away")
    assert not page.events(instance, view)
    assert looks.begun == 1
    assert troubles(page, instance, view) == "2"
    assert looks.begun == 2


ORDERS = dg.AssetKey(["shop", "orders"])


def of_table(*, passed: bool) -> Callable[[], Observation]:
    """A look that finds a table's check so; what else is wrong ends before."""
    check = dg.AssetCheckEvaluation(ORDERS, "schema_drift", passed=passed, metadata={}, description=str(passed))
    return lambda: Observation(healthy().report, (check,))


def recorded(page: IdlePage, instance: dg.DagsterInstance, view: CaptureView) -> list[str]:
    """What a tick tells, once it is recorded."""
    page._next = 0.0
    events = page.events(instance, view)
    for event in events:
        instance.report_runless_asset_event(event)
    checks = [event for event in events if isinstance(event, dg.AssetCheckEvaluation) and event.asset_key == ORDERS]
    return [str(check.description) for check in checks]


def test_check_of_a_table_that_passes_again_is_told_also_after_the_page(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks
) -> None:
    page = IdlePage()
    looks.may_end.set()
    looks.found = of_table(passed=True)
    assert recorded(page, instance, view) == []  # nothing failed before
    looks.found = lambda: Observation(seen("away").report, of_table(passed=False)().checks)
    assert recorded(page, instance, view) == ["False"]
    assert recorded(page, instance, view) == []
    looks.found = of_table(passed=False)
    recorded(page, instance, view)  # the page is healthy again
    looks.found = of_table(passed=True)
    assert recorded(page, instance, view) == ["True"]
    assert recorded(page, instance, view) == []


def test_check_that_a_former_code_server_has_told_is_corrected(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks
) -> None:
    looks.may_end.set()
    looks.found = of_table(passed=False)
    assert recorded(IdlePage(), instance, view) == ["False"]
    looks.found = of_table(passed=True)
    assert recorded(IdlePage(), instance, view) == ["True"]


def test_look_that_a_late_tick_has_begun_is_told_when_it_ends(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = IdlePage()
    page.begin(view)
    page.begin(view)
    assert looks.begun == 1
    monkeypatch.setattr(asking, "_OVERDUE_S", 0.0)
    (told, check, _) = page.events(instance, view)
    assert str(told.metadata["health"].value).startswith("not known")
    assert isinstance(check, dg.AssetCheckEvaluation)
    looks.may_end.set()


def test_check_that_another_job_has_told_is_corrected_by_a_healthy_page(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks
) -> None:
    """The half-hourly checks may have met what is over when the page is compared."""
    page = IdlePage()
    looks.may_end.set()
    looks.found = healthy
    recorded(page, instance, view)
    wrong = dg.AssetCheckEvaluation(view.key, HEALTH.name, passed=False, metadata={}, description="away")
    instance.report_runless_asset_event(wrong)
    page.forget()
    page._next = 0.0
    (corrected,) = page.events(instance, view)
    assert isinstance(corrected, dg.AssetCheckEvaluation)
    assert (corrected.check_name, corrected.passed) == (HEALTH.name, True)


def test_without_an_answer_nothing_is_known_of_kafka_either(view: CaptureView) -> None:
    kafka = dg.AssetKey("kafka")
    found = replace(view, checks=[CAPTURE_JOB, PUBLISHED], others=(kafka,)).unanswered("it hangs")
    assert {(it.asset_key, it.check_name, it.passed) for it in found.checks} == {
        (view.key, "capture_job", False),
        (kafka, "published", False),
    }


def test_page_of_a_capture_that_was_emptied_does_not_stay(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks
) -> None:
    looks.may_end.set()
    looks.found = lambda: Observation(CaptureReport("shop", datetime.now(UTC)))
    page = IdlePage()
    patience = Patience(60)
    while page._took == 0.0:
        assert page.events(instance, view) == [], "nothing is captured, and nobody has said otherwise"
        assert patience
    instance.report_runless_asset_event(dg.AssetMaterialization(view.key, metadata=page_of(healthy().report)))
    page = IdlePage()
    while not (events := page.events(instance, view)):
        assert patience
        sleep(0.01)
    assert events[0].metadata["health"].value == "not known: nothing is captured yet"


def of_job(*, passed: bool) -> dg.AssetCheckEvaluation:
    """What is found of the capture job."""
    key = dg.AssetKey("windows")
    return dg.AssetCheckEvaluation(key, CAPTURE_JOB.name, passed=passed, metadata={}, description=str(passed))


def is_job_shown_well(instance: dg.DagsterInstance) -> bool:
    """What Dagster shows of it."""
    key = dg.AssetCheckKey(dg.AssetKey("windows"), CAPTURE_JOB.name)
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
    return bool(record and record.evaluation and record.evaluation.passed)


def test_good_look_is_not_told_again_after_one_that_failed(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks
) -> None:
    """A run that waits made each tick without a look of its own tell the good one, so that checks passed and failed by turns."""
    page, queue = IdlePage(), [Trouble("Dagster's queue", "A run waits.")]
    looks.may_end.set()
    looks.found = lambda: Observation(healthy().report, (of_job(passed=True),))
    recorded(page, instance, view)

    def broken() -> Observation:
        raise LakeError("The lake is gone. Next: bring it back.")

    looks.found = broken
    page._next = 0.0
    for _ in range(3):
        for event in page.events(instance, view, queue):
            instance.report_runless_asset_event(event)
        assert not is_job_shown_well(instance)
    assert looks.begun == 2


def test_good_look_from_before_the_sensor_was_off_is_not_told_again(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first tick passed a check that had failed meanwhile, because a run had failed."""
    page, failed = IdlePage(), [Trouble("the last run", "It failed.")]
    looks.may_end.set()
    looks.found = lambda: Observation(healthy().report, (of_job(passed=True),))
    recorded(page, instance, view)
    instance.report_runless_asset_event(of_job(passed=False))
    looks.may_end.clear()
    monkeypatch.setattr(watch, "time", lambda: time() + 2 * watch._OLD_S)
    assert page.events(instance, view, failed) == []
    assert looks.begun == 2, "it is time for another one"
    looks.may_end.set()
    looks.found = lambda: Observation(healthy().report, (of_job(passed=False),))


def test_look_that_was_frozen_is_thrown_away(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick, and the look for which it waits, are an hour old when they go on."""
    page, asleep_s = IdlePage(), [0.0]
    monkeypatch.setattr(watch, "time", lambda: time() + asleep_s[0])
    looks.may_end.set()

    def frozen() -> Observation:
        asleep_s[0] = 3600.0
        looks.found = lambda: seen("quiet")
        return seen("quiet", "away")

    looks.found = frozen
    assert troubles(page, instance, view) == "1"
    assert looks.begun == 2


def test_correction_of_a_tick_whose_answer_is_lost_is_told_by_the_next_one(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks
) -> None:
    """A person has tested the sensor, or the daemon's time for the tick was over."""
    page = IdlePage()
    looks.may_end.set()
    looks.found = lambda: Observation(healthy().report, (of_job(passed=True),))
    recorded(page, instance, view)
    page.forget()
    instance.report_runless_asset_event(of_job(passed=False))
    assert page.events(instance, view), "nobody records it"
    recorded(page, instance, view)
    assert is_job_shown_well(instance)


def test_two_ticks_at_once_do_not_hinder_each_other(
    instance: dg.DagsterInstance, view: CaptureView, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the daemon, and that of a person who tests the sensor, wait for the same look."""
    monkeypatch.setattr(watch, "_GRACE_S", 60.0)
    page = IdlePage()
    with ThreadPoolExecutor(2) as pool:
        ticks = [pool.submit(page.events, instance, view) for _ in range(2)]
        sleep(0.1)
        looks.may_end.set()
        told = [tick.result() for tick in ticks]
    assert sorted(map(len, told)) == [0, 2], "one tells it"
