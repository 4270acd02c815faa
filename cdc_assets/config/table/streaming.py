"""Properties of streaming (spec debezium-sqlserver §3)."""

from typing import get_args

from cdc_assets.config import kinds
from cdc_assets.config.property import Property, Status
from cdc_assets.config.settings import GapPolicy

STREAMING = (
    Property(
        "poll.interval.ms",
        kinds.milliseconds(),
        "500",
        "Time to wait when there are no new changes.",
        "streaming.poll_interval_s",
    ),
    Property(
        "max.iteration.transactions",
        kinds.integer(0),
        "100000",
        "Maximum transactions per window; 0 sets no limit.",
        "streaming.max_iteration_transactions",
        note="Debezium's default is 500; a window here is read in parallel slices and streamed, so memory does not grow with it.",
    ),
    Property(
        "data.query.mode",
        kinds.choice("direct", "function"),
        "direct",
        "Read change tables directly or through the change functions.",
        "streaming.query_mode",
    ),
    Property(
        "query.fetch.size",
        kinds.integer(1, 10_000_000),
        "32768",
        "Rows per batch, or fewer of 16 MB.",
        "streaming.fetch_size",
        note="Debezium's default is 10000; batches here are columnar.",
    ),
    Property(
        "streaming.delay.ms",
        kinds.milliseconds(),
        "0",
        "Time to wait between snapshot and streaming.",
        "streaming.delay_s",
    ),
    Property(
        "event.processing.failure.handling.mode",
        kinds.choice("fail"),
        "fail",
        "Reaction when a row cannot be converted to an event.",
        note="`warn` and `skip` are refused, because no single event could be skipped here. A value that does not "
        "fit its type is handled by `event.converting.failure.handling.mode`, whose `warn` and `skip` keep the event with "
        "a null in its place; rows whose structure changed while they were read are read again in the right one. What remains "
        "is a column whose type differs from the one the server reports, or an update without its second row: then all later "
        "changes are in doubt. The table stops at its position, with the reason, and loses nothing; the others continue.",
    ),
    Property(
        "retriable.restart.connector.wait.ms",
        kinds.milliseconds(),
        "10000",
        "Time to wait before a retry.",
        "streaming.retry_wait_s",
    ),
    Property(
        "errors.max.retries",
        kinds.integer(-1),
        "-1",
        "Maximum consecutive retries; -1 sets no limit.",
        "streaming.max_retries",
    ),
    Property(
        "database.sqlserver.agent.status.query",
        kinds.TEXT,
        "",
        "T-SQL that returns 1 if the Agent runs; `#db` stands for the database. Default: a query of sys.dm_server_services.",
        "streaming.agent_status_query",
    ),
    Property(
        "internal.log.position.check.enable",
        kinds.BOOLEAN,
        "true",
        "Compare the position with the retention before streaming.",
        status=Status.IGNORED,
        reason="positions are always compared with the retention",
    ),
    Property(
        "rows.per.window",
        kinds.integer(0),
        "0",
        "Change rows at which a window ends, after a whole transaction; 0 means 500,000 for each task that Spark runs at "
        "once, but at least 4,000,000.",
        "streaming.window_rows",
        note="Specific to cdc-assets. It limits the work that a failure repeats; databases that are read together share it.",
    ),
    Property(
        "slices.per.window",
        kinds.integer(0, 100_000),
        "0",
        "Number of parts of a window; 0 uses the number of tasks that Spark runs at once, or fewer parts of at least 10,000 rows.",
        "streaming.slices",
        note="Only in cdc-assets.",
    ),
    Property(
        "stream.idle.timeout.ms",
        kinds.milliseconds(),
        "10000",
        "Time without a change after which a run ends; 0 never.",
        "streaming.idle_timeout_s",
        note="Only in cdc-assets.",
    ),
    Property(
        "stream.max.duration.ms",
        kinds.milliseconds(),
        "43200000",
        "Time after which a run ends at the next window border; 0 never.",
        "streaming.max_duration_s",
        note="Only in cdc-assets.",
    ),
    Property(
        "sensor.wait.ms",
        kinds.milliseconds(high=20_000),
        "4000",
        "Time for which a tick of the sensor that finds nothing waits for a change; Dagster evaluates sensors every 5 s. 0: not.",
        "streaming.sensor_wait_s",
        note="Only in cdc-assets.",
    ),
    Property(
        "gap.policy",
        kinds.choice(*get_args(GapPolicy)),
        "fail",
        "Reaction for a table whose changes were cleaned up before they were read.",
        "streaming.gap_policy",
        note="Only in cdc-assets.",
    ),
)
