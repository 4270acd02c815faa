"""The property table agrees with the settings, with Debezium's list and with the documentation."""

from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from cdc_assets.config import settings
from cdc_assets.config.document import markdown
from cdc_assets.config.properties import PROPERTIES, property_of
from cdc_assets.config.property import Property, Status

SECTIONS = {
    "connection": settings.ConnectionSettings,
    "filters": settings.FilterSettings,
    "events": settings.EventSettings,
    "text": settings.TextSettings,
    "snapshot": settings.SnapshotSettings,
    "streaming": settings.StreamingSettings,
    "lake": settings.LakeSettings,
    "mirror": settings.MirrorSettings,
    "metrics": settings.MetricsSettings,
    "kafka": settings.KafkaSettings,
    "history": settings.HistorySettings,
    "heartbeat": settings.HeartbeatSettings,
    "notifications": settings.NotificationSettings,
    "signals": settings.SignalSettings,
    "capture": settings.CaptureConfig,
}
TARGETED = [row for row in PROPERTIES if row.target]
BUILT_BY_CODE = {
    "connection.extra",
    "events.column_rules",
    "filters.also",
    "snapshot.overrides",
    "snapshot.multipliers",
    "lake.storage_options",
    "signals.kafka_consumer",
    *(
        f"kafka.{name}"
        for name in "flat paved split key value headers header_schema producer rules creates transforms problem".split()  # noqa: SIM905 - short
    ),
    "capture.ignored",
    *(f"capture.{section}" for section in SECTIONS),
}


@pytest.mark.parametrize("row", TARGETED, ids=lambda row: row.name)
def test_default_is_the_settings_default(row: Property) -> None:
    section, name = row.target.split(".")
    field = next(field for field in fields(SECTIONS[section]) if field.name == name)
    if row.default is None:
        assert field.default in (MISSING, None)
    elif field.default is MISSING:  # the settings are always given it
        assert field.default_factory is MISSING
    else:
        assert row.parse(row.default) == field.default


def test_every_setting_has_a_property() -> None:
    targets = {row.target for row in PROPERTIES} | BUILT_BY_CODE
    for section, kind in SECTIONS.items():
        for field in fields(kind):
            assert f"{section}.{field.name}" in targets


def test_names_are_unique() -> None:
    names = [row.name for row in PROPERTIES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("row", [row for row in PROPERTIES if row.status is not Status.SUPPORTED], ids=lambda r: r.name)
def test_what_is_not_supported_says_why(row: Property) -> None:
    assert row.reason


@pytest.mark.parametrize("row", PROPERTIES, ids=lambda row: row.name)
def test_defaults_are_valid_and_documented(row: Property) -> None:
    if row.default:
        row.parse(row.default)
    assert row.doc.rstrip().endswith(".")


DEBEZIUM = """
name connector.class tasks.max database.hostname database.port database.instance driver.authentication database.user
database.password database.names topic.prefix schema.include.list schema.exclude.list table.include.list
table.exclude.list table.ignore.builtin column.include.list column.exclude.list skip.messages.without.change
column.mask.hash.SHA-256.with.salt.x column.mask.hash.v2.SHA-256.with.salt.x column.mask.with.5.chars
column.truncate.to.5.chars column.propagate.source.type datatype.propagate.source.type message.key.columns
time.precision.mode decimal.handling.mode binary.handling.mode schema.name.adjustment.mode
field.name.adjustment.mode include.schema.changes include.schema.comments tombstones.on.delete
unavailable.value.placeholder converters post.processors snapshot.mode
snapshot.mode.configuration.based.snapshot.data snapshot.mode.configuration.based.snapshot.schema
snapshot.mode.configuration.based.start.stream snapshot.mode.configuration.based.snapshot.on.schema.error
snapshot.mode.configuration.based.snapshot.on.data.error snapshot.mode.custom.name snapshot.locking.mode
snapshot.locking.mode.custom.name snapshot.query.mode snapshot.query.mode.custom.name
snapshot.include.collection.list snapshot.isolation.mode snapshot.lock.timeout.ms snapshot.fetch.size
snapshot.delay.ms snapshot.max.threads snapshot.max.threads.multiplier legacy.snapshot.max.threads
snapshot.tables.order.by.row.count snapshot.select.statement.overrides snapshot.select.statement.overrides.dbo.t
streaming.delay.ms poll.interval.ms poll.dispatch.interval.ms max.queue.size max.batch.size
max.queue.size.in.bytes queue.provider.type query.fetch.size streaming.fetch.size max.iteration.transactions
data.query.mode database.query.timeout.ms database.sqlserver.agent.status.query connection.validation.timeout.ms
executor.shutdown.timeout.ms event.processing.failure.handling.mode event.converting.failure.handling.mode
retriable.restart.connector.wait.ms errors.max.retries heartbeat.interval.ms heartbeat.action.query
topic.heartbeat.prefix topic.heartbeat.name topic.transaction topic.delimiter topic.cache.size
topic.naming.strategy provide.transaction.metadata transaction.metadata.factory skipped.operations
signal.data.collection signal.enabled.channels signal.poll.interval.ms signal.kafka.topic
signal.kafka.bootstrap.servers signal.kafka.groupId signal.kafka.poll.timeout.ms signal.file
signal.emit.failure.max.retries signal.emit.failure.backoff notification.enabled.channels
notification.sink.topic.name incremental.snapshot.chunk.size incremental.snapshot.allow.schema.changes
incremental.snapshot.option.recompile incremental.snapshot.watermarking.strategy guardrail.collections.max
guardrail.collections.limit.action extended.headers.enabled custom.metric.tags statistics.metrics.enabled
custom.sanitize.pattern source.struct.version sourceinfo.struct.maker openlineage.integration.enabled
schema.history.internal schema.history.internal.kafka.topic schema.history.internal.kafka.bootstrap.servers
schema.history.internal.kafka.recovery.poll.interval.ms schema.history.internal.kafka.recovery.attempts
schema.history.internal.kafka.query.timeout.ms schema.history.internal.kafka.create.timeout.ms
schema.history.internal.skip.unparseable.ddl schema.history.internal.store.only.captured.tables.ddl
schema.history.internal.store.only.captured.databases.ddl schema.history.internal.memory.optimization
streaming.lsn.optimization internal.log.position.check.enable internal.capture.instance.include.list
internal.capture.instance.exclude.list change.column.filter.override driver.encrypt producer.acks consumer.group.id
""".split()  # noqa: SIM905 - readable as a list of words
"""Every property of spec debezium-sqlserver §11."""


@pytest.mark.parametrize("name", DEBEZIUM)
def test_debezium_names_are_known(name: str) -> None:
    assert property_of(name).name


def test_documentation_is_current() -> None:
    page = Path(__file__).parents[3] / "docs" / "configuration.md"
    assert page.read_text(encoding="utf-8") == markdown(), (
        "run: cdc-assets properties --markdown > docs/configuration.md"
    )
