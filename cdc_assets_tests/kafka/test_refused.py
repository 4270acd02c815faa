"""Records that a real broker or its client refuses, in all the ways in which that is told."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.errors import FencedError
from cdc_assets.publish.records import Headers, RecordSlice
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.publishing import Publishing, read_committed
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
HEADERS: list[Headers | None] = [None, [("context", b"x" * 50)]]


def slice_of(headers: Headers | None, *sizes: int) -> RecordSlice:
    keys, values = (pa.array([b"v" * size for size in sizes], pa.large_binary()) for _ in range(2))
    positions = pa.array([f"{number:04}" for number in range(len(sizes))])
    return RecordSlice(1, positions, keys.cast(pa.large_binary()), values, headers and [headers] * len(sizes))


@pytest.mark.parametrize("headers", HEADERS)
def test_a_limit_that_was_lowered_meanwhile_is_told_by_the_commit(broker: Broker, headers: Headers | None) -> None:
    name = f"lowered{bool(headers)}"
    broker.create(name, 1)
    ours = KafkaBroker(KafkaSettings(servers=broker.servers), name)
    ours.open()
    assert not ours.prepare([name])
    lower = ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[lower])
    broker.admin.incremental_alter_configs([resource])[resource].result(30)
    ours.begin()
    assert ours.send(name, slice_of(headers, 10, 10_000, 10)) == (3, "")
    assert list(ours.commit("marker")) == [name]
    ours.abort()
    assert ours.open() is None, "a marker"
    assert not ours.prepare([name])
    ours.begin()
    taken, reason = ours.send(name, slice_of(headers, 10, 10_000, 10))
    assert (taken, "max.message.bytes" in reason) == (1, True)
    assert not ours.commit("marker")
    assert ours.newest() == "marker"
    ours.close()


def test_a_refusal_that_comes_before_the_commit_is_told_by_it(broker: Broker) -> None:
    """The broker has refused a batch long before the last one is sent; the other topic goes on."""
    ours = KafkaBroker(KafkaSettings(servers=broker.servers), "early")
    ours.open()
    for name in ("early", "other"):
        broker.create(name, 1)
        assert not ours.prepare([name])
    lower = ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "early", incremental_configs=[lower])
    broker.admin.incremental_alter_configs([resource])[resource].result(30)
    ours.begin()
    for _ in range(60):
        assert ours.send("early", slice_of(None, *[5000] * 100)) == (100, "")
    assert list(ours.commit("marker")) == ["early"]
    ours.abort()
    ours.begin()
    assert ours.send("other", slice_of(None, 1)) == (1, "")
    assert not ours.commit("other marker")
    assert ours.open() == "other marker"
    ours.close()


def test_a_producer_that_was_replaced_after_a_refusal_writes_nothing(broker: Broker) -> None:
    older, newer = (KafkaBroker(KafkaSettings(servers=broker.servers), "replaced") for _ in range(2))
    older.open()
    older.begin()
    older.abort()
    assert newer.open() is None
    newer.begin()
    assert not newer.commit("newer")
    with pytest.raises(FencedError):
        older.begin()
    older.close()
    assert newer.open() == "newer"
    newer.close()


def test_a_record_that_fits_its_topic_compressed_is_taken(broker: Broker) -> None:
    broker.create("compressed", max__message__bytes="5000")
    options = (("max.request.size", "10000000"), ("compression.type", "zstd"))
    ours = KafkaBroker(KafkaSettings(servers=broker.servers, producer=options), "compressed")
    ours.open()
    assert not ours.prepare(["compressed"])
    ours.begin()
    taken, reason = ours.send("compressed", slice_of(None, 10, 1_000_000, 10, 3_000_000))
    assert (taken, reason) == (4, "")
    assert not ours.commit("marker")
    ours.close()
    assert len(list(read_committed(broker, "compressed"))) == 4


@pytest.mark.parametrize("headers", HEADERS)
def test_a_record_beyond_the_clients_limit_is_refused_and_those_before_it_are_taken(
    broker: Broker, headers: Headers | None
) -> None:
    name = f"request{bool(headers)}"
    ours = KafkaBroker(KafkaSettings(servers=broker.servers, producer=(("message.max.bytes", "50000"),)), name)
    ours.open()
    assert not ours.prepare([name])
    ours.begin()
    taken, reason = ours.send(name, slice_of(headers, 10, 24_000, 30_000, 10))
    assert (taken, "max.request.size" in reason) == (2, True)
    assert not ours.commit("marker")
    ours.close()


@pytest.mark.parametrize("wrong", [2, -1])
def test_a_partition_that_does_not_exist_is_refused_and_records_before_it_are_taken(broker: Broker, wrong: int) -> None:
    name = f"partition{wrong}"
    broker.create(name, 2)
    ours = KafkaBroker(KafkaSettings(servers=broker.servers), name)
    ours.open()
    ours.begin()
    records = replace(slice_of(None, *[10] * 5), partitions=pa.array([0, 1, None, wrong, 0], pa.int32()))
    taken, reason = ours.send(name, records)
    assert (taken, f"partition {wrong}," in reason, "0 to 1" in reason) == (3, True, True)
    assert not ours.commit("marker")
    ours.close()
    assert len(list(read_committed(broker, name))) == 3


def test_a_time_before_1970_is_refused_as_by_java_and_the_first_moment_is_that_behind_it(broker: Broker) -> None:
    """The client takes 0 for the time of sending."""
    name = "timely"
    broker.create(name, 1)
    ours = KafkaBroker(KafkaSettings(servers=broker.servers), name)
    ours.open()
    ours.begin()
    records = replace(slice_of(None, *[10] * 4), timestamps=pa.array([0, None, -2_208_988_800_000, 0], pa.int64()))
    taken, reason = ours.send(name, records)
    assert (taken, "before 1970" in reason) == (2, True)
    assert not ours.commit("marker")
    ours.close()
    first, second = (sent.timestamp for sent in read_committed(broker, name))
    assert first == 1
    assert second > 1_700_000_000_000


OUTBOX = {
    "transforms": "outbox",
    "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
    "transforms.outbox.predicate": "outbox",
    "transforms.outbox.table.fields.additional.placement": "part:partition",
    "predicates": "outbox",
    "predicates.outbox.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "predicates.outbox.pattern": r".*\.dbo\.outbox",
}


def test_an_outbox_that_chooses_a_partition_that_does_not_exist_stops_alone_until_the_topic_has_it(
    server: StandIn, tmp_path: Path, broker: Broker
) -> None:
    case = Publishing(server, tmp_path, broker, "chosen", **OUTBOX)
    case.execute(
        "CREATE TABLE dbo.outbox (id varchar(36) NOT NULL PRIMARY KEY, aggregatetype varchar(20),"
        " aggregateid varchar(20), type varchar(20), payload nvarchar(200), part int)"
    )
    case.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'outbox', @role_name = NULL")
    routed = "outbox.event.order"
    broker.create(routed, 1)
    case.insert(1)
    case.capture("snapshot")
    for number, partition in enumerate([0, 1, 0]):
        case.execute(f"INSERT INTO dbo.outbox VALUES ('{number}', 'order', '1', 'made', N'{number}', {partition})")
        case.insert(number + 2)
    case.capture()
    for _ in range(2):
        done = case.command()
        assert done.returncode == 1, done.stdout + done.stderr
        assert "is refused: it is for partition 1" in done.stderr.replace("\n", " ")
        assert len(case.sent(routed)) == 1
        assert case.ids() == [1, 2, 3, 4]
    broker.admin.create_partitions([NewPartitions(routed, 2)])[routed].result(30)
    case.publish()
    assert [(one.partition, dict(one.headers or [])["id"]) for one in case.sent(routed)] == [
        (0, b"0"),
        (0, b"2"),
        (1, b"1"),
    ]


def test_a_marker_that_is_refused_is_told_and_nothing_is_written(
    server: StandIn, tmp_path: Path, broker: Broker
) -> None:
    case = Publishing(server, tmp_path, broker, "small", **{"errors.max.retries": "1"})
    broker.create("small.__published", 1, cleanup__policy="compact", max__message__bytes="200")
    case.insert(1)
    case.capture("snapshot")
    done = case.command()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "refuses a marker" in done.stderr.replace("\n", " ")
    larger = ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "small.__published", incremental_configs=[larger])
    broker.admin.incremental_alter_configs([resource])[resource].result(30)
    case.publish()
    assert case.ids() == [1]


def test_librdkafkas_tuning_changes_nothing(broker: Broker) -> None:
    settings = KafkaSettings(servers=broker.servers, producer=(("queue.buffering.max.messages", "10"),))
    ours = KafkaBroker(settings, "room")
    ours.open()
    assert not ours.prepare(["room"])
    ours.begin()
    assert ours.send("room", slice_of(None, *range(1, 200))) == (199, "")
    assert not ours.commit("marker")
    ours.close()


def test_flat_records_which_have_no_headers(server: StandIn, tmp_path: Path, broker: Broker) -> None:
    case = Publishing(server, tmp_path, broker, "flat", **{"value.format": "flinkx"})
    case.insert(1, 2)
    case.capture("snapshot")
    case.publish()
    assert [b'"type":"insert"' in sent.value for sent in case.sent()] == [True, True]
