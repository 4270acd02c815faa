"""Deletes and their tombstones, which belong together.

In Connect both records share one object with their headers, so a tombstone has those that a transform has added to its delete. So a
transform must see both at once, and they must be published in one transaction: a publisher that starts over between them would not
know the delete.

A tombstone's position is that of its delete with the suffix `t`, and nothing lies between them: both are of one change row. So only
ends of what is read, rendered or committed at once could part them, and these are moved after the tombstone.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.publish.records import Numbers

_SUFFIX = "t"


def event_of(position: str) -> str:
    """What an event has in common with its tombstone."""
    return position.removesuffix(_SUFFIX)


def deletes_of(batch: pa.RecordBatch) -> Numbers:
    """For each row of a topic, the row of the delete that it is the tombstone of; -1 for none."""
    positions, values = batch.column("position"), batch.column("value")
    found = np.full(len(batch), -1)
    if not values.null_count:
        return found
    nulls = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
    nulls = nulls[nulls > 0]
    own, before = positions.take(pa.array(nulls)), positions.take(pa.array(nulls - 1))
    same = pc.equal(own, pc.binary_join_element_wise(before, _SUFFIX, "")).to_numpy(zero_copy_only=False)
    found[nulls[same]] = nulls[same] - 1
    return found


def end_of(batch: pa.RecordBatch, stop: int) -> int:
    """Where to end a part of a batch that would end before a row, so that it parts no tombstone from its delete."""
    if not 0 < stop < len(batch):
        return min(stop, len(batch))
    before, next_one = (batch.column("position")[at].as_py() for at in (stop - 1, stop))
    return stop + 1 if next_one == before + _SUFFIX else stop


def undivided(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of a topic, none of which begins with a tombstone: the last row of each waits for what comes next."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        if not len(batch):
            continue
        if held is not None and held.schema.equals(batch.schema):
            both = pa.concat_batches([held, batch.slice(0, 1)])
            if end_of(both, 1) == 2:
                yield both
                held, batch = None, batch.slice(1)
        if held is not None:
            yield held
        held = None
        if len(batch) and not batch.column("position")[-1].as_py().endswith(_SUFFIX):
            batch, held = batch.slice(0, len(batch) - 1), batch.slice(len(batch) - 1)
        if len(batch):
            yield batch
    if held is not None:
        yield held
