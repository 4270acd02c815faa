"""The generations of a topic as one Spark data frame.

A topic continues in a new Delta table when its columns change in a way that one Delta table cannot hold
(`lake.evolution`). When generations are read together, each field has its newest type. Older values are cast to it if
that does not change them: to a wider number or decimal. Otherwise, because type or meaning differ, they stay unchanged
in an additional field: `amount` of the first generation becomes `amount@1`. So nothing is lost, no conversion is
guessed, and rows of every generation have the same structure. The key of events is one value: if its fields are others, or one of
them does not fit, the whole key of the first generation is `key@1`.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, lit, struct, when
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

_FIELD, _PARTS = "cdc.field", "cdc.generations"
"""Metadata keys of a joint field: its name in the generations' tables, and the numbers of the generations that fill
it."""

_MEANING = ("connect.name", "lake.form")
"""Metadata that say what a value means; fields in which they differ do not share a column."""
_WIDENED: dict[type[DataType], tuple[type[DataType], ...]] = {
    ByteType: (ShortType, IntegerType, LongType, DoubleType),
    ShortType: (IntegerType, LongType, DoubleType),
    IntegerType: (LongType, DoubleType),
    FloatType: (DoubleType,),
}


def together(frames: Sequence[DataFrame]) -> DataFrame:
    """Rows of all generations, oldest first, in their joint structure."""
    if len(frames) == 1:
        return frames[0]
    joint = joint_structure([frame.schema for frame in frames])
    parts = [frame.select(*_taken(None, frame.schema, joint, number)) for number, frame in enumerate(frames, 1)]
    return reduce(DataFrame.unionByName, parts)


def joint_structure(structures: Sequence[StructType]) -> StructType:
    """The structure that holds the rows of all generations, oldest first; its metadata names the origin of each
    field."""
    return _joint(list(enumerate(structures, 1)))


def _joint(generations: Sequence[tuple[int, StructType]]) -> StructType:
    versions: dict[str, list[tuple[int, StructField]]] = {}
    for number, structure in generations:
        for field in structure:
            versions.setdefault(field.name.lower(), []).append((number, field))
    return StructType([field for found in versions.values() for field in _fields(found)])


def _fields(versions: Sequence[tuple[int, StructField]]) -> list[StructField]:
    """The fields that hold all versions of one field: the newest, preceded by those that do not fit it."""
    left, made = list(versions), list[StructField]()
    while left:
        newest, field = left[-1]
        versions = [(number, old) for number, old in left if _fits(old, field)]
        name = field.name if not made else f"{field.name}@{newest}"
        made.append(_joint_field(name, field, versions))
        left = [version for version in left if version not in versions]
    return made[::-1]


def _joint_field(name: str, field: StructField, versions: Sequence[tuple[int, StructField]]) -> StructField:
    kind = field.dataType
    if isinstance(kind, StructType):
        kind = _joint([(number, old.dataType) for number, old in versions if isinstance(old.dataType, StructType)])
    metadata = {**field.metadata, _FIELD: versions[-1][1].name, _PARTS: [number for number, _ in versions]}
    return StructField(name, kind, True, metadata)


def _fits(old: StructField, new: StructField) -> bool:
    """Whether values of the old field are values of the new one."""
    if isinstance(old.dataType, StructType) and isinstance(new.dataType, StructType):
        return new.name != "key" or _is_same_key(old.dataType, new.dataType)
    if _without_key(old) and isinstance(new.dataType, StructType):
        return True
    if old.name != new.name or any(old.metadata.get(fact) != new.metadata.get(fact) for fact in _MEANING):
        return False
    return old.dataType == new.dataType or _widens(old.dataType, new.dataType)


def _is_same_key(old: StructType, new: StructType) -> bool:
    """Whether values of one key are values of the other; a column called `key` inside of events is none, but may be treated as one."""
    return set(old.names) == set(new.names) and all(_fits(old[name], new[name]) for name in new.names)


def _without_key(field: StructField) -> bool:
    """The key of a table that had none: an always null text."""
    return field.name == "key" and isinstance(field.dataType, StringType)


def _widens(old: DataType, new: DataType) -> bool:
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return bool(new.scale >= old.scale) and bool(new.precision - new.scale >= old.precision - old.scale)
    return type(new) in _WIDENED.get(type(old), ())


def _taken(base: Column | None, source: StructType, joint: StructType, generation: int) -> list[Column]:
    """The joint structure's fields, as one generation fills them."""
    return [_one(base, source, field, generation).alias(field.name) for field in joint]


def _one(base: Column | None, source: StructType, field: StructField, generation: int) -> Column:
    name = field.metadata[_FIELD]
    found = next((versions for versions in source if versions.name == name), None)
    if generation not in field.metadata[_PARTS] or found is None or _without_key(found):
        return lit(None).cast(_plain(field.dataType))
    value = col(f"`{name}`") if base is None else base.getField(name)
    if isinstance(field.dataType, StructType) and isinstance(found.dataType, StructType):
        inner = struct(*_taken(value, found.dataType, field.dataType, generation))
        return when(value.isNotNull(), inner)
    return value if found.dataType == field.dataType else value.cast(field.dataType)


def _plain(kind: DataType) -> DataType:
    """A type without metadata, as a cast wants it."""
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _plain(field.dataType)) for field in kind])
    return kind
