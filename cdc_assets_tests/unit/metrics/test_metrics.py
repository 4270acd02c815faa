"""Exported metrics: a real client scrapes them, the page and the dashboard name them, and they say what happened."""

import gzip
import json
import re
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from cdc_assets.adapters.sqlserver.source import quick_source
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.cli.capture import CaptureRun
from cdc_assets.cli.exported import exported
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.task_counters import note_retry, retries
from cdc_assets.errors import ConfigurationError, ServerBusyError
from cdc_assets.metrics import gauges, prometheus
from cdc_assets.metrics.capture_metrics import CaptureMetrics
from cdc_assets.metrics.otlp import Telemetry
from cdc_assets.metrics.prometheus import MetricsServer
from cdc_assets.overview import CaptureReport, inspect_server
from cdc_assets.overview.report import TableReport, Trouble
from cdc_assets_tests.patience import Patience
from cdc_assets_tests.unit.snapshot.world import World
from mssql_standin.control import StandIn

DOCS = Path(__file__).parents[3] / "docs"
PAGE, DASHBOARD = DOCS / "metrics.md", DOCS / "grafana-dashboard.json"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Samples, set[str], str]]:
    """Samples after a snapshot and some changes, the names of all metrics, and the text in Prometheus's own format."""
    with StandIn(databases=("SalesDb",)) as server:
        world = World(
            server,
            str(tmp_path_factory.mktemp("metrics") / "lake"),
            skip__messages__without__change="true",
            column__exclude__list="dbo.orders.hidden",
            provide__transaction__metadata="true",
            event__converting__failure__handling__mode="warn",
        )
        world.sql(
            "CREATE TABLE dbo.orders (id int PRIMARY KEY, note varchar(20), hidden int, big varchar(max), due datetime2(7))"
        )
        world.enable("orders")
        world.sql("INSERT INTO dbo.orders VALUES (1, 'a', 1, 'long', NULL), (2, 'b', 1, 'long', NULL)")
        metrics = CaptureMetrics(
            "shop", lambda: inspect_server(world.config, lambda: quick_source(world.config)).report
        )
        with world.capture(metrics.note) as capture:
            capture.snapshot()
        world.sql(
            "INSERT INTO dbo.orders VALUES (3, 'c', 1, 'long', '9999-12-31')",
            "UPDATE dbo.orders SET hidden = 2 WHERE id = 1",
            "UPDATE dbo.orders SET note = 'd' WHERE id = 2",
            "DELETE FROM dbo.orders WHERE id = 3",
        )
        with world.capture(metrics.note) as capture:
            capture.stream()
        note_retry(ServerBusyError("busy"))
        with MetricsServer(metrics, "127.0.0.1", 0) as served:
            url = f"http://127.0.0.1:{served.port}/metrics"
            request = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own server
                families = list(text_string_to_metric_families(answer.read().decode()))
            with urllib.request.urlopen(url, timeout=30) as answer:
                plain = answer.read().decode()
        samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }
        names = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
        yield samples, names, plain


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"cdc_assets_{name}", frozenset({"capture": "shop", **labels}.items())]


def test_counters_say_what_was_committed(scraped: tuple[Samples, set[str], str]) -> None:
    samples, _, _ = scraped
    table = {"database": "SalesDb", "table": "dbo.orders"}

    def events(kind: str, operation: str) -> float:
        return value(samples, "events_seen_total", **table, kind=kind, operation=operation)

    assert events("snapshot", "read") == 2
    assert [events("stream", name) for name in ("create", "update", "delete", "tombstone")] == [1, 1, 1, 1]
    assert value(samples, "unchanged_events_skipped_total", database="SalesDb") == 1
    assert value(samples, "values_unavailable_total", database="SalesDb") >= 1
    assert value(samples, "committed_transactions_total", database="SalesDb") == 3, "the unchanged one is not published"
    assert value(samples, "values_nulled_total", database="SalesDb") == 2, "of the insert and the delete"
    assert value(samples, "written_files_total", **table) >= 2
    assert value(samples, "written_bytes_total", **table) > 1000
    assert value(samples, "commits_total", database="SalesDb", kind="snapshot") >= 1
    assert value(samples, "retries_total", cause="ServerBusyError") == retries()["ServerBusyError"]


def test_gauges_say_what_status_says(scraped: tuple[Samples, set[str], str]) -> None:
    samples, _, _ = scraped
    assert value(samples, "health", health="healthy") == 1
    assert value(samples, "health", health="in trouble") == value(samples, "troubles") == 0
    assert value(samples, "captured_tables", condition="streaming") == 1
    assert value(samples, "connected", database="SalesDb") == 1
    assert value(samples, "table_streaming", database="SalesDb", table="dbo.orders") == 1
    assert value(samples, "seconds_behind_source", database="SalesDb") >= 0
    assert value(samples, "snapshot_slices", database="SalesDb") == value(
        samples, "snapshot_slices_done", database="SalesDb"
    )


def test_page_and_dashboard_name_the_metrics(scraped: tuple[Samples, set[str], str]) -> None:
    _, names, _ = scraped
    assert set(re.findall(r"`(cdc_assets_\w+)`", PAGE.read_text(encoding="utf-8"))) == names
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    asked = {target["expr"] for panel in dashboard["panels"] for target in panel["targets"]}
    used = {name for text in asked for name in re.findall(r"cdc_assets_\w+", text)}
    assert used <= names
    assert len(used) > 10


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus's own tool")
def test_prometheus_finds_nothing_to_mend(scraped: tuple[Samples, set[str], str]) -> None:
    done = subprocess.run(["promtool", "check", "metrics"], input=scraped[2], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_command_writes_the_file_and_serves_the_port(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path / "lake"), metrics__textfile=str(tmp_path / "prom" / "shop.prom"))
    world.make("orders", 3)
    run = CaptureRun([], snapshot_only=False, follow=False)
    with exported(world.config, lambda: world.config) as run.note:
        run.attempt(world.config, LocalRunner(2))
    text = (tmp_path / "prom" / "shop.prom").read_text()
    assert 'operation="read",table="dbo.orders"} 3.0' in text
    taken = World(server, world.lake, metrics__port=str(server.port), metrics__address="127.0.0.1")
    with pytest.raises(ConfigurationError, match="a free port"), exported(taken.config, lambda: taken.config):
        raise AssertionError


def test_a_file_that_cannot_be_written_ends_no_capture(server: StandIn, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    world = World(server, str(tmp_path / "lake"), metrics__textfile=str(tmp_path / "file" / "shop.prom"))
    world.make("orders", 3)
    run = CaptureRun([], snapshot_only=True, follow=False)
    with exported(world.config, lambda: world.config) as run.note:
        run.attempt(world.config, LocalRunner(2))
    assert world.reads(world.tables[0]) == [1, 2, 3]


FILE_SOON = 0.2
"""Seconds from one writing of the file to the next, in tests."""


def metric(file: Path, name: str) -> float | None:
    """The value of a metric in the file; None if it is not there."""
    lines = file.read_text().splitlines() if file.exists() else []
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"cdc_assets_{name}")), None)


def test_file_is_written_while_nothing_is_committed(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed at its last good health while the server was away, and after the end for ever."""
    monkeypatch.setattr(prometheus, "WRITE_EVERY_S", FILE_SOON)
    monkeypatch.setattr(gauges, "REPORT_EVERY_S", 0.0)
    file, port = tmp_path / "shop.prom", server.port
    world = World(server, str(tmp_path / "lake"), metrics__textfile=str(file))
    world.make("orders", 3)
    world.snapshot()
    file.write_text('cdc_assets_health{capture="shop",health="healthy"} 1.0\n')
    with exported(world.config, lambda: world.config):
        assert metric(file, "health") is None, "of a process that was killed"
        reached(lambda: metric(file, 'health{capture="shop",health="healthy"}') == 1)
        looked = metric(file, "last_look_timestamp_seconds")
        assert looked is not None
        assert abs(time.time() - looked) < 60
        server._tds.stop()
        reached(lambda: metric(file, 'health{capture="shop",health="not known"}') == 1)
        assert metric(file, "connected") == 0
        assert (metric(file, "last_look_timestamp_seconds") or 0) > looked
        server._listen(port)
        reached(lambda: metric(file, 'health{capture="shop",health="healthy"}') == 1)
    assert metric(file, "health") is None
    assert metric(file, "last_look_timestamp_seconds") is None
    assert "cdc_assets_retries" in file.read_text()


def reached(holds: Callable[[], bool]) -> None:
    patience = Patience(60)
    while not holds():
        assert patience
        time.sleep(0.05)


@pytest.mark.long
def test_metrics_follow_a_password_as_the_capture_does(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They kept the first settings, and offered the former password at each scrape for ever."""
    monkeypatch.setattr(prometheus, "WRITE_EVERY_S", FILE_SOON)
    monkeypatch.setattr(gauges, "REPORT_EVERY_S", 0.0)
    file, before = tmp_path / "shop.prom", server.password
    world = World(server, str(tmp_path / "lake"), metrics__textfile=str(file))
    world.make("orders", 3)
    world.snapshot()
    password = [before]
    offered: list[str] = []
    take = server.engine.open

    def counted(login: Any) -> Any:
        offered.append(login.password)
        return take(login)

    def read() -> CaptureConfig:
        return replace(world.config, connection=replace(world.config.connection, password=password[0]))

    with patch.object(server.engine, "open", counted), exported(read(), read):
        reached(lambda: metric(file, "connected") == 1)
        server.rotate_password()
        offered.clear()
        reached(lambda: metric(file, "connected") == 0)
        time.sleep(10 * FILE_SOON)
        assert offered.count(before) <= 2
        password[0] = server.password
        reached(lambda: metric(file, "connected") == 1)
        assert offered.count(before) <= 2


def test_settings_that_cannot_be_read_any_more_are_trouble(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics stayed healthy with the settings before, with which no other process could begin."""
    monkeypatch.setattr(prometheus, "WRITE_EVERY_S", FILE_SOON)
    monkeypatch.setattr(gauges, "REPORT_EVERY_S", 0.0)
    file = tmp_path / "shop.prom"
    world = World(server, str(tmp_path / "lake"), metrics__textfile=str(file))
    world.make("orders", 3)
    world.snapshot()
    broken = threading.Event()

    def read() -> CaptureConfig:
        if broken.is_set():
            raise ConfigurationError("poll.interval.ms", "soon", "a number", "write one")
        return world.config

    with exported(read(), read):
        reached(lambda: metric(file, 'health{capture="shop",health="healthy"}') == 1)
        broken.set()
        reached(lambda: metric(file, 'health{capture="shop",health="in trouble"}') == 1)
        assert metric(file, "connected") == 1
        broken.clear()
        reached(lambda: metric(file, 'health{capture="shop",health="healthy"}') == 1)


HEALTHY, NOT_KNOWN = (f'health{{capture="shop",health="{name}"}}' for name in ("healthy", "not known"))
ORDERS = TableReport(TableId("SalesDb", "dbo", "orders"), "shop.SalesDb.dbo.orders", "streaming")


def test_look_that_fails_leaves_no_good_health_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(prometheus, "WRITE_EVERY_S", 0.01)
    monkeypatch.setattr(gauges, "REPORT_EVERY_S", 0.0)
    reports = [CaptureReport("shop", datetime.now(UTC), tables=(ORDERS,))]
    metrics = CaptureMetrics("shop", lambda: reports[0])
    with prometheus.Textfile(metrics, file := tmp_path / "shop.prom"):
        reached(lambda: metric(file, HEALTHY) == 1)
        reports.clear()
        reached(lambda: metric(file, NOT_KNOWN) == 1)
        assert metric(file, HEALTHY) == 0
        reached(lambda: "not known: IndexError" in caplog.text)
        time.sleep(0.1)
    assert caplog.text.count("not known") == 1


def test_look_that_hangs_leaves_no_good_health_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake that does not answer: the file stayed as it was, and so did what a collector had."""
    monkeypatch.setattr(prometheus, "WRITE_EVERY_S", 0.01)
    monkeypatch.setattr(gauges, "REPORT_EVERY_S", 0.0)
    monkeypatch.setattr(gauges, "_OVERDUE_S", 0.2)
    answers, reader = threading.Event(), InMemoryMetricReader()
    answers.set()

    def look() -> CaptureReport:
        assert answers.wait(60)
        return CaptureReport("shop", datetime.now(UTC), tables=(ORDERS,))

    def pushed(health: str) -> bool:
        labels = frozenset({("capture", "shop"), ("health", health)})
        return pushed_by(reader)["cdc_assets_health", labels] == 1

    metrics, file = CaptureMetrics("shop", look), tmp_path / "shop.prom"
    with prometheus.Textfile(metrics, file), Telemetry(CaptureMetrics("shop"), look, reader):
        reached(lambda: metric(file, HEALTHY) == 1 and pushed("healthy"))
        answers.clear()
        reached(lambda: metric(file, NOT_KNOWN) == 1 and pushed("not known"))
        assert metric(file, HEALTHY) == 0
        assert metric(file, 'table_streaming{capture="shop"') == 1, "of what was seen last"
        answers.set()
        reached(lambda: metric(file, HEALTHY) == 1 and pushed("healthy"))


@pytest.mark.parametrize("is_served", [True, False])
def test_the_end_does_not_wait_for_a_look_that_hangs(is_served: bool) -> None:
    """A run that is ended has ten seconds. What is pushed last says so."""
    begun, answers, reader = threading.Event(), threading.Event(), InMemoryMetricReader()

    def look() -> CaptureReport:
        begun.set()
        assert answers.wait(120)
        return CaptureReport("shop", datetime.now(UTC), tables=(ORDERS,))

    metrics = CaptureMetrics("shop", look if is_served else None)
    with Telemetry(metrics, None if is_served else look, reader):
        threading.Thread(target=reader.get_metrics_data, daemon=True).start()
        assert begun.wait(60)
        ended = time.monotonic()
    assert time.monotonic() - ended < 10
    answers.set()


def test_look_from_before_a_freeze_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has found is of an hour ago."""
    made: list[int] = []

    def look() -> CaptureReport:
        made.append(1)
        if len(made) == 1:
            metrics._asking.since -= timedelta(hours=1)
            return CaptureReport("shop", datetime.now(UTC), tables=(ORDERS,))
        return CaptureReport("shop", datetime.now(UTC), troubles=(Trouble("SalesDb", "It is away."),), tables=(ORDERS,))

    metrics = gauges.ReportGauges("shop", look)
    (health,) = [family for family in metrics.collect() if family.name == "cdc_assets_health"]
    assert [sample.labels["health"] for sample in health.samples if sample.value] == ["in trouble"]


def test_look_that_is_late_is_shown_to_the_next_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute later, as scrapes are: it was thrown away, and made anew for ever."""
    monkeypatch.setattr(gauges, "_OVERDUE_S", 0.05)
    answers, later_s = threading.Event(), [0.0]
    monkeypatch.setattr(gauges.time, "time", lambda now=time.time: now() + later_s[0])

    def look() -> CaptureReport:
        assert answers.wait(60)
        return CaptureReport("shop", datetime.now(UTC), tables=(ORDERS,))

    metrics = gauges.ReportGauges("shop", look)

    def told() -> list[str]:
        (health,) = [family for family in metrics.collect() if family.name == "cdc_assets_health"]
        return [sample.labels["health"] for sample in health.samples if sample.value]

    assert told() == ["not known"]
    answers.set()
    reached(lambda: metrics._asking._under_way is not None and metrics._asking._under_way.done())
    answers.clear()
    later_s[0] = 60.0
    assert told() == ["healthy"]
    later_s[0] = 600.0
    assert told() == ["not known"]
    answers.set()


def test_rule_of_the_page_fires_on_an_old_look(scraped: tuple[Samples, set[str], str]) -> None:
    """In a file that nobody writes any more everything stays as it was."""
    rule = re.search(r"alert: HealthStale, expr: 'time\(\) - (\w+) > (\d+)'", PAGE.read_text(encoding="utf-8"))
    assert rule is not None
    looked = value(scraped[0], rule.group(1).removeprefix("cdc_assets_"))
    assert abs(time.time() - looked) < 600
    assert int(rule.group(2)) > 2 * prometheus.WRITE_EVERY_S, "not between two writings"


def test_telemetry_has_the_same_numbers(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path / "lake"))
    world.make("orders", 3)
    metrics = CaptureMetrics("shop", lambda: inspect_server(world.config, lambda: quick_source(world.config)).report)
    with world.capture(metrics.note) as capture:
        capture.snapshot()
    reader = InMemoryMetricReader()
    with Telemetry(metrics, reader=reader):
        pushed = pushed_by(reader)
    expected = {
        (family.name, frozenset(sample.labels.items())): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name in (family.name, f"{family.name}_total")
    }
    moving = (
        "cdc_assets_seconds_behind_source",
        "cdc_assets_lag_seconds",
        "cdc_assets_retention_headroom_seconds",
        "cdc_assets_last_look_timestamp_seconds",
    )
    assert {name: number for name, number in pushed.items() if name[0] not in moving} == {
        name: number for name, number in expected.items() if name[0] not in moving
    }
    assert pushed["cdc_assets_health", frozenset({("capture", "shop"), ("health", "healthy")})] == 1
    assert {name for name, _ in pushed} >= {"cdc_assets_lag_seconds", "cdc_assets_events_seen"}


@pytest.mark.parametrize(("error", "last"), [(None, "healthy"), (ValueError("lost"), "not known")])
def test_a_run_that_fails_takes_its_health_back(error: Exception | None, last: str) -> None:
    """What it pushed last stands in a collector until the next run pushes."""
    report = CaptureReport("shop", datetime.now(UTC))
    reader, told = InMemoryMetricReader(), list[set[str]]()

    def look(*_: object, **__: object) -> None:
        pushed = pushed_by(reader).items()
        told.append({dict(labels)["health"] for (name, labels), on in pushed if name == "cdc_assets_health" and on})

    with patch.object(CaptureReport, "health", "healthy"), patch.object(reader, "shutdown", look):
        telemetry = Telemetry(CaptureMetrics("shop"), lambda: report, reader)
        look()
        telemetry.__exit__(error and type(error), error, None)
    assert told == [{"healthy"}, {last}]


def pushed_by(reader: InMemoryMetricReader) -> dict[tuple[str, frozenset[tuple[str, Any]]], float]:
    found = reader.get_metrics_data()
    assert found is not None
    return {
        (metric.name, frozenset((point.attributes or {}).items())): point.value
        for of_resource in found.resource_metrics
        for scope in of_resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def test_a_run_pushes_to_a_collector_and_goes_on_without_one(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    world = World(server, str(tmp_path / "lake"), metrics__otlp="true")
    world.make("orders", 3)
    run = CaptureRun([], snapshot_only=True, follow=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        Thread(target=collector.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
        with exported(world.config, lambda: world.config) as run.note:
            run.attempt(world.config, LocalRunner(2))
        collector.shutdown()
    path, body = received[-1]
    assert path == "/v1/metrics"
    if body[:2] == b"\x1f\x8b":
        body = gzip.decompress(body)
    request = ExportMetricsServiceRequest.FromString(body)
    names = {metric.name for metric in request.resource_metrics[0].scope_metrics[0].metrics}
    assert {"cdc_assets_events_seen", "cdc_assets_health"} <= names
    with exported(world.config, lambda: world.config) as run.note:  # the collector is gone
        run.attempt(world.config, LocalRunner(2))
    assert world.reads(world.tables[0]) == [1, 2, 3]
