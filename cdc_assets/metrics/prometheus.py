"""Metrics in Prometheus's and OpenMetrics' formats: over HTTP, or as a file for the node exporter.

*A file does not outlive its writer unnoticed.* A thread writes it while the process lives, whether anything is committed or not.
It holds the time of the report on which its health rests, and that this is not known if there is none (`gauges`). The last writing, at the end of the process, leaves health out, and so does the first, which
replaces what a process that was killed has left. The time of its report shows how old that health is.
"""

import logging
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from prometheus_client import start_http_server

from cdc_assets.metrics.capture_metrics import CaptureMetrics

WRITE_EVERY_S: Final = 15.0
"""Seconds from one writing of a file of metrics to the next."""
_CLOSE_TIMEOUT_S: Final = 5.0
"""Longest wait for a report that is being made at the end; it writes nothing any more."""

log = logging.getLogger(__name__)


class Textfile:
    """Writes the metrics into a file every few seconds while the block runs, and without health at its beginning and its end.

    Args:
        path: file for the node exporter's textfile collector.
    """

    def __init__(self, metrics: CaptureMetrics, path: Path) -> None:
        self._metrics, self._path = metrics, path
        self._end, self._writing = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._work, name=f"metrics to {path.name}", daemon=True)
        self._newest = ""
        """The newest trouble in the log."""

    def __enter__(self) -> Self:
        self._write(self._metrics.text(with_report=False))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(_CLOSE_TIMEOUT_S)
        self._write(self._metrics.text(with_report=False))

    def _work(self) -> None:
        while not self._end.wait(WRITE_EVERY_S):
            text = self._metrics.text(with_report=True)
            with self._writing:
                if not self._end.is_set():
                    self._write(text)

    def _write(self, text: bytes) -> None:
        """Replace the file at once."""
        draft = self._path.with_name(f".{self._path.name}.draft")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(text)
            draft.replace(self._path)
        except OSError as error:  # metrics must never end a capture
            trouble = f"Metrics cannot be written to {self._path}: {error}"
            if trouble != self._newest:
                log.warning("%s", trouble)
            self._newest = trouble


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
