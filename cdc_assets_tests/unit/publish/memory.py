"""A broker without a broker."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cdc_assets.publish.run import Record, Run
from cdc_assets_tests.unit.streaming.child import DATABASE

TOPIC = f"shop.{DATABASE}.dbo.t"


@dataclass
class MemoryBroker:
    """Topics in memory, and one open transaction."""

    called: Callable[[object], None] = lambda _: None
    topics: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    marker: str | None = None
    most_bytes: int = 10**9
    _open: list[tuple[str, Record]] = field(default_factory=list)

    def open(self) -> str | None:
        self._open = []
        self.called("open")
        return self.marker

    def newest(self) -> str | None:
        return self.marker

    def prepare(self, topics: Sequence[str]) -> Mapping[str, str]:
        return {}

    def begin(self) -> None:
        self.called("begin")

    def send(self, topic: str, records: Run) -> tuple[int, str]:
        for number, record in enumerate(records):
            self.called("send")
            if topic == TOPIC and len(record.value or b"") > self.most_bytes:
                return number, "it is too large"
            self._open.append((topic, record))
        return len(records), ""

    def commit(self, marker: str) -> Mapping[str, str]:
        self.called("commit")
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
