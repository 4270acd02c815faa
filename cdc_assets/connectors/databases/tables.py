"""Structures of tables from `information_schema`-like rows."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column, TableSchema


def structures(columns: Iterable[tuple[TableId, Column]], keys: Iterable[tuple[TableId, str]]) -> list[TableSchema]:
    """Tables of columns and of the columns of their primary keys, both in order."""
    found: dict[TableId, list[Column]] = defaultdict(list)
    for table, column in columns:
        found[table].append(column)
    key: dict[TableId, list[str]] = defaultdict(list)
    for table, name in keys:
        key[table].append(name)
    return [TableSchema(table, 0, tuple(own), tuple(key[table])) for table, own in sorted(found.items())]


def column(row: Mapping[str, Any]) -> Column:
    """A column of a row with the names of `information_schema.columns`."""
    kind = str(row["data_type"]).lower()
    numeric = kind in ("decimal", "numeric", "number")
    length = row.get("character_maximum_length")
    return Column(
        name=row["column_name"],
        type_name=kind,
        ordinal=int(row["ordinal_position"]),
        nullable=str(row["is_nullable"]).upper() in ("YES", "Y"),
        length=int(length) if length is not None and int(length) < 2**31 - 1 and "char" in kind else None,
        precision=int(row["numeric_precision"]) if numeric and row.get("numeric_precision") is not None else None,
        scale=int(row["numeric_scale"] or 0) if numeric and row.get("numeric_precision") is not None else None,
    )
