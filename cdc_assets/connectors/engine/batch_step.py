"""A batch of a connector as a step: its events are received once, and one commit a table follows (`lake.step`).

It is recorded with the offsets after it, so its events are not received again. The schema history is committed first, so no table
has events whose structure the history lacks.
"""

from collections.abc import Callable

from cdc_assets.connectors.engine.ledger import Batch
from cdc_assets.lake.step import Events, Step
from cdc_assets.lake.topics import TopicTables


def batch_step(
    tables: TopicTables,
    batch: Batch,
    history: str,
    record: Callable[[], None],
    complete: Callable[[], None],
    *,
    is_recorded: bool,
) -> Step:
    """A batch whose files are written, or recorded by an earlier run.

    Args:
        history: directory of the connector's schema history.
        record: records it, with the offsets after it.
        complete: records that it is complete, and reports it.
        is_recorded: whether the record has it.
    """
    about = {"batch_id": str(batch.batch_id)}
    commits = [Events(tables, directory, files, about) for directory, files in batch.files.items()]
    first = [commit for commit in commits if commit.directory == history]
    others = [commit for commit in commits if commit.directory != history]
    return Step(batch.batch_id, [first, others], record, complete, is_recorded)
