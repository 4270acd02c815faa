"""Upgrades tables made by an earlier release: Delta properties, features of the protocol, and statistics of one column only.

The properties are set last, so a crash in between repeats the upgrade; a table that has them needs no upgrade.
"""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from cdc_assets.lake.files import STATISTICS
from cdc_assets.lake.location import STORE_ERRORS
from cdc_assets.lake.replacing import Fence, KnownFile, Replacement, replace_files
from cdc_assets.lake.tables import (
    STATISTICS_PROPERTY,
    DeltaTables,
    allow_plain_timestamps,
    arrow_schema,
    missing_features,
    unreadable,
)

_FORMER = {"delta.logRetentionDuration": ("interval 7 days", "interval 1 day")}
"""Values set by earlier releases; any other value was set by a user and stays."""
_SETTINGS = ("delta.deletedFileRetentionDuration",)
"""Properties that depend on a property of the capture."""


def modernize(tables: DeltaTables, directory: str, fence: Fence) -> None:
    """Set missing properties of a table, if there are any.

    Raises:
        LakeConflictError: another writer was first.
        FencedError: another writer has taken over.
        LakeError: the store refuses.
    """
    handle = tables.open(directory)
    if handle is None:
        return
    missing, schema = _missing(handle, tables.properties_of(handle)), arrow_schema(handle)
    if not missing and not missing_features(handle, schema):
        return
    try:
        allow_plain_timestamps(handle, schema)
        if STATISTICS_PROPERTY in missing and (files := _narrowed(handle)):
            replace_files(tables, directory, Replacement([file.path for file in files], files), fence)
            handle = tables.open(directory) or handle
        if missing:
            handle.alter.set_table_properties(missing)
    except STORE_ERRORS as error:
        raise unreadable(tables.location.uri(directory), error) from error
    finally:
        tables.forget(directory)


def _missing(handle: DeltaTable, wanted: Mapping[str, str]) -> dict[str, str]:
    known = handle.metadata().configuration
    return {
        name: value
        for name, value in wanted.items()
        if known.get(name) != value
        and (known.get(name) in (None, *_FORMER.get(name, ())) or name in (*_SETTINGS, STATISTICS_PROPERTY))
    }


def _narrowed(handle: DeltaTable) -> list[KnownFile]:
    """The files of a table whose compaction by an earlier release told of all columns, with one column's statistics."""
    files = pa.table(handle.get_add_actions(flatten=True))
    if any(name.startswith("null_count.") and name != f"null_count.{STATISTICS}" for name in files.column_names):
        return [_of(file) for file in files.to_pylist()]
    return []


def _of(file: Mapping[str, Any]) -> KnownFile:
    stats: dict[str, object] = {"numRecords": file["num_records"]}
    least, greatest = (file.get(f"{bound}.{STATISTICS}") for bound in ("min", "max"))
    if least is not None and greatest is not None:
        stats |= {"minValues": {STATISTICS: least}, "maxValues": {STATISTICS: greatest}, "nullCount": {STATISTICS: 0}}
    return KnownFile(
        file["path"], file["size_bytes"], file["num_records"] or 0, file["modification_time"], json.dumps(stats)
    )
