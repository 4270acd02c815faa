"""Properties of signals and incremental snapshots."""

from cdc_assets.config import kinds
from cdc_assets.config.property import Property

SIGNALS = (
    Property(
        "signal.data.collection",
        kinds.ENTRIES,
        "",
        "Signal table as `database.schema.table`; a comma list names one per database. The table needs change data capture, "
        "three columns, and INSERT for the login. It is captured regardless of the filters.",
        "signals.collections",
    ),
    Property(
        "signal.enabled.channels",
        kinds.ENTRIES,
        "source",
        "Channels of signals: `source` (the signal table), `file`, `kafka` (needs the extra `kafka`). Requests of "
        "the command line and of Dagster are always accepted.",
        "signals.channels",
    ),
    Property(
        "signal.file",
        kinds.FILLED,
        "file-signals.txt",
        "File of channel `file`: one JSON object with type, data and optionally id per line. It is renamed when it is read, and "
        "removed when its signals are recorded.",
        "signals.file",
    ),
    Property(
        "signal.poll.interval.ms",
        kinds.milliseconds(),
        "5000",
        "Interval at which channels other than `source` are polled.",
        "signals.poll_interval_s",
    ),
    Property(
        "signal.kafka.topic",
        kinds.TEXT,
        "",
        "Topic of channel `kafka`; `<topic.prefix>-signal` if absent. The key of a message must be the topic prefix, "
        "its value a JSON object with type, data and optionally id.",
        "signals.kafka_topic",
    ),
    Property(
        "signal.kafka.bootstrap.servers",
        kinds.TEXT,
        "",
        "Brokers of channel `kafka`, as `host:port`, comma separated.",
        "signals.kafka_servers",
    ),
    Property(
        "signal.kafka.groupId",
        kinds.FILLED,
        "kafka-signal",
        "Consumer group whose offset is committed to the broker.",
        "signals.kafka_group",
        note="The manifest records what was handled; the group's offset counts only if the manifest has none.",
    ),
    Property(
        "signal.kafka.poll.timeout.ms",
        kinds.milliseconds(1),
        "100",
        "Maximum wait of one poll for messages.",
        "signals.kafka_timeout_s",
    ),
    Property(
        "signal.consumer.<option>",
        kinds.TEXT,
        None,
        "Further options of the consumer, such as `signal.consumer.security.protocol`.",
        secret=True,
        note="By the names of librdkafka, or of Java's client where it has the option.",
    ),
    Property(
        "incremental.snapshot.chunk.size",
        kinds.integer(1, 1_000_000),
        "1024",
        "Rows per chunk of an incremental snapshot.",
        "signals.chunk_rows",
        note="Up to 1024 chunks share a pair of markers.",
    ),
    Property(
        "incremental.snapshot.option.recompile",
        kinds.BOOLEAN,
        "false",
        "Add OPTION (RECOMPILE) to chunk queries.",
        "signals.recompile",
    ),
    Property(
        "incremental.snapshot.watermarking.strategy",
        kinds.choice("insert_insert", "insert_delete"),
        "insert_insert",
        "Whether the end of a chunk is marked by a second row in the signal table or by the deletion of the first.",
        "signals.watermarking",
    ),
)
