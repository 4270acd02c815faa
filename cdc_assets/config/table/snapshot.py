"""Properties of snapshots (spec debezium-sqlserver §2)."""

from typing import get_args

from cdc_assets.config import kinds
from cdc_assets.config.property import Property
from cdc_assets.config.settings import IsolationMode, SnapshotMode

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
        kinds.choice(*get_args(IsolationMode), aliases={"read_uncommitted": "read_committed"}),
        "read_committed",
        "Isolation level at which slices of tables are read; change tables are always read committed. `read_uncommitted` is "
        "accepted, and read as `read_committed`.",
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
        "snapshot.keyless.wait.ms",
        kinds.milliseconds(),
        "60000",
        "Longest time for which the snapshot of a table without a key waits for the capture job. Its writers wait as long unless "
        "the database allows SNAPSHOT isolation.",
        "snapshot.keyless_wait_s",
        note="Only in cdc-assets.",
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
        note="Only in cdc-assets.",
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
