"""Stored values as SQLite literals, and typed constants."""

import math
from dataclasses import dataclass

from mssql_standin.contract import Typed
from mssql_standin.sqltypes import SqlType, Value


def literal(value: Value, sql_type: SqlType) -> str:
    """SQLite text of a stored value; `sql_type` tells a real from an integer."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, str):
        return text_literal(value)
    if isinstance(value, float):
        return _float_literal(value)
    return _float_literal(float(value)) if sql_type.name in ("real", "float") else str(int(value))


def _float_literal(number: float) -> str:
    """SQLite does not round decimal literals correctly, so only whole numbers are written in digits."""
    if math.isfinite(number) and abs(number) < 2**53 and number == int(number):
        return f"{number:.1f}"
    return f"tsql_float('{number.hex()}')"


def text_literal(text: str) -> str:
    """A SQLite string literal; its bytes if there are NUL characters, at which SQLite's tokenizer stops."""
    if "\0" not in text:
        return "'" + text.replace("'", "''") + "'"
    return f"CAST(x'{text.encode().hex()}' AS text)"


@dataclass(frozen=True, slots=True)
class Constant(Typed):
    """A typed piece whose stored value is known at compile time."""

    value: Value = None


@dataclass(frozen=True, slots=True)
class Invariant(Typed):
    """A typed piece with one value per execution of the statement (GETDATE(), DB_ID('x')): a scalar subquery, which SQLite evaluates once."""


def is_fixed(typed: Typed) -> bool:
    """Whether a piece cannot differ between rows: constant, invariant or a bare variable."""
    return isinstance(typed, (Constant, Invariant)) or typed.sql.startswith(":")


def constant(value: Value, sql_type: SqlType, untyped: bool = False) -> Constant:
    """A constant of that stored value; `untyped` for string and NULL literals that may take the other side's type."""
    return Constant(literal(value, sql_type), sql_type, value is None, untyped, value)
