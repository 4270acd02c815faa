"""What an IO manager has brought into the lake in its run: the check of what the loop reports.

A number counts once in each table: an append that is repeated, because something after it has failed, finds its number
taken. The loop may report less than what is counted, since a window that failed after some of its commits is reported
by the repeat, without these; it never reports more.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock

from cdc_assets.errors import InvariantError
from cdc_assets.lake.sink import Append


@dataclass(slots=True)
class TopicCount:
    """What came into one topic.

    Args:
        commits: commits of this run.
        rows: rows by envelope operation, also of appends that an earlier run had committed already.
    """

    commits: int = 0
    rows: Counter[str] = field(default_factory=Counter)


class WriteCounts:
    """Counts appends by topic; several threads may do so."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicCount] = defaultdict(TopicCount)
        self._newest: dict[tuple[str, str], int] = {}
        self._lock = Lock()

    def add(self, append: Append, *, landed: bool) -> None:
        """Count an append that is in its table now.

        Args:
            landed: whether it was committed just now.
        """
        writer = append.application, append.directory
        with self._lock:
            count = self._topics[append.topic]
            count.commits += landed
            if append.number > self._newest.get(writer, -1):
                self._newest[writer] = append.number
                for file in append.files:
                    count.rows.update(file.operations or {"event": file.rows})

    def of(self, topic: str) -> TopicCount:
        """What was counted of a topic until now."""
        with self._lock:
            found = self._topics.get(topic, TopicCount())
            return TopicCount(found.commits, Counter(found.rows))

    def check(self, topic: str, reported: Mapping[str, int]) -> None:
        """Compare what is reported of a topic with what was counted.

        Args:
            reported: rows by operation.

        Raises:
            InvariantError: more is reported.
        """
        counted = self.of(topic).rows
        if any(rows > counted[operation] for operation, rows in reported.items()):
            raise InvariantError(
                f"The run reports other rows of {topic} than its IO manager has committed: {dict(reported)}, not "
                f"{dict(counted)}. Next: if your own class overrides `write`, have it call super().write(append); else report this."
            )
