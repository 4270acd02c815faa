"""Properties of events, topics and history (spec debezium-sqlserver §4 to §7, §10)."""

from typing import get_args

from cdc_assets.config import kinds
from cdc_assets.config.property import Property, Status
from cdc_assets.config.settings import AdjustmentMode, BinaryMode, DecimalMode, FailureMode, TimeMode

ADJUSTMENT = kinds.choice(*get_args(AdjustmentMode))

COLUMN_RULES = (
    Property(
        "column.mask.hash.v2.<algorithm>.with.salt.<salt>",
        kinds.REGEXES,
        None,
        "Character columns whose value becomes a salted digest of its UTF-8 text.",
        secret=True,
    ),
    Property(
        "column.mask.hash.<algorithm>.with.salt.<salt>",
        kinds.REGEXES,
        None,
        "Character columns whose value becomes a salted digest of its Java serialisation (version 1).",
        secret=True,
    ),
    Property(
        "column.mask.with.<length>.chars",
        kinds.REGEXES,
        None,
        "Character columns whose value is replaced by that many asterisks.",
    ),
    Property(
        "column.truncate.to.<length>.chars",
        kinds.REGEXES,
        None,
        "Character columns that are truncated to that many characters.",
    ),
)
"""In matching order: v2 before v1, whose pattern fits both."""

EVENTS = (
    Property(
        "topic.prefix",
        kinds.TOPIC_NAME,
        None,
        "Logical name of the server: first part of every topic and of its table's directory.",
        "events.topic_prefix",
        required=True,
    ),
    Property(
        "topic.delimiter",
        kinds.TOPIC_PART,
        ".",
        "Separator of the parts of a topic name. It cannot change once tables are captured.",
        "events.topic_delimiter",
    ),
    Property(
        "topic.transaction",
        kinds.TOPIC_PART,
        "transaction",
        "Last part of the transaction topic.",
        "events.transaction_topic",
    ),
    Property(
        "topic.sanitize.pattern",
        kinds.REGEX,
        "",
        "Regular expression of characters in topic names that are replaced by `_`; `[^A-Za-z0-9._-]` if absent. "
        r"`[^\w.-]` keeps letters of every script.",
        "events.sanitize_pattern",
        note="Only in cdc-assets.",
    ),
    Property(
        "message.key.columns",
        kinds.MESSAGE_KEYS,
        "",
        "Columns that form a table's key. Columns are regular expressions, too, and all entries that match a table count; a table "
        "without such a column keeps its own key.",
        "events.message_key_columns",
    ),
    Property(
        "time.precision.mode",
        kinds.choice(*get_args(TimeMode)),
        "adaptive",
        "How dates and times are represented. Nanoseconds (`datetime2(7)` if adaptive) cover 1677-09-21 to 2262-04-11: for "
        "9999-12-31 `event.converting.failure.handling.mode` applies; in a key such a value stops the table. `microseconds`, "
        "`isostring` and `structured` cover all dates. Where a mode keeps fewer digits than a key column has (`connect` 3, "
        "`microseconds` 6, also `adaptive_time_microseconds` of a `time`), rows may share a key: such a table has no mirror and is "
        "not compacted by key. `isostring` and `structured` are exact for every column.",
        "events.time_mode",
    ),
    Property(
        "decimal.handling.mode",
        kinds.choice(*get_args(DecimalMode)),
        "precise",
        "How decimal and money values are represented. `double` holds 15 digits: a table whose key has more has no mirror and is "
        "not compacted by key.",
        "events.decimal_mode",
    ),
    Property(
        "binary.handling.mode",
        kinds.choice(*get_args(BinaryMode)),
        "bytes",
        "How binary values are represented.",
        "events.binary_mode",
    ),
    Property(
        "schema.name.adjustment.mode",
        ADJUSTMENT,
        "none",
        "How schema names are made valid.",
        "events.schema_name_adjustment",
    ),
    Property(
        "field.name.adjustment.mode",
        ADJUSTMENT,
        "none",
        "How field names are made valid.",
        "events.field_name_adjustment",
    ),
    Property(
        "tombstones.on.delete",
        kinds.BOOLEAN,
        "true",
        "Write an event without value (tombstone) after each delete.",
        "events.tombstones_on_delete",
    ),
    Property(
        "unavailable.value.placeholder",
        kinds.PLACEHOLDER,
        "__debezium_unavailable_value",
        "Placeholder for a value that the log does not contain.",
        "events.unavailable_value",
    ),
    Property(
        "skipped.operations",
        kinds.OPERATIONS,
        "t",
        "Operations for which no event is written: c create, u update, d delete, t truncate, or none.",
        "events.skipped_operations",
    ),
    Property(
        "skip.messages.without.change",
        kinds.BOOLEAN,
        "false",
        "Skip updates that change no column of the value.",
        "events.skip_unchanged",
    ),
    Property(
        "column.propagate.source.type",
        kinds.REGEXES,
        "",
        "Columns whose source type is added to the schema parameters.",
        "events.propagate_columns",
    ),
    Property(
        "datatype.propagate.source.type",
        kinds.REGEXES,
        "",
        "The same, by `db.schema.table.TYPE` or `schema.table.TYPE`.",
        "events.propagate_types",
    ),
    Property(
        "provide.transaction.metadata",
        kinds.BOOLEAN,
        "false",
        "Write BEGIN and END events of transactions, and add to each event its order within the transaction. END counts the events "
        "that have a `transaction`: those of a table that catches up with the others, because it was altered, enabled again or "
        "failed while they were read, have none.",
        "events.transaction_metadata",
    ),
    Property(
        "extended.headers.enabled",
        kinds.BOOLEAN,
        "true",
        "Add the context headers to data events.",
        "events.extended_headers",
    ),
    Property(
        "event.converting.failure.handling.mode",
        kinds.choice(*get_args(FailureMode)),
        "warn",
        "Reaction to a value that does not fit its event type: the table fails, or null is written, with or without a warning "
        "in the log of the Spark task. A value of a key always fails the table: with null in its place different rows would "
        "have one key.",
        "events.conversion_failure",
    ),
    Property(
        "event.version",
        kinds.choice("3", "2.3"),
        "3",
        "Debezium release whose envelope is written: 3.6.3, or 2.3.4 without microseconds, nanoseconds and context headers. "
        "Choose it before the first run, because it changes the structure of every topic.",
        "events.event_version",
        note="Only in cdc-assets.",
    ),
    *COLUMN_RULES,
)

HISTORY = (
    Property(
        "include.schema.changes",
        kinds.BOOLEAN,
        "true",
        "Publish schema changes on the topic prefix.",
        "history.publish",
    ),
    Property(
        "schema.history.internal.store.only.captured.tables.ddl",
        kinds.BOOLEAN,
        "false",
        "Record the structure of captured tables only.",
        "history.only_captured_tables",
    ),
    Property(
        "schema.history.internal.store.only.captured.databases.ddl",
        kinds.BOOLEAN,
        "false",
        "Record the structure of captured databases only.",
        status=Status.IGNORED,
        reason="only configured databases are ever read",
    ),
)

SIGNS = (
    Property(
        "heartbeat.interval.ms",
        kinds.milliseconds(),
        "0",
        "Time between heartbeats; 0 sends none.",
        "heartbeat.interval_s",
    ),
    Property(
        "topic.heartbeat.prefix",
        kinds.TOPIC_PART,
        "__debezium-heartbeat",
        "First part of the heartbeat topic.",
        "heartbeat.topic_prefix",
    ),
    Property(
        "topic.heartbeat.name",
        kinds.OPTIONAL_TOPIC,
        "",
        "Complete name of the heartbeat topic.",
        "heartbeat.topic_name",
    ),
    Property(
        "heartbeat.action.query",
        kinds.TEXT,
        "",
        "T-SQL run with each heartbeat.",
        status=Status.REFUSED,
        reason="the capture writes nothing to the source yet",
    ),
    Property(
        "notification.enabled.channels",
        kinds.ENTRIES,
        "",
        "Channels of notifications: `sink`, `log`.",
        "notifications.channels",
    ),
    Property(
        "notification.sink.topic.name",
        kinds.OPTIONAL_TOPIC,
        "",
        "Topic of the `sink` channel.",
        "notifications.sink_topic",
    ),
)
