"""Reads events of topic tables for display: their number by operation, the newest ones, and new ones."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import LakeError
from cdc_assets.lake.topics import TopicTables

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset  # it imports pandas, which each command would wait for

OPERATIONS = {"r": "read", "c": "create", "u": "update", "d": "delete", None: "tombstone"}


def rows_by_operation(lake: TopicTables, directories: Iterable[str]) -> dict[str, int]:
    """Number of events by operation; reads one column. Rows without a text `op` count as `event`.

    Raises:
        LakeError: one of the tables cannot be read.
    """
    counts: Counter[str] = Counter()
    for directory in directories:
        dataset, schema = _open(lake, directory)
        kind = schema.field("value").type if "value" in schema.names else pa.null()
        place = kind.get_field_index("op") if pa.types.is_struct(kind) else -1
        if place < 0 or not pa.types.is_string(kind.field(place).type):
            events = 0 if pa.types.is_null(kind) else dataset.count_rows(filter=pc.field("value").is_valid())
            counts += Counter(event=events, tombstone=dataset.count_rows() - events)  # without those that are none
            continue
        column = dataset.to_table(columns={"op": pc.field("value", "op")})["op"]
        for pair in pc.value_counts(column).to_pylist():
            counts[OPERATIONS.get(pair["values"], str(pair["values"]))] += pair["counts"]
    return dict(counts)


def newest(lake: TopicTables, directory: str, count: int) -> pa.Table:
    """The last events of a topic table, in position order; rows that users append without a position are none.

    Raises:
        LakeError: there is no such table.
    """
    dataset, schema = _open(lake, directory)
    positions = dataset.to_table(columns=["position"])["position"]
    wanted = pc.field("position").is_valid()
    if 0 < count < len(positions):
        wanted = pc.field("position") >= pc.min(
            positions.take(pc.select_k_unstable(positions, count, [("", "descending")]))
        )
    found = dataset.to_table(filter=wanted).sort_by("position")
    return found.slice(max(0, found.num_rows - count)).cast(schema)


def after(lake: TopicTables, directory: str, position: str) -> pa.Table:
    """Events after a position, in position order.

    Raises:
        LakeError: there is no such table.
    """
    dataset, schema = _open(lake, directory)
    return dataset.to_table(filter=pc.field("position") > position).sort_by("position").cast(schema)


def _open(lake: TopicTables, directory: str) -> tuple["Dataset", pa.Schema]:
    """A topic table's current files, and its Arrow schema with the metadata of the Connect types."""
    handle = lake.open(directory)
    if handle is None:
        raise LakeError(f"There is no table {lake.location.uri(directory)}. Next: list topics with `cdc-assets status`")
    return handle.to_pyarrow_dataset(), pa.schema(handle.schema().to_arrow())
