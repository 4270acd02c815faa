"""HASHBYTES, CHECKSUM, NEWID, PARSE, master.dbo.fn_varbintohexstr.

CHECKSUM of integers is SQL Server's (rotate by four bits, exclusive or); of other types SQL Server does not
document it, so only its laws hold here: equal values under the collation give equal sums.
"""

import hashlib
import uuid
import zlib
from collections.abc import Sequence
from typing import Any, Final

from cdc_assets.standin.contract import SessionContext
from cdc_assets.standin.errors import SqlError
from cdc_assets.standin.sql import textforms
from cdc_assets.standin.sql.collation import sort_key
from cdc_assets.standin.sql.convert import converter, family
from cdc_assets.standin.sql.registry import Call, define
from cdc_assets.standin.sql.runtime import Kernel, builder, read_type
from cdc_assets.standin.sqltypes import (
    INTEGER,
    NVARCHAR_MAX,
    UNIQUEIDENTIFIER,
    VARBINARY_MAX,
    SqlType,
    Value,
    guid_to_stored,
)

_ALGORITHMS: Final = {"MD5": "md5", "SHA": "sha1", "SHA1": "sha1", "SHA2_256": "sha256", "SHA2_512": "sha512"}


def _hashbytes(call: Call, algorithm: str, value: Any) -> Value:
    name = _ALGORITHMS.get(algorithm.upper())
    if name is None:
        return None
    source = call.types[1]
    if family(source) == "text":
        data = textforms.text_bytes(value, source)
    elif family(source) == "binary":
        data = value
    else:
        raise SqlError(8116, f"Argument data type {source.name} is invalid for argument 2 of hashbytes function.")
    return hashlib.new(name, data, usedforsecurity=False).digest()


define("HASHBYTES", SqlType("varbinary", 8000), 2, 2, _hashbytes, arguments=(SqlType("varchar", 30), None))


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


def _binary_checksum(call: Call, *values: Value) -> int:
    total = 0
    for value in values:
        total = ((total << 4) | (total >> 28)) & 0xFFFFFFFF
        total ^= zlib.crc32(repr(value).encode("utf-8", "surrogatepass"))
    return total - (1 << 32) if total >> 31 else total


define("BINARY_CHECKSUM", SqlType("int"), 1, -1, _binary_checksum, strict=False, nullable=False)


def _newid(_: SessionContext, __: Call) -> Value:
    return guid_to_stored(uuid.uuid4().bytes_le)


def _newsequentialid(_: SessionContext, __: Call) -> Value:
    """Increasing in uniqueidentifier order: the time stamp of a version 1 UUID leads in the stored form's last places."""
    return guid_to_stored(uuid.uuid1().bytes_le)


define("NEWID", UNIQUEIDENTIFIER, 0, 0, _newid, True, nullable=False, per_row=True)
define("NEWSEQUENTIALID", UNIQUEIDENTIFIER, 0, 0, _newsequentialid, True, nullable=False, per_row=True)


@builder("parse")
def _build_parse(arguments: Sequence[str]) -> Kernel:
    target, mode = read_type(arguments[0]), arguments[1]
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
            if mode == "try":
                return None
            raise SqlError(
                9819, f"Error converting string value '{text}' into data type {target.name} using culture ''."
            ) from error

    return run


for _name in ("sys.fn_varbintohexstr", "dbo.fn_varbintohexstr"):
    define(
        _name, NVARCHAR_MAX, 1, 1, lambda _, value: "0x" + value.hex(), arguments=(VARBINARY_MAX,)
    )  # fmt: skip
