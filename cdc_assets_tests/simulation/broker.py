"""A broker in memory: topics, one marker, producers of which the newest fences all others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cdc_assets.errors import ConnectionLostError, FencedError
from cdc_assets.publish.records import Record, RecordSlice
from cdc_assets_tests.simulation.scheduler import Scheduler


@dataclass
class Cluster:
    """What a broker holds, and how it behaves.

    Args:
        refused: topics of which it refuses each record, at `send` or at `commit`.
        lost_answers: so many of the next commits are done and not answered.
        is_away: whether nothing is answered.
        sent_to: topics that were sent something last.
    """

    scheduler: Scheduler
    topics: dict[str, list[Record]] = field(default_factory=dict)
    marker: str | None = None
    epoch: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    lost_answers: int = 0
    is_away: bool = False
    sent_to: set[str] = field(default_factory=set)

    def producer(self) -> "Producer":
        return Producer(self)


class Producer:
    """`publish.ports.Broker` of one process."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._epoch = cluster, 0
        self._open: list[tuple[str, Record]] = []

    def _ask(self, what: str, *, fenced: bool = True) -> None:
        self._cluster.scheduler.pause(f"broker.{what}")
        if self._cluster.is_away:
            raise ConnectionLostError("The broker is away.")
        if fenced and self._epoch != self._cluster.epoch:
            raise FencedError("Another producer has taken over.")

    def open(self) -> str | None:
        self._ask("open", fenced=False)
        self._cluster.epoch += 1
        self._epoch, self._open = self._cluster.epoch, []
        return self._cluster.marker

    def newest(self, *, final: bool = True) -> str | None:
        self._ask("newest", fenced=False)
        return self._cluster.marker

    def prepare(self, topics: Sequence[str]) -> Mapping[str, str]:
        self._ask("prepare")
        return {}

    def begin(self) -> None:
        self._ask("begin")

    def send(self, topic: str, records: RecordSlice) -> tuple[int, str]:
        self._ask("send")
        if self._cluster.refused.get(topic) == "send":
            return 0, "it is refused"
        self._cluster.sent_to = {topic, *(name for name, _ in self._open)}
        self._open += [(record.topic or topic, record) for record in records]
        return len(records), ""

    def commit(self, marker: str) -> Mapping[str, str]:
        self._ask("commit")
        refused = {topic for topic, _ in self._open if self._cluster.refused.get(topic) == "commit"}
        if refused:
            self._open = []  # the transaction is lost
            return dict.fromkeys(refused, "it is refused")
        for topic, record in self._open:
            self._cluster.topics.setdefault(topic, []).append(record)
        self._open, self._cluster.marker = [], marker
        if self._cluster.lost_answers:
            self._cluster.lost_answers -= 1
            raise ConnectionLostError("The answer is lost.")
        return {}

    def abort(self) -> None:
        self._open = []

    def close(self) -> None:
        self._open = []
