"""Topics of a few rows that the driver writes itself: heartbeats, notifications."""

import pyarrow as pa

from cdc_assets.lake.files import TopicWriter
from cdc_assets.lake.topics import TopicTables


def append_rows(tables: TopicTables, topic: str, rows: pa.Table, version: int) -> bool:
    """Append some rows in one commit.

    Args:
        tables: the lake's Delta tables.
        topic: directory name.
        rows: with columns `position` and `window_id`.
        version: of the application transaction; must grow. A version that is there already is not written again.

    Returns:
        False if the version was there.

    Raises:
        LakeError: the lake cannot be written.
        LakeConflictError: other writers won too often.
    """
    with TopicWriter(tables.location, topic, rows.schema, version) as writer:
        writer.write(rows.to_batches())
    return tables.commit(topic, rows.schema, writer.files, version, {"rows": str(rows.num_rows)})
