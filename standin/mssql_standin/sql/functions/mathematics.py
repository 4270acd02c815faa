"""ABS: the one mathematical function that there is."""

from collections.abc import Sequence

from mssql_standin.sql import numbers
from mssql_standin.sql.convert import family
from mssql_standin.sql.registry import NUMBERS, Call, define
from mssql_standin.sqltypes import DECIMAL, FLOAT, INT, MONEY, MONEY_TYPE, SqlType, Value, decimal_to_stored


def _kept(types: Sequence[SqlType]) -> SqlType:
    """Small integers become int, small money becomes money, text and real become float."""
    first = types[0]
    if first.name in ("bit", "tinyint", "smallint", "int"):
        return INT
    if first.name in MONEY:
        return MONEY_TYPE
    return first if first.name == "bigint" or first.name in DECIMAL else FLOAT


def _abs(call: Call, value: Value) -> Value:
    source, result = call.types[0], call.returns
    if isinstance(value, str):
        return abs(numbers.parse_float(value, source, FLOAT))
    if family(source) == "float" and isinstance(value, float):
        return abs(value)
    scaled = abs(numbers.scaled_of(value, source)[0])
    return decimal_to_stored(scaled, result) if result.name in DECIMAL else numbers.to_integer(scaled, result, result)


define("ABS", _kept, 1, 1, _abs, accepts=(NUMBERS,))
