"""A topic of which a partition takes no records: it is stopped before a transaction has records for it, and the others go on."""

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.adapters.kafka import producer
from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.publish.records import RecordSlice
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.publishing import read_committed

RECORD = RecordSlice(1, pa.array(["0"]), pa.nulls(1, pa.large_binary()), pa.array([b"x"], pa.large_binary()), None)
pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1200)]


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[tuple[Broker, Path]]:
    """A broker with two disks, of which the second has the topic `second` and nothing else."""
    folders = [tmp_path / "broker" / name for name in ("one", "two")]
    broker = Broker(tmp_path / "broker", options={"log.dirs": ",".join(map(str, folders))})
    broker.format()
    broker.options["log.dirs"] = str(folders[0])
    broker.configure()
    try:
        broker.start()
        first = KafkaBroker(KafkaSettings(servers=broker.servers), "disks")
        first.open()
        assert not first.prepare(["first"])
        first.begin()
        assert first.send("first", RECORD) == (1, "")
        assert not first.commit("marker")
        first.close()
        restart(broker, log__dirs=",".join(map(str, folders)))
        broker.create("second")
        broker.write("second", [(0, b"k", b"v")])
        assert (folders[1] / "second-0").is_dir()
        time.sleep(5)  # until its controller knows
        yield broker, folders[1]
    finally:
        broker.kill()


def restart(broker: Broker, **options: str) -> None:
    broker.kill()
    broker.options |= {name.replace("__", "."): text for name, text in options.items()}
    broker.configure()
    broker.start()


def test_a_topic_whose_disk_is_gone_holds_up_no_other(
    disks: tuple[Broker, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "_OFFLINE_S", 0.0)
    broker, disk = disks
    broker.kill()
    disk.rename(disk.with_name("away"))
    disk.touch()
    broker.start()
    ours = KafkaBroker(KafkaSettings(servers=broker.servers), "disks")
    assert ours.open() == "marker"
    assert not ours.prepare(["first", "second"])
    ours.begin()
    assert ours.send("first", RECORD) == (1, "")
    taken, reason = ours.send("second", RECORD)
    assert (taken, "partition 0 has no leader" in reason) == (0, True)
    assert not ours.commit("without second")
    disk.unlink()
    disk.with_name("away").rename(disk)
    restart(broker)
    assert ours.open() == "without second"
    ours.begin()
    assert ours.send("second", RECORD) == (1, "")
    assert not ours.commit("with second")
    ours.close()
    assert [len(list(read_committed(broker, topic))) for topic in ("first", "second")] == [2, 2]
