"""Prints the properties that the real connector's own classes define: `python -m …conformance.properties`, one name a line.

The connector's published definition, and every constant of the classes that read its configuration, internal ones
included, and those of Kafka Connect's own definition of a source connector.
"""

import sys
from collections.abc import Iterator
from typing import Any

from cdc_assets_tests.conformance.engine import jars

READERS = (
    "io.debezium.connector.sqlserver.SqlServerConnectorConfig",
    "io.debezium.relational.history.SchemaHistory",
    "io.debezium.storage.kafka.history.KafkaSchemaHistory",
    "io.debezium.storage.file.history.FileSchemaHistory",
    "io.debezium.pipeline.signal.channels.FileSignalChannel",
    "io.debezium.pipeline.signal.channels.KafkaSignalChannel",
    "io.debezium.pipeline.notification.channels.SinkNotificationChannel",
    "io.debezium.schema.AbstractTopicNamingStrategy",
    "io.debezium.heartbeat.Heartbeat",
    "io.debezium.heartbeat.DatabaseHeartbeatImpl",
)


def names() -> Iterator[str]:
    """Names as the classes spell them, some of them regular expressions."""
    import jpype

    jpype.startJVM(classpath=jars(), convertStrings=True)
    yield from (
        str(name) for name in jpype.JClass("io.debezium.connector.sqlserver.SqlServerConnector")().config().names()
    )
    field = jpype.JClass("io.debezium.config.Field").class_
    for reader in READERS:
        yield from _constants(jpype.JClass(reader).class_, field)
    connect = jpype.JClass("org.apache.kafka.connect.runtime.SourceConnectorConfig")
    yield from (str(name) for name in connect.configDef().names())


def _constants(reader: Any, field: Any) -> Iterator[str]:
    for constant in reader.getFields():
        if constant.getType().equals(field):
            yield str(constant.get(None).name())


if __name__ == "__main__":
    sys.stdout.write("\n".join(sorted(set(names()))) + "\n")
