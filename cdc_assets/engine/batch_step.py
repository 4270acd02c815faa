"""A batch of a connector as a step: its events are received once, and one commit a table follows (`lake.step`).

The schema history is committed first, so no table has events whose structure the history lacks.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cdc_assets.engine.ledger import Batch
from cdc_assets.lake.step import Events
from cdc_assets.lake.topics import TopicTables


@dataclass(frozen=True)
class BatchStep:
    """A batch whose files are written, or recorded by an earlier run.

    Args:
        history: directory of the connector's schema history.
        is_recorded: whether the record has it.
        keep: records it, with the offsets behind it.
        end: records that it is complete, and tells it.
    """

    tables: TopicTables
    batch: Batch
    history: str
    is_recorded: bool
    keep: Callable[[], None]
    end: Callable[[Batch], None]

    @property
    def number(self) -> int:
        """Number of its commits."""
        return self.batch.batch_id

    def found(self) -> Batch | None:
        """The batch that is recorded."""
        return self.batch if self.is_recorded else None

    def write(self) -> Batch:
        """It is written."""
        return self.batch

    def changes(self, written: Batch) -> list[list[Events]]:
        """One commit a table; that of the schema history is first."""
        about = {"batch_id": str(written.batch_id)}
        commits = [Events(self.tables, directory, files, about) for directory, files in written.files.items()]
        first = [commit for commit in commits if commit.directory == self.history]
        return [first, [commit for commit in commits if commit not in first]]

    def record(self, written: Batch) -> None:
        """Record the files with the offsets: the events are not received again."""
        del written
        self.keep()

    def complete(self, written: Batch) -> None:
        """The next batch may follow."""
        self.end(written)
