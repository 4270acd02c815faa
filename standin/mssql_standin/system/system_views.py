"""The system views themselves, as the catalogue lists them. Their object ids are invented; negative, as SQL Server's are."""

import zlib
from collections.abc import Sequence

from mssql_standin.catalog import Database
from mssql_standin.contract import SessionContext
from mssql_standin.sqltypes import Value
from mssql_standin.system.describe import schema_id, stored_datetime
from mssql_standin.system.objects import OBJECT, VIEW
from mssql_standin.system.view import VIEWS, Rows, view


def _row(database: Database, name: str) -> Sequence[Value]:
    schema, _, bare = name.partition(".")
    object_id = -(zlib.crc32(name.encode()) & 0x7FFFFFFF) - 1
    made = stored_datetime(database.created)
    return (bare, object_id, None, schema_id(database, schema), 0, "V ", "VIEW", made, made, 1, 0, 0, *(0,) * 7)


@view("sys.system_views", OBJECT + VIEW)
def system_views(_: SessionContext, database: Database) -> Rows:
    """What the stand-in has of `sys` and `INFORMATION_SCHEMA`."""
    return [_row(database, found.name) for found in VIEWS.values()]
