"""Settings of metrics."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Where metrics are exported (extra `metrics`).

    Args:
        port: port of `capture`; 0 serves none.
        address: address that the port is bound on.
        textfile: file that runs write them to; empty for none.
        otlp: whether runs push them by OpenTelemetry (extra `otel`).
    """

    port: int = 0
    address: str = "127.0.0.1"
    textfile: str = ""
    otlp: bool = False
