"""Upgrades tables made by an earlier release: Delta properties, and statistics of one column only.

The properties are set last, so a crash in between repeats the upgrade; a table that has them needs no upgrade.
"""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from cdc_assets.lake.files import STATISTICS

STATISTICS_PROPERTY = "delta.dataSkippingStatsColumns"

_FORMER = {"delta.logRetentionDuration": ("interval 7 days", "interval 1 day")}
"""Values set by earlier releases; any other value was set by a user and stays."""
_SETTINGS = ("delta.deletedFileRetentionDuration",)
"""Properties that depend on a property of the capture."""


def modernize(handle: DeltaTable, wanted: Mapping[str, str]) -> bool:
    """Set missing properties of a table; return whether there were any."""
    known = handle.metadata().configuration
    missing = {
        name: value
        for name, value in wanted.items()
        if known.get(name) != value
        and (known.get(name) in (None, *_FORMER.get(name, ())) or name in (*_SETTINGS, STATISTICS_PROPERTY))
    }
    if not missing:
        return False
    if STATISTICS_PROPERTY in missing:
        _narrow_statistics(handle)
    handle.alter.set_table_properties(missing)
    return True


def _narrow_statistics(handle: DeltaTable) -> None:
    """Reduce the statistics of files compacted by an earlier release to one column."""
    files = pa.table(handle.get_add_actions(flatten=True))
    if any(name.startswith("null_count.") and name != f"null_count.{STATISTICS}" for name in files.column_names):
        actions: list[AddAction | RemoveAction] = [_narrowed(file) for file in files.to_pylist()]
        handle.create_write_transaction(actions, "append", handle.schema())
        handle.update_incremental()


def _narrowed(file: Mapping[str, Any]) -> AddAction:
    """A file's `add` with the statistics of one column; it replaces the existing one and changes no data."""
    stats: dict[str, object] = {"numRecords": file["num_records"]}
    least, greatest = (file.get(f"{bound}.{STATISTICS}") for bound in ("min", "max"))
    if least is not None and greatest is not None:
        stats |= {"minValues": {STATISTICS: least}, "maxValues": {STATISTICS: greatest}, "nullCount": {STATISTICS: 0}}
    return AddAction(file["path"], file["size_bytes"], {}, file["modification_time"], False, json.dumps(stats))
