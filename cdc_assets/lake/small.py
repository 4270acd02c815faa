"""Small topics whose rows the driver writes itself: heartbeats, notifications."""

import pyarrow as pa

from cdc_assets.lake.files import TopicWriter
from cdc_assets.lake.topics import TopicTables


def append_rows(tables: TopicTables, topic: str, rows: pa.Table, version: int) -> bool:
    """Append rows in one commit.

    Args:
        tables: the lake's Delta tables.
        topic: directory name.
        rows: table with columns `position` and `window_id`.
        version: version of the application transaction; must grow. An existing version is not written again.

    Returns:
        False if the version existed already.

    Raises:
        LakeError: the lake cannot be written.
        LakeConflictError: other writers committed first too often.
    """
    with TopicWriter(tables.location, topic, rows.schema, version) as writer:
        writer.write(rows.to_batches())
    return tables.commit(topic, rows.schema, writer.files, version, {"rows": str(rows.num_rows)}, timed=True)
