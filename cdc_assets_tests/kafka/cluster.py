"""Several brokers, each of which may be the leader of a partition, of transactions, or of all."""

from pathlib import Path
from typing import Self

from confluent_kafka.admin import NewTopic

from cdc_assets_tests.kafka.broker import Broker

_REPLICAS = 3
_OPTIONS = {
    "transaction.state.log.replication.factor": str(_REPLICAS),
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.replication.factor": str(_REPLICAS),
    "default.replication.factor": str(_REPLICAS),
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "leader.imbalance.check.interval.seconds": "1",  # a broker that is back leads again soon
    "leader.imbalance.per.broker.percentage": "0",
}


class Cluster:
    """Three brokers that last as long as the context; of each partition all have a copy, and two must.

    Args:
        folder: for their data.
    """

    def __init__(self, folder: Path) -> None:
        self.brokers = [Broker(folder / str(number), heap="256m") for number in range(1, _REPLICAS + 1)]
        voters = ",".join(f"{number}@{broker.controller}" for number, broker in enumerate(self.brokers, 1))
        for number, broker in enumerate(self.brokers, 1):
            broker.options |= {**_OPTIONS, "node.id": str(number), "controller.quorum.voters": voters}
        self.servers = ",".join(broker.servers for broker in self.brokers)

    def __enter__(self) -> Self:
        for broker in self.brokers:
            broker.format()
        try:
            for broker in self.brokers:
                broker.launch()
            for broker in self.brokers:
                broker.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers:
            broker.kill()

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic."""
        wanted = [NewTopic(topic, partitions, _REPLICAS)]
        self.brokers[0].admin.create_topics(wanted, operation_timeout=30)[topic].result(60)
