"""A topic that gets more partitions while it is published."""

import time

import pyarrow as pa
import pytest
from confluent_kafka.admin import NewPartitions

from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.publish.records import RecordSlice
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.publishing import murmur2, read_committed

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def test_keys_choose_among_new_partitions_once_the_client_knows_them(broker: Broker) -> None:
    broker.create("grown", 1)
    ours = KafkaBroker(KafkaSettings(servers=broker.servers, producer=(("metadata.max.age.ms", "500"),)), "grown")
    ours.open()
    keys = pa.array([b"%d" % number for number in range(20)], pa.large_binary())

    def send() -> dict[bytes, int]:
        ours.begin()
        assert ours.send("grown", RecordSlice(1, pa.array(list(map(str, range(20)))), keys, keys)) == (20, "")
        assert not ours.commit("marker")
        ours.newest()
        return {one.key: one.partition for one in read_committed(broker, "grown")}

    assert set(send().values()) == {0}
    broker.admin.create_partitions([NewPartitions("grown", 3)])["grown"].result(60)
    deadline = time.monotonic() + 120
    while set(found := send()) and len({*found.values()}) == 1:
        assert time.monotonic() < deadline
        time.sleep(0.3)
    ours.close()
    newest = {one.key: one.partition for one in read_committed(broker, "grown") if one.partition}
    assert newest == {key: own for key in keys.to_pylist() if (own := (murmur2(key) & 0x7FFFFFFF) % 3)}
