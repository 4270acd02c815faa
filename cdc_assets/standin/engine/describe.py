"""Types of undeclared parameters."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from cdc_assets.standin.contract import Parameter
from cdc_assets.standin.sqltypes import MAX, SqlType

if TYPE_CHECKING:
    from cdc_assets.standin.engine.session import EngineSession


@lru_cache(maxsize=1024)
def widened(sql_type: SqlType) -> SqlType:
    """A parameter's type with its length rounded up, so that values of many lengths share a plan (spec standin §4: ODBC
    declares a length of its own for every value; the value counts, not the length)."""
    if sql_type.name in ("nvarchar", "varchar", "varbinary") and sql_type.length != MAX:
        most = 4000 if sql_type.name == "nvarchar" else 8000
        return replace(sql_type, length=most)
    return sql_type


def undeclared(session: "EngineSession", text: str) -> Sequence[Parameter]:
    """Parameters of a text with suggested types."""
    from cdc_assets.standin.engine.suggest import suggest

    return suggest(session, text)
