"""The page of a run that works: a look without an answer is told while it lasts, and so is its end."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from time import sleep, time
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest

from cdc_assets.core import asking
from cdc_assets.core.identifiers import TableId
from cdc_assets.defs import server_view, watch
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.runs import CaptureRuns
from cdc_assets.defs.seen import was_just_seen
from cdc_assets.defs.spark import SparkResource
from cdc_assets.defs.sqlserver import SqlServerCdcResource
from cdc_assets.defs.translator import CdcTranslator
from cdc_assets.defs.view import CaptureView, Observation
from cdc_assets.defs.watch import LivePage
from cdc_assets.errors import LakeError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.overview import CaptureReport
from cdc_assets.overview.checks.sqlserver import CAPTURE_JOB
from cdc_assets.overview.report import TableReport, Trouble
from cdc_assets_tests.patience import Patience
from cdc_assets_tests.shop import Shop

WINDOWS = dg.AssetKey("windows")


def look() -> Observation:
    """All is well."""
    table = TableReport(TableId("SalesDb", "dbo", "orders"), "shop.SalesDb.dbo.orders", "streaming")
    check = dg.AssetCheckEvaluation(WINDOWS, "capture_job", passed=True, metadata={}, description="It reads.")
    return Observation(CaptureReport("shop", datetime.now(UTC), tables=(table,)), (check,))


class Server:
    """Answers looks unless it hangs."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()

    def observe(self) -> Observation:
        """One look."""
        assert self.answers.wait(60)
        return look()


def health(instance: dg.DagsterInstance) -> str:
    """What the page says."""
    event = instance.get_latest_materialization_event(WINDOWS)
    found = event.asset_materialization.metadata if event and event.asset_materialization else {}
    return str(found["health"].value) if "health" in found else ""


def passed(instance: dg.DagsterInstance) -> bool:
    """What the check says."""
    key = dg.AssetCheckKey(WINDOWS, "capture_job")
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
    return bool(record and record.evaluation and record.evaluation.passed)


def away() -> Observation:
    """The lake is away, so nothing is known of the server's job."""
    check = dg.AssetCheckEvaluation(WINDOWS, "capture_job", passed=False, metadata={}, description="Not known.")
    return Observation(replace(look().report, troubles=(Trouble("the lake", "It is away."),)), (check,))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run looks all the time, and reads no lake beside it."""
    for name in ("_FIRST_S", "_RUN_EVERY_S"):
        monkeypatch.setattr(watch, name, 0.05)
    monkeypatch.setattr(watch, "account_of", lambda *_: {})


def during_a_run(view: CaptureView, play: Callable[[dg.DagsterInstance, LivePage], None]) -> None:
    """Play something while a run keeps the page."""

    @dg.asset(key=WINDOWS)
    def windows(context: dg.AssetExecutionContext) -> None:
        play(context.instance, LivePage(view, context, cast(TopicTables, cast(Any, None))))

    with dg.DagsterInstance.ephemeral() as instance:
        assert dg.materialize([windows], instance=instance).success


def wait_for(holds: Callable[[], object], instance: dg.DagsterInstance) -> None:
    """Until what is told says something."""
    patience = Patience(60)
    while not holds():
        assert patience, health(instance)
        sleep(0.02)


def test_look_without_an_answer_is_told_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    server, found = Server(), list[str]()
    for module, name in [(asking, "_OVERDUE_S"), (watch, "_FIRST_S"), (watch, "_RUN_EVERY_S")]:
        monkeypatch.setattr(module, name, 0.05)
    monkeypatch.setattr(watch, "account_of", lambda *_: {})
    view = CaptureView("shop", WINDOWS, "windows", server.observe, checks=[CAPTURE_JOB])

    def told(instance: dg.DagsterInstance, says: str, *, passes: bool) -> None:
        patience = Patience(60)
        while not (health(instance).startswith(says) and passed(instance) is passes):
            assert patience, health(instance)
            sleep(0.02)
        found.append(health(instance))

    @dg.asset(key=WINDOWS)
    def windows(context: dg.AssetExecutionContext) -> None:
        with LivePage(view, context, cast(TopicTables, cast(Any, None))).fresh():
            told(context.instance, "healthy", passes=True)
            server.answers.clear()
            told(context.instance, "not known: The state of the capture is not known: no answer", passes=False)
            assert was_just_seen(context.instance, WINDOWS), "the sensor need not look beside it"
            server.answers.set()
            told(context.instance, "healthy", passes=True)

    with dg.instance_for_test() as instance:  # one in memory does not let two threads use a table
        assert dg.materialize([windows], instance=instance).success
    assert len(found) == 3


def test_look_that_fails_is_told_by_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its events would go on to say what was seen before."""
    for name in ("_FIRST_S", "_RUN_EVERY_S"):
        monkeypatch.setattr(watch, name, 0.05)
    monkeypatch.setattr(watch, "account_of", lambda *_: {})
    looks = [look, lambda: 1 / 0]
    view = CaptureView("shop", WINDOWS, "windows", lambda: looks[0](), checks=[CAPTURE_JOB])  # type: ignore[arg-type,return-value]

    @dg.asset(key=WINDOWS)
    def windows(context: dg.AssetExecutionContext) -> None:
        page = LivePage(view, context, cast(TopicTables, cast(Any, None)))
        with page.fresh():
            for says in ("healthy", "not known: The state of the capture is not known: ZeroDivisionError", "healthy"):
                patience = Patience(60)
                while not health(context.instance).startswith(says):
                    assert patience, health(context.instance)
                    sleep(0.02)
                assert page.facts()["health"].startswith(says)
                looks.reverse()

    with dg.DagsterInstance.ephemeral() as instance:
        assert dg.materialize([windows], instance=instance).success


@pytest.mark.usefixtures("soon")
def test_lake_that_is_away_is_told_though_the_page_reads_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Page and checks stayed healthy, since the number of rows beside them could not be read."""
    looks = [look]
    view = CaptureView("shop", WINDOWS, "windows", lambda: looks[0](), checks=[CAPTURE_JOB])

    def unreadable(*_: object) -> dict[str, Any]:
        raise LakeError("The lake is away. Next: bring it back.")

    def play(instance: dg.DagsterInstance, page: LivePage) -> None:
        with page.fresh():
            wait_for(lambda: health(instance) == "healthy" and passed(instance), instance)
            monkeypatch.setattr(watch, "account_of", unreadable)
            looks[0] = away
            wait_for(lambda: health(instance) == "in trouble: the lake: It is away" and not passed(instance), instance)

    during_a_run(view, play)


@pytest.mark.usefixtures("soon")
def test_metrics_do_not_need_the_storage_of_dagster(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stayed healthy while it was away."""
    looks = [look]
    runs = CaptureRuns(frozenset({"shop_changes"}), frozenset())
    view = CaptureView("shop", WINDOWS, "windows", lambda: looks[0](), runs=runs)

    def unanswered(*_: object) -> None:
        raise OSError("could not connect to the database")

    def play(instance: dg.DagsterInstance, page: LivePage) -> None:
        def says(start: str) -> bool:
            report = page.report()
            return report is not None and report.headline.startswith(start)

        with page.fresh():
            wait_for(lambda: says("healthy"), instance)
            monkeypatch.setattr(watch, "waiting_too_long", unanswered)
            wait_for(lambda: says("not known: Dagster's queue: It cannot be queried: OSError"), instance)
            looks[0] = away
            wait_for(lambda: says("in trouble: the lake: It is away"), instance)
            assert page.facts()["health"].startswith("in trouble")

    during_a_run(view, play)


@pytest.mark.usefixtures("soon")
def test_report_that_is_not_followed_by_another_is_not_known_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread waits for Dagster's storage, or for the lake beside the page."""
    goes_on = threading.Event()
    view = CaptureView("shop", WINDOWS, "windows", look)

    def hang(*_: object) -> dict[str, Any]:
        assert goes_on.wait(60)
        return {}

    monkeypatch.setattr(watch, "account_of", hang)

    def play(instance: dg.DagsterInstance, page: LivePage) -> None:
        with page.fresh():
            wait_for(lambda: page.facts().get("health") == "healthy", instance)
            monkeypatch.setattr(watch, "time", lambda: time() + 2 * watch._SILENT_S)
            assert page.facts()["health"].startswith(
                "not known: The state of the capture is not known: no report for 6"
            )
            goes_on.set()

    during_a_run(view, play)


@pytest.mark.usefixtures("soon")
def test_look_from_before_a_freeze_is_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sensor has told a trouble meanwhile, which the run withdrew, over what it had found an hour ago."""
    looks, asleep_s, found = [look], [0.0], list[str]()
    monkeypatch.setattr(watch, "time", lambda: time() + asleep_s[0])
    view = CaptureView("shop", WINDOWS, "windows", lambda: looks[0](), checks=[CAPTURE_JOB])

    def play(instance: dg.DagsterInstance, page: LivePage) -> None:
        def frozen() -> Observation:
            asleep_s[0] += 3600.0
            instance.report_runless_asset_event(dg.AssetMaterialization(WINDOWS, metadata={"health": "in trouble"}))
            instance.report_runless_asset_event(away().checks[0])
            looks[0] = later
            return look()

        def later() -> Observation:
            found.append(health(instance))
            found.append(str(passed(instance)))
            return away()

        with page.fresh():
            wait_for(lambda: health(instance) == "healthy" and passed(instance), instance)
            looks[0] = frozen
            wait_for(lambda: health(instance) == "in trouble: the lake: It is away", instance)

    during_a_run(view, play)
    assert found[:2] == ["in trouble", "False"]


@pytest.mark.usefixtures("soon")
def test_storage_that_is_slow_begins_no_report_beside_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time was taken for a freeze: each time another report was begun, and metrics had none."""
    asleep_s, begun, answers = [0.0], list[int](), threading.Event()
    monkeypatch.setattr(watch, "time", lambda: time() + asleep_s[0])
    monkeypatch.setattr(watch, "overdue_s", lambda _: 0.05)

    def slow(*_: object) -> tuple[()]:
        asleep_s[0] += 13.0
        return ()

    def hanging() -> Observation:
        begun.append(1)
        assert answers.wait(60)
        return look()

    monkeypatch.setattr(watch, "waiting_too_long", slow)
    runs = CaptureRuns(frozenset(["shop_changes"]), frozenset([WINDOWS]))
    view = CaptureView("shop", WINDOWS, "windows", hanging, checks=[CAPTURE_JOB], runs=runs)

    def play(_: dg.DagsterInstance, page: LivePage) -> None:
        with page.fresh():
            sleep(1.5)
            assert len(begun) == 1
            answers.set()
            patience = Patience(30)
            while page._seen is None or page._seen[1].report.health != "healthy":
                assert patience
                sleep(0.01)

    during_a_run(view, play)


@pytest.mark.usefixtures("soon")
def test_end_of_a_run_does_not_repeat_what_was_seen_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server hangs since: the newest page was healthy, with a time before that."""
    server = Server()
    view = CaptureView("shop", WINDOWS, "windows", server.observe, checks=[CAPTURE_JOB])

    def play(instance: dg.DagsterInstance, page: LivePage) -> None:
        with page.fresh():
            wait_for(lambda: health(instance) == "healthy", instance)
            server.answers.clear()
            monkeypatch.setattr(asking, "_OVERDUE_S", 0.1)
        assert page.facts()["health"].startswith("not known: The state of the capture is not known: no answer")
        assert health(instance).startswith("not known")
        assert not passed(instance)
        server.answers.set()

    during_a_run(view, play)


@pytest.mark.usefixtures("soon")
def test_run_that_ends_while_its_page_hangs_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_CLOSE_TIMEOUT_S", 0.1)
    hangs, goes_on = threading.Event(), threading.Event()
    view = CaptureView("shop", WINDOWS, "windows", look)

    def hang(*_: object) -> dict[str, Any]:
        hangs.set()
        assert goes_on.wait(60)
        return {}

    def play(instance: dg.DagsterInstance, page: LivePage) -> None:
        with page.fresh():
            wait_for(lambda: health(instance) == "healthy", instance)
            monkeypatch.setattr(watch, "account_of", hang)
            monkeypatch.setattr(watch, "differs", lambda *_: True)
            assert hangs.wait(60)
        goes_on.set()
        assert page.facts()["health"].startswith(
            "not known: The state of the capture is not known: no answer at the end"
        )

    during_a_run(view, play)


def test_look_asks_the_broker_that_the_settings_name_by_now(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that never ends has read them long ago, and so have its definitions."""
    asked: list[str] = []
    monkeypatch.setattr(
        server_view, "TICK_MARKER", SimpleNamespace(ask=lambda config: asked.append(config.kafka.servers))
    )
    server = SqlServerCdcResource(config_file=str(shop.file))
    with shop.in_environment():
        resource = CaptureResource(server=server, spark=SparkResource())
        catalog = CaptureCatalog(server.settings(), server.tables(), CdcTranslator())
        server_view.observe_server(catalog, resource)
        shop.write({"bootstrap.servers": "127.0.0.1:9"})
        server_view.observe_server(catalog, resource)
        shop.write({"bootstrap.servers": "127.0.0.1:9", "database.port": "1"})  # no answer
        server_view.observe_server(catalog, resource)
    assert asked[0] == ""
    assert set(asked[1:]) == {"127.0.0.1:9"}
