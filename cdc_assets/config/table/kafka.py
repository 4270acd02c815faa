"""Properties of topics in Kafka, which `cdc-assets publish` writes. The names are Kafka Connect's."""

from cdc_assets.config import kinds
from cdc_assets.config.property import Property

KAFKA = (
    Property(
        "bootstrap.servers",
        kinds.TEXT,
        "",
        "Brokers to which `cdc-assets publish` writes the topics, as `host:port`, comma separated.",
        "kafka.servers",
        note="In Kafka Connect a property of the worker.",
    ),
    Property(
        "kafka.enabled",
        kinds.BOOLEAN,
        "false",
        "Publish in Dagster: in the runs that write topics, and by an asset and a job of their own. Leave it off if "
        "`cdc-assets publish --follow` runs as a service: of two publishers the newer ends the older.",
        "kafka.enabled",
        note="Only in cdc-assets. Needs `bootstrap.servers`.",
    ),
    Property(
        "producer.<option>",
        kinds.TEXT,
        None,
        "Options of the client, such as `producer.security.protocol`; `producer.override.<option>` is the same.",
        secret=True,
        note="By the names of Java's producer or of librdkafka; certificates as PEM. An option that the client does not have is refused.",
    ),
    *(
        row
        for part in ("key", "value")
        for row in (
            Property(
                f"{part}.converter",
                kinds.TEXT,
                None,
                f"Form of {part}s in Kafka: `org.apache.kafka.connect.json.JsonConverter` or "
                "`io.confluent.connect.avro.AvroConverter`.",
                note="Only `publish` refuses others; the lake does not depend on them.",
            ),
            Property(
                f"{part}.converter.schema.registry.url",
                kinds.TEXT,
                None,
                f"Address of the schema registry for {part}s as Avro, or several, comma separated; without a password.",
            ),
            Property(
                f"{part}.converter.<option>",
                kinds.TEXT,
                None,
                f"Further options of the converter of {part}s; of Avro: `basic.auth.user.info`, `auto.register.schemas`, "
                "`ignore.default.for.nullables`. One that the converter does not have is refused by `publish`.",
                secret=True,
            ),
        )
    ),
    Property(
        "header.converter",
        kinds.TEXT,
        None,
        "Form of headers in Kafka: `org.apache.kafka.connect.storage.SimpleHeaderConverter`, which is Connect's default, or the "
        "JSON converter.",
    ),
    Property(
        "header.converter.<option>",
        kinds.TEXT,
        None,
        "Options of that converter: `header.converter.schemas.enable`; others are refused, because keys in headers are JSON in the lake.",
    ),
    Property(
        "topic.creation.<option>",
        kinds.TEXT,
        None,
        "How topics that are missing are made: `topic.creation.default.partitions`, `.replication.factor`, `.cleanup.policy` "
        "and other options of a topic; `topic.creation.groups` with `.include` and `.exclude` for each; "
        "`topic.creation.enable`.",
        note="Without them the broker's defaults hold.",
    ),
    Property(
        "kafka.late.ms",
        kinds.milliseconds(),
        "600000",
        "Time for which events may wait for Kafka before the capture is in trouble; after a minute it is not healthy.",
        "kafka.late_s",
        note="Only in cdc-assets.",
    ),
    Property(
        "kafka.transaction.rows",
        kinds.integer(1, 10_000_000),
        "200000",
        "Events of one Kafka transaction, after which it is committed; after 20 seconds it is in any case.",
        "kafka.transaction_rows",
        note="Only in cdc-assets.",
    ),
    Property(
        "transforms",
        kinds.TEXT,
        "",
        "Chain of single message transforms of what is written to Kafka, by names of their own; the lake is as it is.",
        note="Known are ExtractNewRecordState, ByLogicalTableRouter, RegexRouter, EventRouter and TimezoneConverter, by their full class names.",
    ),
    Property(
        "transforms.<option>",
        kinds.TEXT,
        None,
        "Options of a transform: `transforms.<name>.type` with its class name, its own options, `predicate` and `negate`.",
    ),
    Property("predicates", kinds.TEXT, "", "Predicates of transforms, by names of their own."),
    Property(
        "predicates.<option>",
        kinds.TEXT,
        None,
        "Options of a predicate: `predicates.<name>.type`, which is TopicNameMatches or RecordIsTombstone by its full class name, "
        "and `pattern`.",
    ),
)
