"""Rows of topics that all databases of a capture write: each is published after the LSN of its own database (`after`).

*Which database.* A schema change names it, and the position of a BEGIN or END. Of those that earlier versions wrote the END names its tables, and
the BEGIN nothing; both are in one window under one LSN, so the END is the next row. It may be in the next file: a BEGIN at the end of one waits for it.

*Rows of no known database* are published, as those of a database of which no LSN is given.

*A crash* changes nothing: what is left out follows from the row and the marker's LSNs, and has no place of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.core.lsn import LSN_WIDTH, POSITION_WIDTH
from cdc_assets.publish.after import After, after_in

DividedRows = Callable[[Iterator[pa.RecordBatch], After], Iterator[pa.RecordBatch]]


def divided_rows(kind: str, databases: Sequence[str]) -> DividedRows | None:
    """What keeps the rows of a topic after the LSNs of their databases, in their order; None if its rows are not of several.

    Args:
        kind: short name of the topic (`lake.system_topics`).
        databases: names of all databases.
    """
    if len(databases) > 1 and kind in _DESCRIBED:
        return partial(_divided, _DESCRIBED[kind], sorted(databases, key=len, reverse=True))
    return None


def _divided(
    describe: Callable[[pa.RecordBatch], tuple[pa.Array, pa.Array]],
    databases: Sequence[str],
    batches: Iterator[pa.RecordBatch],
    after: After,
) -> Iterator[pa.RecordBatch]:
    """Rows after the LSNs of their databases.

    Args:
        describe: what names each row's database, null if the next row does; and the rows' LSNs.
        databases: the longest names first.
    """

    def kept(batch: pa.RecordBatch, names: pa.Array, lsns: pa.Array) -> pa.RecordBatch:
        coded = names.dictionary_encode()
        starts = [after_in(after, _database(name, databases)) for name in coded.dictionary.to_pylist()]
        least = pa.array(starts, pa.string()).take(coded.indices)
        return batch.filter(pc.fill_null(pc.greater(lsns, least), True))

    waiting: tuple[pa.RecordBatch, pa.Array] | None = None
    for batch in batches:
        if not len(batch):
            continue
        names, lsns = describe(batch)
        names = pc.fill_null_backward(names)
        if waiting is not None:
            held, own = waiting
            yield kept(held, pa.repeat(names[0], len(held)), own)
        ready = len(batch) - names.null_count  # all others are at the end
        yield kept(batch.slice(0, ready), names.slice(0, ready), lsns.slice(0, ready))
        waiting = (batch.slice(ready), lsns.slice(ready)) if ready < len(batch) else None
    if waiting is not None:
        yield waiting[0]


def _database(name: str, databases: Sequence[str]) -> str:
    """The database of this name, or of a table's name; empty if it is not known."""
    text = f"{name}.".lower()
    return next((database for database in databases if text.startswith(f"{database}.".lower())), "")


def _of_changes(batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """Positions of a snapshot's entries keep an order over all databases, so that LSNs are those of the entries."""
    names = pc.struct_field(batch.column("value"), "databaseName").cast(pa.string())
    lsns = pc.struct_field(batch.column("value"), ["source", "commit_lsn"]).cast(pa.string())
    return pc.fill_null(names, ""), pc.coalesce(lsns, _lsns(batch))


def _of_transactions(batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    tables = pc.struct_field(batch.column("value"), "data_collections")
    rows, first = np.unique(pc.list_parent_indices(tables).to_numpy(), return_index=True)
    found = np.full(len(batch), -1)
    found[rows] = first
    names = pc.struct_field(pc.list_flatten(tables), "data_collection").cast(pa.string())
    named = names.take(pa.array(found, mask=found < 0))
    own = pc.utf8_slice_codeunits(batch.column("position"), POSITION_WIDTH + 1)
    return pc.if_else(pc.equal(own, ""), named, own), _lsns(batch)


def _lsns(batch: pa.RecordBatch) -> pa.Array:
    return pc.utf8_slice_codeunits(batch.column("position"), 0, LSN_WIDTH)


_DESCRIBED = {"schema_changes": _of_changes, "transactions": _of_transactions}
