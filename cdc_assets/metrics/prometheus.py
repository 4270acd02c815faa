"""Metrics in Prometheus's and OpenMetrics' formats: over HTTP, or as a file for the node exporter."""

import logging
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from prometheus_client import start_http_server

from cdc_assets.metrics.counted import CaptureMetrics

WRITE_EVERY_S: Final = 15.0
"""Seconds from one writing of a file of metrics to the next."""

log = logging.getLogger(__name__)


class Textfile:
    """Writes the metrics into a file now and then while the block runs, and at its end.

    Args:
        path: file for the node exporter's textfile collector.
    """

    def __init__(self, metrics: CaptureMetrics, path: Path) -> None:
        self._metrics, self._path = metrics, path
        self._written = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write()

    def write_if_due(self) -> None:
        """Write, unless that was done a few seconds ago."""
        if time.monotonic() - self._written >= WRITE_EVERY_S:
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        try:
            self._metrics.write(self._path)
        except OSError as error:  # metrics must never end a capture
            log.warning("Metrics cannot be written to %s: %s", self._path, error)


class MetricsServer:
    """Serves the metrics over HTTP while the block runs.

    Args:
        address: address to bind.
        port: port to bind; 0 takes a free one.

    Raises:
        OSError: the port cannot be bound.
    """

    def __init__(self, metrics: CaptureMetrics, address: str, port: int) -> None:
        self._server, self._thread = start_http_server(port, address, metrics.registry)
        self.port: int = self._server.server_port

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
