"""Properties of exported metrics."""

from cdc_assets.config import kinds
from cdc_assets.config.property import Property

METRICS = (
    Property(
        "metrics.port",
        kinds.integer(0, 65535),
        "0",
        "Port on which `cdc-assets capture` serves metrics for Prometheus; 0 serves none. Needs the extra `metrics`.",
        "metrics.port",
        note="Only in cdc-assets.",
    ),
    Property(
        "metrics.address",
        kinds.HOST,
        "127.0.0.1",
        "Address on which the metrics are served; the default is reachable only from the same machine.",
        "metrics.address",
        note="Only in cdc-assets.",
    ),
    Property(
        "metrics.textfile",
        kinds.TEXT,
        "",
        "File ending in `.prom` to which runs, also those of Dagster, write their metrics for the node exporter's textfile "
        "collector; empty for none. Needs the extra `metrics`.",
        "metrics.textfile",
        note="Only in cdc-assets.",
    ),
    Property(
        "metrics.otlp",
        kinds.BOOLEAN,
        "false",
        "Whether runs, also those of Dagster, push their metrics by OpenTelemetry (OTLP over HTTP); where to is said by "
        "`OTEL_EXPORTER_OTLP_ENDPOINT` and the specification's other variables. Needs the extra `otel`.",
        "metrics.otlp",
        note="Only in cdc-assets.",
    ),
)
