"""PRINT, RAISERROR and WAITFOR."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from mssql_standin.batches.ports import BatchSession
from mssql_standin.contract import Clock
from mssql_standin.errors import SqlError
from mssql_standin.sql.convert import convert_value
from mssql_standin.sqltypes import CHARACTER, INT, INTEGER, SqlType, Value
from mssql_standin.text import tree

Evaluate = Callable[[str], tuple[Value, SqlType]]

_PLACE: Final = re.compile(
    r"%%|%(?P<flags>[-+0 #]*)(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d+))?(?:h|l|I64)?(?P<kind>[diosuxX])"
)


def raised(session: BatchSession, statement: tree.RaiseError, evaluate: Evaluate) -> SqlError:
    """The error or message of a RAISERROR."""
    if len(statement.arguments) < 3:
        raise SqlError(102, "Incorrect syntax near 'RAISERROR'.", 15)
    values = [evaluate(argument) for argument in statement.arguments]
    message, kind = values[0]
    severity, state = (_whole(value, kind) for value, kind in values[1:3])
    number = 50000
    if kind.name in INTEGER:
        raise SqlError(
            18054,
            f"Error {message!s}, severity {severity}, state {state} was raised, but no message with that error number was found "
            "in sys.messages.",
        )
    text = formatted(str(message or ""), values[3:])
    if severity > 18 and "LOG" not in statement.options:
        raise SqlError(
            2754,
            "Error severity levels greater than 18 can only be specified by members of the sysadmin role, using the WITH LOG "
            "option.",
        )
    if "SETERROR" in statement.options:
        session.last_error = number
    return SqlError(number, text[:2047], max(0, severity), max(0, min(state, 255)))


def formatted(text: str, arguments: Sequence[tuple[Value, SqlType]]) -> str:
    """Replace %s, %d and their kin.

    Raises:
        SqlError: 2787 for a wrong specification, 2786 for a value of the wrong type.
    """
    rest = list(arguments)
    taken = 0

    def take() -> tuple[Value, SqlType] | None:
        nonlocal taken
        taken += 1
        return rest.pop(0) if rest else None

    def replace(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        width = _number(take() if found["width"] == "*" else found["width"])
        precision = _number(take() if found["precision"] == "*" else found["precision"])
        value = take()
        if value is None or value[0] is None:
            return "(null)"
        return _one(found["flags"], width, precision, found["kind"], value, taken)

    return _PLACE.sub(replace, text)


def _number(given: "str | tuple[Value, SqlType] | None") -> int | None:
    if given is None:
        return None
    return int(given if isinstance(given, str) else given[0] or 0)


def _one(
    flags: str, width: int | None, precision: int | None, kind: str, value: tuple[Value, SqlType], place: int
) -> str:
    shown, sql_type = value
    if (kind == "s") != (sql_type.name in CHARACTER):
        raise SqlError(
            2786,
            f"The data type of substitution parameter {place} does not match the expected type of the format specification.",
        )
    if kind == "s":
        text = str(shown)[:precision] if precision is not None else str(shown)
    else:
        number = int(shown)  # type: ignore[arg-type]  # an integer: its type says so
        if kind in "uxXo" and number < 0:
            number += 2**32
        text = {"x": f"{number:x}", "X": f"{number:X}", "o": f"{number:o}"}.get(kind, str(number))
        if "+" in flags and kind in "di" and number >= 0:
            text = f"+{text}"
        if precision is not None:
            text = text.rjust(precision, "0")
    if width is None or len(text) >= width:
        return text
    if "-" in flags:
        return text.ljust(width)
    return text.rjust(width, "0" if "0" in flags and kind != "s" else " ")


def _whole(value: Value, kind: SqlType) -> int:
    """A severity or state."""
    converted = convert_value(value, kind, INT)
    return converted if isinstance(converted, int) else 0


def wait_seconds(kind: str, text: str, clock: Clock) -> float:
    """How long WAITFOR waits.

    Raises:
        SqlError: 148 for a text that is no time.
    """
    try:
        moment = datetime.fromisoformat(f"1900-01-01 {text.strip().zfill(8) if ':' in text else ''}")
    except ValueError as error:
        raise SqlError(148, f"Incorrect time syntax in time string '{text}' used with WAITFOR.", 15) from error
    span = moment - datetime(1900, 1, 1)
    if kind == "DELAY":
        return span.total_seconds()
    now = clock.local()
    target = now.replace(hour=0, minute=0, second=0, microsecond=0) + span
    if target < now:
        target += timedelta(days=1)
    return (target - now).total_seconds()
