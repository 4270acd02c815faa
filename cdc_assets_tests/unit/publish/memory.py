"""A broker without a broker."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cdc_assets.publish.feed import Feed
from cdc_assets.publish.records import Record, RecordSlice
from cdc_assets_tests.unit.streaming.child import DATABASE

TOPIC = f"shop.{DATABASE}.dbo.t"


@dataclass
class MemoryBroker:
    """Topics in memory, and one open transaction."""

    called: Callable[[object], None] = lambda _: None
    topics: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    marker: str | None = None
    most_bytes: int = 10**9
    refuses: Callable[[str, Record], str] = lambda _topic, _record: ""
    """Why a record is refused when it is sent."""
    at_commit: dict[str, str] = field(default_factory=dict)
    """Why topics are refused once a transaction with records of them is committed."""
    unwritable: dict[str, str] = field(default_factory=dict)
    _open: list[tuple[str, Record]] = field(default_factory=list)

    def begins_with(self, feed: Feed) -> None:
        """Have a lake that was published to another broker forget that, if this one has nothing yet."""
        if self.marker is None:
            feed.recorded().forget()

    def open(self) -> str | None:
        self._open = []
        self.called("open")
        return self.marker

    def newest(self, *, final: bool = True) -> str | None:
        return self.marker

    def prepare(self, topics: Sequence[str]) -> Mapping[str, str]:
        return {topic: self.unwritable[topic] for topic in topics if topic in self.unwritable}

    def begin(self) -> None:
        self.called("begin")

    def send(self, topic: str, records: RecordSlice) -> tuple[int, str]:
        for number, record in enumerate(records):
            self.called("send")
            if topic == TOPIC and len(record.value or b"") > self.most_bytes:
                return number, "it is too large"
            if reason := self.refuses(topic, record):
                return number, reason
            self._open.append((topic, record))
        return len(records), ""

    def commit(self, marker: str) -> Mapping[str, str]:
        self.called("commit")
        if refused := {topic: self.at_commit[topic] for topic, _ in self._open if topic in self.at_commit}:
            return refused
        for topic, record in self._open:
            self.topics[topic].append(record)
        self._open, self.marker = [], marker
        self.called("committed")
        return {}

    def abort(self) -> None:
        self._open = []

    def close(self) -> None:
        self._open = []

    def held(self) -> dict[str, list[tuple[str, bytes | None, bytes | None]]]:
        """Position, key and value of what is committed."""
        return {
            topic: [(record.position, record.key, record.value) for record in records]
            for topic, records in self.topics.items()
        }
