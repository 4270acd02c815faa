"""A batch of a connector as a step: its events are received once, and one commit a table follows (`lake.step`).

It is recorded with the offsets after it, so its events are not received again. The schema history is committed first, so no table
has events whose structure the history lacks.
"""

from cdc_assets.connectors.engine.ledger import Batch
from cdc_assets.lake.step import Events
from cdc_assets.lake.topics import TopicTables


def batch_commits(tables: TopicTables, batch: Batch, history: str) -> list[list[Events]]:
    """The commits of a batch: the schema history, then all tables.

    Args:
        history: directory of the connector's schema history.
    """
    about = {"batch_id": str(batch.batch_id)}
    commits = [Events(tables, directory, files, about) for directory, files in batch.files.items()]
    first = [commit for commit in commits if commit.directory == history]
    return [first, [commit for commit in commits if commit.directory != history]]
