"""CHECKSUM, NEWID, PARSE.

CHECKSUM of integers is SQL Server's (rotate by four bits, exclusive or); of other types SQL Server does not
document it, so only its laws hold here: equal values under the collation give equal sums.
"""

import uuid
import zlib
from collections.abc import Sequence
from typing import Any

from mssql_standin.contract import SessionContext
from mssql_standin.errors import SqlError
from mssql_standin.sql.collation import sort_key
from mssql_standin.sql.convert import converter, family
from mssql_standin.sql.registry import Call, define
from mssql_standin.sql.runtime import Kernel, builder, read_type
from mssql_standin.sqltypes import (
    INTEGER,
    UNIQUEIDENTIFIER,
    SqlType,
    Value,
    guid_to_stored,
)


@builder("checksum")
def _build_checksum(arguments: Sequence[str]) -> Kernel:
    types = [read_type(argument) for argument in arguments]

    def run(_: SessionContext, *values: Value) -> int:
        total = 0
        for value, sql_type in zip(values, types, strict=True):
            total = ((total << 4) | (total >> 28)) & 0xFFFFFFFF
            total ^= _item(value, sql_type) & 0xFFFFFFFF
        return total - (1 << 32) if total >> 31 else total

    return run


def _item(value: Value, sql_type: SqlType) -> int:
    if value is None:
        return 0x7FFFFFFF
    if sql_type.name in INTEGER and isinstance(value, int):
        return value if -(2**31) <= value < 2**31 else value ^ (value >> 32)
    if isinstance(value, str):
        return zlib.crc32(repr(sort_key(sql_type.collation)(value)).encode("utf-8", "surrogatepass"))
    return zlib.crc32(value if isinstance(value, bytes) else repr(value).encode())


def _newid(_: SessionContext, __: Call) -> Value:
    return guid_to_stored(uuid.uuid4().bytes_le)


def _newsequentialid(_: SessionContext, __: Call) -> Value:
    """Increasing in uniqueidentifier order: the time stamp of a version 1 UUID leads in the stored form's last places."""
    return guid_to_stored(uuid.uuid1().bytes_le)


define("NEWID", UNIQUEIDENTIFIER, 0, 0, _newid, True, nullable=False, per_row=True)
define("NEWSEQUENTIALID", UNIQUEIDENTIFIER, 0, 0, _newsequentialid, True, nullable=False, per_row=True)


@builder("parse")
def _build_parse(arguments: Sequence[str]) -> Kernel:
    target = read_type(arguments[0])
    read = converter(SqlType("nvarchar", 4000), target, None)
    numeric = family(target) != "temporal"

    def run(_: SessionContext, text: Any) -> Value:
        if text is None:
            return None
        try:
            if not text.strip():
                raise SqlError(9819, "")
            return read(text.replace(",", "") if numeric else text)
        except SqlError as error:
            raise SqlError(
                9819, f"Error converting string value '{text}' into data type {target.name} using culture ''."
            ) from error

    return run
