"""A collector of OpenTelemetry, to which a run pushes the capture's metrics."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

PUSH_EVERY_S = 2
SILENT_S = 15.0
"""Seconds without a push after which an alert says that nobody tells the health any more."""


@dataclass
class Collector:
    """What was pushed last."""

    port: int = 0
    health: str = "never told"
    at: float = field(default=float("-inf"))

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a process that pushes to it."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "OTEL_METRIC_EXPORT_INTERVAL": str(PUSH_EVERY_S * 1000),
        }

    def note(self, request: bytes) -> None:
        """Keep the health of a push, if it has one."""
        found = ExportMetricsServiceRequest.FromString(request)
        scopes = (scope for resource in found.resource_metrics for scope in resource.scope_metrics)
        for metric in (metric for scope in scopes for metric in scope.metrics if metric.name == "cdc_assets_health"):
            for point in metric.gauge.data_points:
                if point.as_double or point.as_int:
                    labels = {label.key: label.value.string_value for label in point.attributes}
                    self.health, self.at = labels["health"], time.monotonic()

    def look(self) -> tuple[bool, str]:
        """Whether the capture is healthy as the metrics say, and their words."""
        age = time.monotonic() - self.at
        return self.health == "healthy" and age < SILENT_S, f"health: {self.health}, told {age:.0f} s ago"


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port of loopback."""
    found = Collector()

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.note(self.rfile.read(int(self.headers["Content-Length"])))
            body = ExportMetricsServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - a name of the library
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        found.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
