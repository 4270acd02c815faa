"""Key ranges as T-SQL: a bound is read from the server as text and converted back to the column's own type.

Comparison is always the server's, with the column's own type and collation: strings compare differently in
Python, and so do uniqueidentifiers. Styles are those of CAST and CONVERT, chosen so that the text holds the whole value. They are
126 for dates and times, 3 for floats (17 digits), 2 for money (four decimals), 1 for binary (0x…).
https://learn.microsoft.com/en-us/sql/t-sql/functions/cast-and-convert-transact-sql
"""

import re
from collections.abc import Callable, Sequence

from cdc_assets.core.identifiers import quote
from cdc_assets.core.ports import KeyRange
from cdc_assets.core.schema import Column, TableSchema, declared_type
from cdc_assets.errors import InvalidValueError

_STYLES = dict.fromkeys(("date", "time", "datetime", "datetime2", "smalldatetime", "datetimeoffset"), 126)
_STYLES |= dict.fromkeys(("float", "real"), 3)
_STYLES |= dict.fromkeys(("money", "smallmoney"), 2)
_STYLES |= dict.fromkeys(("binary", "varbinary", "timestamp", "rowversion"), 1)

_PLAIN = frozenset({"bit", "tinyint", "smallint", "int", "bigint", "decimal", "numeric", "uniqueidentifier"})
_CODE_PAGE = frozenset({"char", "varchar"})
_LENGTH = _CODE_PAGE | {"nchar", "nvarchar", "binary", "varbinary"}
_COLLATION = re.compile(r"\w{1,128}\Z", re.ASCII)


def can_bound(column: Column) -> bool:
    """Whether values of the column can be range bounds: conversion to text and back does not change them."""
    return column.type_name in _STYLES or column.type_name in _PLAIN or column.type_name in _LENGTH


def type_text(column: Column) -> str:
    """The type to which a bound is converted: the declared one, and bytes for a row version, to which nothing can be
    cast."""
    return "binary(8)" if column.type_name in ("timestamp", "rowversion") else declared_type(column)


def cut_by(schema: TableSchema) -> Column | None:
    """The column by whose values a table is cut: the first of its key, if values of it can be bounds."""
    leading = schema.column(schema.key[0]) if schema.key else None
    return leading if leading is not None and can_bound(leading) else None


def type_of_bounds(column: Column) -> str:
    """What the order of a column's values depends on: its declared type and its collation."""
    return f"{type_text(column)} {column.collation or ''}".rstrip()


def fit(ranges: Sequence[KeyRange], schema: TableSchema) -> bool:
    """Whether ranges divide a table as it is now: by the same column, of the same type and collation.

    In another order their bounds overlap, and rows would be read twice.
    """
    column = cut_by(schema)
    if not ranges or column is None:
        return bool(ranges) and ranges[0].column is None
    return ranges[0].column == column.name and ranges[0].type == type_of_bounds(column)


def to_text(column: Column, expression: str) -> str:
    """T-SQL that converts an expression of the column's type to text."""
    style = _STYLES.get(column.type_name)
    if style == 1:
        return f"CONVERT(varchar(max), CONVERT(varbinary(max), {expression}), 1)"
    return f"CONVERT(nvarchar(max), {expression}{f', {style}' if style else ''})"


def from_text(column: Column) -> str:
    """T-SQL that turns a text parameter into the column's own type.

    Raises:
        InvalidValueError: the catalogue's collation name is not valid.
    """
    if column.type_name in _CODE_PAGE and column.collation:
        if not _COLLATION.match(column.collation):
            raise InvalidValueError("collation", column.collation, "a collation name", "check sys.columns")
        return f"CONVERT({type_text(column)}, ? COLLATE {column.collation})"
    style = _STYLES.get(column.type_name)
    return f"CONVERT({type_text(column)}, ?{f', {style}' if style else ''})"


def where(schema: TableSchema, key_range: KeyRange) -> tuple[str, tuple[str, ...]]:
    """Condition and parameters that select a range's rows.

    Args:
        schema: the table; its column has the type to compare with.
        key_range: a range of the leading key column. A NULL sorts before every value, so it is in the range that is
            open below.

    Returns:
        A condition without WHERE, empty if the range is the whole table, and its parameters in order.

    Raises:
        InvalidValueError: the range's column is not a column of the table.
    """
    condition = _inside(schema, key_range, lambda column, _: from_text(column))
    return condition, tuple(bound for bound in (key_range.low, key_range.high) if condition and bound is not None)


def where_literally(schema: TableSchema, key_range: KeyRange) -> str:
    """The condition of `where` without parameters: the bounds are literals in it.

    Raises:
        InvalidValueError: the range's column is not a column of the table.
    """
    return _inside(schema, key_range, literal)


def literal(column: Column, text: str) -> str:
    """T-SQL for the value of the column's own type that the server has written as a text."""
    quoted = text.replace("'", "''")
    return from_text(column).replace("?", f"N'{quoted}'", 1)


def _inside(schema: TableSchema, key_range: KeyRange, bound: Callable[[Column, str], str]) -> str:
    if key_range.column is None or (key_range.low is None and key_range.high is None):
        return ""
    column = schema.column(key_range.column)
    if column is None:
        raise InvalidValueError(
            "key range column", key_range.column, f"a column of {schema.table}", "plan ranges again"
        )
    name = quote(column.name)
    parts = [f"{name} >= {bound(column, key_range.low)}"] if key_range.low is not None else []
    parts += [f"{name} < {bound(column, key_range.high)}"] if key_range.high is not None else []
    if key_range.low is None and column.nullable:
        return f"({parts[0]} OR {name} IS NULL)"
    return " AND ".join(parts)
