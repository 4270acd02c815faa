"""Results of checks stay visible by the pages' own rule, however often their asset is materialized."""

import asyncio
import time

import dagster as dg
import pytest
from dagster._core.loader import LoadingContextForTest

from cdc_assets.defs.checks import board
from cdc_assets.defs.checks.board import CheckBoard

ASSET = dg.AssetKey("changes")
CHECK = dg.AssetCheckKey(ASSET, "drift")


class Page:
    """An asset's page, and what runs do to it."""

    def __init__(self) -> None:
        self.instance = dg.DagsterInstance.ephemeral()
        self.board = CheckBoard(self.instance, self.run(), "follow")
        self.own = self._last

    def run(self) -> str:
        """Begin a run; returns its id."""
        self._last = self.instance.create_run_for_job(_job).run_id
        return self._last

    def materialize(self, ago_s: float = 0.0) -> None:
        """As the loop does, in the run that the board belongs to."""
        self._event(dg.DagsterEventType.ASSET_MATERIALIZATION, self.own, ago_s)

    def show(self, *, passed: bool, materialized: bool = True, anew: bool = False) -> None:
        """What the run finds now."""
        self.board.show([result(passed=passed)], {ASSET} if materialized else set(), anew=anew)

    def sensor(self, *, passed: bool) -> None:
        """What the sensor tells beside a run that has not looked for long."""
        self.instance.report_runless_asset_event(result(passed=passed))

    def other(self, *, passed: bool) -> None:
        """The same check, started by hand in another run."""
        CheckBoard(self.instance, self.run(), "checks").show([result(passed=passed)], {ASSET})

    def shown(self) -> str:
        """What the page shows: the newest result, if it belongs to the newest materialization."""
        found = self.instance.event_log_storage.get_latest_asset_check_execution_by_key([CHECK])
        if CHECK not in found:
            return "nothing"
        current = asyncio.run(found[CHECK].targets_latest_materialization(LoadingContextForTest(self.instance)))
        return found[CHECK].status.value if current else "not evaluated"

    def newest(self) -> tuple[int, str]:
        """The newest record, and its verdict."""
        record = self.instance.event_log_storage.get_latest_asset_check_execution_by_key([CHECK])[CHECK]
        return record.id, record.status.value

    def records(self) -> int:
        """Evaluations in the event log."""
        kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION
        return len(self.instance.event_log_storage.get_records_for_run(self.own, of_type=kind).records)

    def _event(self, kind: dg.DagsterEventType, run: str, ago_s: float) -> None:
        from dagster._core.events import StepMaterializationData

        data = StepMaterializationData(dg.AssetMaterialization(ASSET))
        event = dg.DagsterEvent(kind.value, "follow", event_specific_data=data)
        self.instance.report_dagster_event(event, run, timestamp=time.time() - ago_s)


def result(*, passed: bool) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=ASSET, check_name="drift", passed=passed, description="as recorded" if passed else "a column is new"
    )


@dg.op
def _nothing() -> None: ...


@dg.job
def _job() -> None:
    _nothing()


@pytest.fixture
def page() -> Page:
    return Page()


def test_other_run_s_result_vanishes_with_the_next_materialization(page: Page) -> None:
    """The fault that the board is for."""
    page.other(passed=False)
    assert page.shown() == "FAILED"
    page.materialize()
    assert page.shown() == "not evaluated"


@pytest.mark.parametrize("passed", [True, False])
def test_result_stays_and_costs_one_record(page: Page, passed: bool) -> None:
    for _ in range(5):
        page.show(passed=passed)
        page.materialize()
        assert page.shown() == ("SUCCEEDED" if passed else "FAILED")
    assert page.records() == 1


def test_result_is_reported_when_it_changes(page: Page) -> None:
    for passed in (True, False, True):
        page.show(passed=passed)
        page.materialize()
        assert page.shown() == ("SUCCEEDED" if passed else "FAILED")
    assert page.records() == 3


def test_table_without_events_keeps_its_last_result_without_a_record(page: Page) -> None:
    page.other(passed=True)
    page.show(passed=True, materialized=False)
    assert (page.records(), page.shown()) == (0, "SUCCEEDED")
    page.show(passed=False, materialized=False)
    assert (page.records(), page.shown()) == (1, "FAILED")


@pytest.mark.parametrize("found", [True, False])
def test_failure_comes_back_after_another_run_s_result(page: Page, found: bool) -> None:
    page.show(passed=False)
    page.materialize()
    page.other(passed=found)
    for _ in range(3):
        page.materialize()
        page.show(passed=False)
        assert page.shown() == "FAILED"
    page.show(passed=True)
    assert page.shown() == "SUCCEEDED"


def test_failure_that_another_run_has_told_does_not_hide_a_good_result(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of the half-hourly checks, which met what is over: who is alerted is to hear that."""
    monkeypatch.setattr(board, "_COMPARE_EVERY_S", 0.0)
    page.show(passed=True)
    page.materialize()
    page.other(passed=False)
    page.materialize()
    page.show(passed=True)
    assert page.shown() == "SUCCEEDED"
    found = page.newest()
    page.materialize()
    page.show(passed=True)
    assert page.newest() == found, "which is enough: it costs a record, and another one after each materialization"


def test_good_result_is_shown_again_where_the_sensor_told_another_one_meanwhile() -> None:
    page = Page()
    page.materialize(ago_s=1.0)  # SQLite says in whole seconds when the sensor's result was stored
    page.show(passed=True)
    page.sensor(passed=False)
    assert page.shown() == "FAILED"
    page.show(passed=True, anew=True)
    assert page.shown() == "SUCCEEDED"
    before = page.records()
    page.show(passed=True, anew=True)
    assert (page.shown(), page.records()) == ("SUCCEEDED", before)
