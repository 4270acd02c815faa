"""Properties of snapshot, streaming and lake (spec debezium-sqlserver §2, §3)."""

from typing import get_args

from cdc_assets.config import kinds
from cdc_assets.config.property import Property, Status
from cdc_assets.config.settings import GapPolicy, IsolationMode, SnapshotMode

SNAPSHOT = (
    Property(
        "snapshot.mode",
        kinds.choice(*get_args(SnapshotMode), aliases={"schema_only": "no_data", "schema_only_recovery": "recovery"}),
        "initial",
        "When tables are read as a whole. `schema_only` is the older name of `no_data`.",
        "snapshot.mode",
        note="`custom`, a Java class, is not supported.",
    ),
    Property(
        "snapshot.isolation.mode",
        kinds.choice(*get_args(IsolationMode)),
        "read_committed",
        "Isolation level at which slices of tables are read; change tables are always read committed.",
        "snapshot.isolation",
        note="Debezium's default is repeatable_read, whose locks block writers; changes made while a slice is read are streamed "
        "anyway. `exclusive` blocks writers until the last row is read, `snapshot` only while all readers open their "
        "transactions; both read all rows as of one moment. Locks are shared, because tables are read in parallel.",
    ),
    Property(
        "snapshot.locking.mode",
        kinds.choice("exclusive", "none"),
        "exclusive",
        "Whether isolation `repeatable_read`, `exclusive` and `snapshot` take table locks; they are shared locks, which block writers.",
        "snapshot.locking",
        note="`custom` is not supported.",
    ),
    Property(
        "snapshot.lock.timeout.ms",
        kinds.integer(-1, kinds.LONGEST_MS),
        "10000",
        "Time to wait for a lock of a source table, at any isolation level; 0 fails at once, -1 waits as long as a statement "
        "may take. Incremental snapshots retry after it.",
        "snapshot.lock_timeout_ms",
    ),
    Property(
        "snapshot.include.collection.list",
        kinds.REGEXES,
        "",
        "Tables whose rows are read; all if absent.",
        "snapshot.include",
    ),
    Property(
        "snapshot.fetch.size",
        kinds.integer(1, 10_000_000),
        "32768",
        "Rows per batch, or fewer of 16 MB.",
        "snapshot.fetch_size",
        note="Debezium's default is 2000; batches here are columnar.",
    ),
    Property(
        "snapshot.delay.ms",
        kinds.milliseconds(),
        "0",
        "Time to wait before the snapshot.",
        "snapshot.delay_s",
    ),
    Property(
        "snapshot.max.threads",
        kinds.integer(0, 1024),
        "0",
        "Number of parallel readers; 0 uses the number of tasks that Spark runs at once.",
        "snapshot.threads",
        note="Debezium's default is 1.",
    ),
    Property(
        "snapshot.max.threads.multiplier",
        kinds.integer(1, 1024),
        "1",
        "Slices of a table per parallel reader.",
        "snapshot.slices_per_thread",
        note="A slice has 20,000 rows or more, whatever the multiplier.",
    ),
    Property(
        "snapshot.max.threads.multiplier.<table>",
        kinds.integer(1, 1024),
        None,
        "The same for one table, as `schema.table` or `db.schema.table`.",
    ),
    Property(
        "snapshot.tables.order.by.row.count",
        kinds.choice("disabled", "ascending", "descending"),
        "disabled",
        "Read small or large tables first.",
        "snapshot.order_by_row_count",
        note="In Debezium's connector it has no effect unless it reads by chunks.",
    ),
    Property(
        "snapshot.select.statement.overrides",
        kinds.ENTRIES,
        "",
        "Tables, as `schema.table` or `db.schema.table`, that are read by a custom SELECT statement.",
    ),
    Property(
        "snapshot.select.statement.overrides.<table>",
        kinds.FILLED,
        None,
        "The SELECT statement of such a table; it must give the captured columns, as `SELECT *` does.",
    ),
    Property(
        "snapshot.query.mode",
        kinds.choice("select_all"),
        "select_all",
        "How rows of snapshots are selected.",
        note="`custom` is not supported.",
    ),
    Property(
        "snapshot.partitions",
        kinds.integer(1, 1000),
        "8",
        "Key-range partitions of a table's snapshot asset; fixed once the asset exists.",
        "snapshot.partitions",
        note="Ours.",
    ),
)

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
        note="Ours.",
    ),
    Property(
        "stream.idle.timeout.ms",
        kinds.milliseconds(),
        "10000",
        "Time without a change after which a run ends; 0 never.",
        "streaming.idle_timeout_s",
        note="Ours.",
    ),
    Property(
        "stream.max.duration.ms",
        kinds.milliseconds(),
        "600000",
        "Time after which a run ends at the next window border; 0 never.",
        "streaming.max_duration_s",
        note="Ours.",
    ),
    Property(
        "sensor.wait.ms",
        kinds.milliseconds(high=20_000),
        "4000",
        "Time for which a tick of the sensor that finds nothing waits for a change; Dagster evaluates sensors every 5 s. 0: not.",
        "streaming.sensor_wait_s",
        note="Ours.",
    ),
    Property(
        "gap.policy",
        kinds.choice(*get_args(GapPolicy)),
        "fail",
        "Reaction for a table whose changes were cleaned up before they were read.",
        "streaming.gap_policy",
        note="Ours.",
    ),
)

LAKE = (
    Property(
        "lake.path",
        kinds.FILLED,
        "lake",
        "Directory or object-store URL that holds one Delta table per topic.",
        "lake.path",
        note="Ours.",
    ),
    Property(
        "lake.storage.option.<option>",
        kinds.TEXT,
        None,
        "Option of the object store's client, such as `AWS_REGION`.",
        secret=True,
        note="Ours.",
    ),
    Property(
        "lake.compact.after.files",
        kinds.integer(0),
        "200",
        "Number of small files at which a table is compacted; 0 never.",
        "lake.compact_after_files",
        note="Ours.",
    ),
    Property(
        "lake.target.file.bytes",
        kinds.integer(1024 * 1024, 1024**4),
        str(128 * 1024 * 1024),
        "Target file size of compaction.",
        "lake.target_file_bytes",
        note="Ours.",
    ),
    Property(
        "lake.retention.hours",
        kinds.integer(1, 1_000_000),
        "2",
        "Age at which unreferenced files may be removed; readers of older versions, and writers that take longer, "
        "would miss them. Each checkpoint of a Delta log lists the files that wait for removal, so commits cost more with more hours.",
        "lake.retention_hours",
        note="Ours.",
    ),
    Property(
        "lake.log.commits",
        kinds.integer(100, 100_000_000),
        "200",
        "Number of newest commits that stay in a table's Delta log; readers that follow the log commit by commit, such as a "
        "stream over the table, must keep up with them.",
        "lake.log_commits",
        note="Ours.",
    ),
    Property(
        "lake.sample.rows",
        kinds.integer(0, 20),
        "5",
        "Rows of a table's newest file that each materialization of its assets shows, and so Dagster's storage keeps; 0 for none. "
        "Columns that are masked, hashed or truncated are shown as masked.",
        "lake.sample_rows",
        note="Ours.",
    ),
    Property(
        "lake.topic.retention.hours",
        kinds.integer(0, 1_000_000),
        "0",
        "Age of changes that are dropped from topics, once their mirror and the publisher to Kafka have them; 0 keeps all. Topics "
        "without a mirror keep theirs. Whoever asks for what was dropped gets an error.",
        "lake.topic_hours",
        note="Ours.",
    ),
    Property(
        "lake.topic.cleanup.policy",
        kinds.choice("delete", "compact"),
        "delete",
        "Which changes of that age are dropped: all, or (compact) those that later ones of the same key replace, so that a topic "
        "always makes its table's rows.",
        "lake.topic_policy",
        note="Ours; the words of Kafka.",
    ),
    Property(
        "lake.topic.retention.unmirrored",
        kinds.BOOLEAN,
        "false",
        "Drop them also from topics without a mirror: then they are nowhere in the lake.",
        "lake.topic_unmirrored",
        note="Ours.",
    ),
)

MIRROR = (
    Property(
        "mirror.enabled",
        kinds.BOOLEAN,
        "false",
        "Keep for each captured table its current rows and their history as tables in natural types, next to the topic.",
        "mirror.enabled",
        note="Ours.",
    ),
    Property(
        "mirror.table.include.list",
        kinds.REGEXES,
        "",
        "Tables with a mirror, as `schema.table` or `database.schema.table`; all if empty.",
        "mirror.include",
        note="Ours.",
    ),
    Property(
        "mirror.interval.ms",
        kinds.milliseconds(),
        "30000",
        "Time from one step of the mirrors to the next while a loop runs; at its end they follow anyway.",
        "mirror.interval_s",
        note="Ours.",
    ),
    Property(
        "mirror.reconcile.ranges",
        kinds.integer(0, 1_000_000),
        "0",
        "Number of key ranges of each table that a run of the job `<capture>_reconcile` compares with the server, after those "
        "that it compared last; 0 compares all.",
        "mirror.reconcile_ranges",
        note="Ours.",
    ),
    Property(
        "mirror.reconcile.settle.ms",
        kinds.milliseconds(),
        "15000",
        "Time that the capture job has for a change before it counts as one that is not in the log, on a database in which "
        "nothing else is committed. A job that polls less often than every 5 seconds needs more.",
        "mirror.settle_s",
        note="Ours.",
    ),
)

CONFIGURED_SNAPSHOT = tuple(
    Property(
        f"snapshot.mode.configuration.based.{part}",
        kinds.BOOLEAN,
        "false",
        f"With `snapshot.mode=configuration_based`: {doc}.",
        f"snapshot.{field}",
    )
    for part, field, doc in (
        ("snapshot.data", "data", "read rows at each start"),
        ("snapshot.schema", "schema", "record structures at each start"),
        ("start.stream", "start_stream", "stream afterwards"),
        ("snapshot.on.schema.error", "on_schema_error", "record structures again when the schema history is lost"),
        (
            "snapshot.on.data.error",
            "on_data_error",
            "read rows again when changes after the position can no longer be read",
        ),
    )
)
