"""Dagster's runs export what they commit: into a file, and by OpenTelemetry with the capture's health."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult

from cdc_assets.metrics import otlp
from cdc_assets_tests.shop import Shop

PUSHED: dict[str, int] = {}
"""Number of points by metric, of all exports."""


class Kept(MetricExporter):
    """Keeps what is exported."""

    def export(self, metrics_data: Any, timeout_millis: float = 0, **kwargs: Any) -> MetricExportResult:
        for found in metrics_data.resource_metrics:
            for metric in (metric for scope in found.scope_metrics for metric in scope.metrics):
                PUSHED[metric.name] = PUSHED.get(metric.name, 0) + len(metric.data.data_points)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **kwargs: Any) -> None:
        pass


@pytest.mark.long
def test_runs_write_a_file_and_push(
    shop: Shop, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "OTLPMetricExporter", Kept)
    file = tmp_path / "shop.prom"
    shop.write({"metrics.textfile": str(file), "metrics.otlp": "true"})
    assert shop.snapshot(instance).success
    assert 'operation="read",table="dbo.customers"' in file.read_text()
    assert "cdc_assets_health" not in file.read_text(), "nobody would correct it behind the run"
    assert PUSHED["cdc_assets_events_seen"] > 0
    shop.add_customers(1)
    assert shop.changes(instance).success
    assert 'operation="create",table="dbo.customers"' in file.read_text()
    assert PUSHED["cdc_assets_health"] >= 3, "one for each health"
