"""Selects the READ events of a topic table that belong to a partition of its `snapshot` asset.

A partition is a fixed set of key ranges, kept in the manifest. Slices do not identify ranges (small adjacent ranges are
read together), so the key column itself is compared. That is only correct where Spark orders values as the server does:
whole numbers, decimals and dates. Text is ordered by its collation, and a uniqueidentifier has an order of its own; for
those an error is raised.
"""

from collections.abc import Collection, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, lit, unix_date
from pyspark.sql.types import DateType, DecimalType, IntegralType, StructField, StructType

from cdc_assets.core.partitions import ranges_of
from cdc_assets.core.ports import KeyRange
from cdc_assets.errors import LakeError

_DAYS = "io.debezium.time.Date"


def of_partitions(frame: DataFrame, ranges: Sequence[KeyRange], numbers: Collection[int], count: int) -> DataFrame:
    """READ events whose row belongs to some partitions.

    Args:
        frame: READ events of a table.
        ranges: all key ranges of the table, as its first snapshot fixed them.
        numbers: numbers of the partitions, from 0.
        count: number of all partitions.

    Raises:
        LakeError: only the server knows the order of the key, or the events lack the key's column.
    """
    chosen = [ranges[index] for index in ranges_of(numbers, len(ranges), count)]
    if len(chosen) == len(ranges):
        return frame
    if not chosen:
        return frame.where(lit(False))
    holds = [_within(_key_field(frame, chosen[0]), part) for part in chosen]
    any_of = holds[0]
    for other in holds[1:]:
        any_of = any_of | other
    return frame.where(any_of)


def _key_field(frame: DataFrame, part: KeyRange) -> StructField:
    """The column that bounds the ranges, in the row's image."""
    value = frame.schema["value"].dataType
    after = value["after"].dataType if isinstance(value, StructType) else None
    found = [field for field in after.fields if field.name == part.column] if isinstance(after, StructType) else []
    if not found:
        raise LakeError(
            f"Events have no column {part.column}, whose ranges are the partitions. Next: capture that column "
            "under its own name, or load the asset without partitions."
        )
    return found[0]


def _within(field: StructField, part: KeyRange) -> Column:
    """Whether a row belongs to a range. As on the server, NULL sorts before every value (`core.ranges.where`)."""
    key = col("value").getField("after").getField(field.name)
    below = lit(True) if part.high is None else key < _bound(field, part.high)
    return below | key.isNull() if part.low is None else below & (key >= _bound(field, part.low))


def _bound(field: StructField, text: str) -> Column:
    """A bound, given in the server's text form, as a value of the field's type."""
    meaning = field.metadata.get("connect.name")
    if meaning == _DAYS:
        return unix_date(lit(text[:10]).cast("date"))
    plain = meaning is None and isinstance(field.dataType, IntegralType)
    if plain or isinstance(field.dataType, DecimalType | DateType):
        return lit(text).cast(field.dataType)
    raise LakeError(
        f"Only the server can order key column {field.name} ({meaning or field.dataType.simpleString()}), so "
        "its partitions cannot be loaded separately. Next: load the whole asset, or a range of LSNs."
    )
