"""Literals of T-SQL as typed constants."""

import math
import re
from typing import Any, Final

from sqlglot import exp

from mssql_standin.errors import SqlError, syntax_error
from mssql_standin.sql import textforms
from mssql_standin.sql.literals import Constant, constant
from mssql_standin.sqltypes import FLOAT, INT, SqlType, decimal_to_stored

_EXPONENT: Final = re.compile(r"[eE][+-]?\Z")
"""An exponent without digits is 0."""


def constant_of(node: Any) -> Constant:
    """A text, a national text, bytes or a number.

    Raises:
        SqlError: 102 for what is no number, 168 and 1007 for one out of range.
    """
    if isinstance(node, exp.National):
        return constant(node.this, _text_type("nvarchar", node.this), untyped=True)
    if isinstance(node, exp.HexString):
        digits: str = node.this
        value = bytes.fromhex(digits.rjust(len(digits) + len(digits) % 2, "0"))
        return constant(value, SqlType("varbinary", max(len(value), 1)))
    if node.is_string:
        sql_type = _text_type("varchar", node.this)
        return constant(textforms.to_page(node.this, sql_type), sql_type, untyped=True)
    return _number(node.this)


def _number(text: str) -> Constant:
    if "e" in text.lower():
        return _float_constant(text)
    if "." not in text:
        if len(text.lstrip("0")) <= 10 and int(text) < 2**31:
            return constant(int(text), INT)
        return _decimal_constant(text, 0)
    whole, fraction, *rest = text.split(".")
    if rest:
        raise syntax_error(text)
    return _decimal_constant(whole + fraction, len(fraction))


def _text_type(name: str, text: str) -> SqlType:
    length = max(textforms.units(text), 1)
    return SqlType(name, length if length <= (4000 if name == "nvarchar" else 8000) else -1)


def _float_constant(text: str) -> Constant:
    number = float(_EXPONENT.sub(r"\g<0>0", text))
    if math.isinf(number):
        raise SqlError(
            168, f"The floating point value '{text}' is out of the range of computer representation (8 bytes).", 15
        )
    return constant(number, FLOAT)


def _decimal_constant(digits: str, scale: int) -> Constant:
    significant = digits.lstrip("0")
    precision = max(len(significant), scale, 1)
    if precision > 38:
        raise SqlError(
            1007, f"The number '{digits}' is out of the range for numeric representation (maximum precision 38).", 15
        )
    sql_type = SqlType("numeric", precision=precision, scale=scale)
    return constant(decimal_to_stored(int(digits or 0), sql_type), sql_type)
