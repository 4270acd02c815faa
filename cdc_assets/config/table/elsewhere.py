"""Properties that have no effect here, with the reason, and those that are not supported yet."""

from cdc_assets.config import kinds
from cdc_assets.config.property import Property, Status
from cdc_assets.config.table.connection import STORE_REASON

_CONNECT = "it configures Kafka Connect; here Dagster starts and schedules the work"
_QUEUE = "there is no queue between reader and writer: rows stream from the server into files"
_KAFKA_HISTORY = "the schema history is a table of the lake"
_METRICS = "metrics are reported as Dagster metadata, not as MBeans"
_MARKERS = "a marker that cannot be written is retried with its round, as set by errors.max.retries"
_PLUGIN = "classes of the JVM cannot be loaded here"


def _ignored(reason: str, *rows: tuple[str, str]) -> tuple[Property, ...]:
    return tuple(Property(name, kinds.TEXT, None, doc, status=Status.IGNORED, reason=reason) for name, doc in rows)


def _refused(reason: str, *rows: tuple[str, str | None, str]) -> tuple[Property, ...]:
    return tuple(
        Property(name, kinds.TEXT, default, doc, status=Status.REFUSED, reason=reason) for name, default, doc in rows
    )


IGNORED = (
    *_ignored(
        _CONNECT,
        ("connector.class", "Implementation class."),
        ("tasks.max", "Upper bound of tasks."),
        ("task.id", "Number of a task."),
        ("config.action.reload", "Reaction to changed external configuration."),
        ("exactly.once.support", "Exactly-once requirement; it always holds here."),
        ("transaction.boundary", "Producer transaction borders."),
        ("errors.tolerance", "Reaction to converter errors."),
        ("errors.log.enable", "Logging of converter errors."),
        ("errors.log.include.messages", "Logging of converter errors."),
        ("errors.retry.delay.max.ms", "Retry of converters."),
        ("errors.retry.timeout", "Retry of converters."),
        ("offset.storage.<option>", "Store of offsets; here each table's last commit holds them."),
        ("offset.storage", "Store of offsets; here each table's last commit holds them."),
        ("offset.flush.interval.ms", "Flushing of offsets."),
        ("offset.flush.timeout.ms", "Flushing of offsets."),
        ("consumer.<option>", "Options of the Kafka consumer."),
        ("executor.shutdown.timeout.ms", "Wait for threads at the end."),
        ("connector.plugin.version", "Version of the connector."),
        ("tasks.max.enforce", "Whether the bound of tasks is enforced."),
        ("offsets.storage.topic", "Topic of the offsets."),
        ("transaction.boundary.interval.ms", "Time between producer transactions."),
    ),
    *_ignored(
        _QUEUE,
        ("max.queue.size", "Capacity of the internal queue."),
        ("max.batch.size", "Records per dispatch."),
        ("max.queue.size.in.bytes", "Capacity of the internal queue."),
        ("queue.provider.type", "Implementation of the internal queue."),
        ("poll.dispatch.interval.ms", "Pause between dispatches to the queue."),
        ("streaming.fetch.size", "Paging of change queries; result sets are streamed here."),
    ),
    *_ignored(
        _KAFKA_HISTORY,
        ("schema.history.internal", "Implementation of the schema history."),
        ("schema.history.internal.kafka.<option>", "Kafka topic of the schema history."),
        ("schema.history.internal.producer.<option>", "Kafka producer of the schema history."),
        ("schema.history.internal.consumer.<option>", "Kafka consumer of the schema history."),
        ("schema.history.internal.file.filename", "File of the schema history."),
        ("schema.history.internal.skip.unparseable.ddl", "Reaction to DDL text; there is none for SQL Server."),
        ("schema.history.internal.memory.optimization", "Memory of the schema history."),
        ("schema.history.internal.<option>", "Options of any other store of the schema history."),
        ("internal.schema.history.internal.ddl.filter", "DDL text that is left out; there is none for SQL Server."),
    ),
    *_ignored(
        _METRICS,
        ("custom.metric.tags", "Tags in MBean names."),
        ("statistics.metrics.enabled", "Quantiles of lag."),
        ("internal.advanced.metrics.enable", "Further metrics."),
    ),
    *_ignored(
        "the behaviour is fixed here",
        ("include.schema.comments", "Comments in schemas; Debezium does not read them from SQL Server."),
        ("legacy.snapshot.max.threads", "One thread per table."),
        ("internal.legacy.snapshot.max.threads", "One thread per table."),
        ("streaming.lsn.optimization", "Where the upper bound comes from."),
        ("internal.streaming.lsn.optimization", "Where the upper bound comes from."),
        ("internal.snapshot.scan.all.columns.force", "Columns that a snapshot reads; the captured ones here."),
        ("internal.custom.retriable.exception", "Errors of Java that are retried."),
        ("memory.management.schemas.class", "Class that holds schemas."),
        ("memory.management.tables.class", "Class that holds structures."),
        ("source.struct.version", "Version of the source block; see event.version."),
        ("topic.cache.size", "Size of a name cache."),
        ("snapshot.locking.mode.custom.name", "Name of a locking plug-in."),
        ("snapshot.query.mode.custom.name", "Name of a query plug-in."),
        ("snapshot.mode.custom.name", "Name of a mode plug-in."),
    ),
    *_ignored(
        _MARKERS,
        ("signal.emit.failure.max.retries", "Retries of a watermark."),
        ("signal.emit.failure.backoff", "Wait before such a retry."),
    ),
    *_ignored(
        "a round during which the table's structure changes is always repeated",
        ("incremental.snapshot.allow.schema.changes", "Schema changes in mid-snapshot."),
    ),
    *_ignored(STORE_REASON, ("database.ssl.<option>", "Stores of keys and certificates of the JVM.")),
    *_ignored("lineage is what Dagster records", ("openlineage.integration.<option>", "Lineage events.")),
)

_RESHAPED = (
    f"{_PLUGIN}; reshape events in an asset that reads the topic, or read current rows from a mirror (mirror.enabled)"
)
_NAMED = "databases are named by database.names"

REFUSED = (
    *_refused(
        f"{_PLUGIN}; time.precision.mode, decimal.handling.mode and binary.handling.mode choose forms of values",
        ("converters", "", "Custom converters."),
    ),
    *_refused(
        _RESHAPED,
        ("post.processors", "", "Chain of post-processors."),
    ),
    *_refused(
        f"{_PLUGIN}; topic.prefix, topic.delimiter and topic.transaction choose names of topics",
        ("topic.naming.strategy", "io.debezium.schema.SchemaTopicNamingStrategy", "Class that names topics."),
    ),
    *_refused(
        _PLUGIN,
        (
            "transaction.metadata.factory",
            "io.debezium.pipeline.txmetadata.DefaultTransactionMetadataFactory",
            "Transaction block class.",
        ),
        (
            "sourceinfo.struct.maker",
            "io.debezium.connector.sqlserver.SqlServerSourceInfoStructMaker",
            "Source block class.",
        ),
    ),
    *_refused(
        _NAMED,
        ("database.dbname", "", "The only database, in releases before 2.0."),
        ("database.include.list", "", "Databases, for other connectors."),
        ("database.exclude.list", "", "Databases to leave out, for other connectors."),
    ),
    *_refused(
        "its name is topic.heartbeat.prefix",
        ("heartbeat.topics.prefix", "__debezium-heartbeat", "Prefix of the heartbeat topic, in older releases."),
    ),
    *_refused(
        "rows of snapshot and stream would differ in structure",
        ("internal.change.column.filter.override", "false", "Columns that the capture instance lacks, in snapshots."),
    ),
)
