"""Rows of topics that several captures of a lake may write: each capture's publisher sends its own.

So they are in Kafka once, as those of several connectors are. The place is that of the own rows only, whose numbers grow; those of another
capture may be written later under smaller numbers.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.config.settings import CaptureConfig

OwnRows = Callable[[pa.RecordBatch], pa.RecordBatch]


def own_rows(kind: str, config: CaptureConfig) -> OwnRows | None:
    """What keeps the rows of a topic that a capture has written; None if no other capture writes there.

    Args:
        kind: short name of the topic (`lake.system_topics`).
    """
    if kind == "notifications":
        return lambda batch: _of(batch, _connector(batch), config.events.topic_prefix)
    if kind == "heartbeat":
        return lambda batch: _of(batch, batch.column("key").field("serverName"), config.events.topic_prefix)
    return None


def _connector(batch: pa.RecordBatch) -> pa.Array:
    """Name of the capture that wrote each notification."""
    return pc.map_lookup(batch.column("value").field("additional_data"), pa.scalar("connector_name"), "first")


def _of(batch: pa.RecordBatch, names: pa.Array, own: str) -> pa.RecordBatch:
    """Rows of one name, or of none."""
    return batch.filter(pc.fill_null(pc.equal(names.cast(pa.string()), own), True))
