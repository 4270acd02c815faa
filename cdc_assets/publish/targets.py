"""Where records go: topics in Kafka, each made before its first record.

Several topics of the lake may go into one topic in Kafka, by a transform. If that is refused, all that have ever sent to it are.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from cdc_assets.publish.cursor import TopicCursor
from cdc_assets.publish.ports import Broker
from cdc_assets.publish.records import RecordSlice


class Targets:
    """Topics of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._prepared = set[str]()
        self._denied = dict[str, str]()
        """Why topics cannot be written, by name."""
        self._senders = defaultdict[str, set[str]](set)

    def forget(self) -> None:
        """Create topics, or query their limits, again: the broker was reopened."""
        self._prepared.clear()
        self._denied.clear()

    def prepare(self, cursors: Sequence[TopicCursor]) -> None:
        """Make the topics of the next records, as many as possible at once."""
        heads = [(cursor.head, cursor.name) for cursor in cursors if cursor.head is not None]
        self._make(dict.fromkeys(head.topic or name for head, name in heads if not head.is_left_out))

    def send(self, name: str, records: RecordSlice) -> tuple[int, str]:
        """Send records where they are to go.

        Args:
            name: their topic in the lake.

        Returns:
            How many were taken, and why the next one never will be.
        """
        if records.problem or records.is_left_out:
            return (0, records.problem) if records.problem else (len(records), "")
        topic = records.topic or name
        self._senders[topic].add(name)
        self._make([topic])
        reason = self._denied.get(topic)
        return (0, reason) if reason else self._broker.send(topic, records)

    def senders(self, topic: str) -> Sequence[str]:
        """Topics of the lake that have sent records to a topic."""
        return sorted(self._senders.get(topic, ()))

    def _make(self, topics: Iterable[str]) -> None:
        new = [topic for topic in topics if topic not in self._prepared]
        if new:
            self._denied |= self._broker.prepare(new)
            self._prepared.update(new)
