"""String functions. Positions and lengths count UTF-16 code units, as SQL Server does."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from mssql_standin.errors import SqlError
from mssql_standin.sql import textforms
from mssql_standin.sql.convert import convert_value, family
from mssql_standin.sql.registry import Call, define
from mssql_standin.sqltypes import (
    BIGINT,
    INT,
    MAX,
    UNICODE,
    VARCHAR_MAX,
    SqlType,
    Value,
)

TEXT: Final = SqlType("nvarchar", 4000)


def _varying(source: SqlType, length: int | None = None) -> SqlType:
    """The varchar or nvarchar of a source's characters; other types read as varchar."""
    if family(source) != "text":
        return SqlType("varchar", 8000)
    unicode = source.name in UNICODE
    if length is None:
        length = MAX if source.is_max or source.name in ("text", "ntext") else source.length
    return SqlType("nvarchar" if unicode else "varchar", length, collation=source.collation)


def _same(types: Sequence[SqlType]) -> SqlType:
    return _varying(types[0])


def widest(types: Sequence[SqlType]) -> SqlType:
    """8000 bytes, or (max) when the first argument is (max)."""
    unicode = any(one.name in UNICODE for one in types)
    length = MAX if types[0].is_max else (4000 if unicode else 8000)
    return SqlType("nvarchar" if unicode else "varchar", length, collation=types[0].collation)


def length_type(types: Sequence[SqlType]) -> SqlType:
    return BIGINT if types[0].is_max else INT


def as_text(value: Value, sql_type: SqlType) -> str:
    """Any value as text, as an implicit conversion would write it."""
    return value if isinstance(value, str) else str(convert_value(value, sql_type, VARCHAR_MAX))


def _define(
    name: str,
    returns: Any,
    count: int,
    function: Callable[..., Value],
    maximum: int | None = None,
    second: SqlType | None = None,
) -> None:
    """A function whose first argument is read as text, and the second as the type given."""

    def implementation(call: Call, first: Value, *rest: Value) -> Value:
        return function(as_text(first, call.types[0]), *rest)

    define(name, returns, count, maximum or count, implementation, arguments=(None, second))


def _len(text: str) -> int:
    return textforms.units(text.rstrip(" "))


def _datalength(call: Call, value: Value) -> Value:
    sql_type = call.types[0]
    if isinstance(value, str):
        return textforms.units(value) * 2 if sql_type.name in UNICODE else len(textforms.encode_1252(value))
    if family(sql_type) == "binary" and isinstance(value, bytes):
        return len(value)
    return sql_type.max_length


def _left(text: str, count: Any) -> str:
    _not_negative(count, "left")
    return textforms.slice_units(text, 0, int(count))


def _not_negative(count: Any, function: str) -> None:
    if count < 0:
        raise SqlError(536, f"Invalid length parameter passed to the {function} function.")


def fitting(text: str, sql_type: SqlType) -> str:
    """At most 8000 bytes, unless the type is a (max) one."""
    return text if sql_type.length == MAX else textforms.cut(text, sql_type.length)


_LARGEST: Final = 1 << 28
"""Characters of a text that REPLICATE makes here."""


def _replicate(call: Call, value: Any, count: int) -> Value:
    if count < 0:
        return None
    text = as_text(value, call.types[0])
    limit = call.returns.length
    if limit == MAX and len(text) * count > _LARGEST:
        raise SqlError(701, "There is insufficient system memory in resource pool 'default' to run this query.", 17)
    return fitting(text * (count if limit == MAX else min(count, limit // max(len(text), 1) + 1)), call.returns)


def _nchar(_: Call, code: int) -> Value:
    return chr(code) if 0 <= code <= 0xFFFF and not 0xD800 <= code <= 0xDFFF else None


def split_name(name: str) -> list[str]:
    """A possibly multi-part, possibly bracketed name in its parts; empty when it is none."""
    parts: list[str] = []
    for found in re.finditer(r'\s*(?:\[((?:[^\]]|\]\])*)\]|"((?:[^"]|"")*)"|([^.\[\]"]*))\s*(?:\.|\Z)', name):
        if found.start() == len(name) and parts and not name.endswith("."):
            break
        bracketed, quoted, plain = found.groups()
        parts.append(
            bracketed.replace("]]", "]")
            if bracketed is not None
            else quoted.replace('""', '"')
            if quoted is not None
            else plain.strip()
        )
    return parts if len(parts) <= 4 else []


_define("LEN", length_type, 1, _len)
define("DATALENGTH", length_type, 1, 1, _datalength)
_define("LEFT", _same, 2, _left, second=INT)
define("REPLICATE", widest, 2, 2, _replicate, arguments=(None, INT))
define("NCHAR", SqlType("nchar", 1), 1, 1, _nchar, arguments=(INT,))
