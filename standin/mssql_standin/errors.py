"""Errors that clients see: SQL Server's numbers and texts.

Drivers map the number to an SQLSTATE and programs decide by it, so the number is
part of the contract (spec standin §11 no. 22). What the stand-in does not support
answers with `unsupported`, never with a guess.
"""

from typing import Final

BUGS: Final = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What a fault of the stand-in itself raises; it reaches the client as an internal error, never as silence."""


class SqlError(Exception):
    """An error that goes to the client as an ERROR token.

    Args:
        number: SQL Server's error number.
        message: text; names are repeated as the client wrote them.
        severity: class, 11–16 for errors a statement causes, 20+ ends the connection.
        state: 1 unless a client looks at it.
    """

    def __init__(self, number: int, message: str, severity: int = 16, state: int = 1) -> None:
        super().__init__(f"{number}: {message}")
        self.number, self.message, self.severity, self.state = number, message, severity, state
        self.line = 1
        self.procedure = ""


def unknown_type(name: str, number: int) -> SqlError:
    """2715 for the type of a column, parameter or variable."""
    return SqlError(2715, f"Column, parameter, or variable #{number}: Cannot find data type {name}.", 16, 6)


def internal(error: BaseException, where: str = "") -> SqlError:
    """8624 for a fault of the stand-in itself, 701 when memory ran out, 40510 for text that cannot be stored."""
    if isinstance(error, MemoryError):
        return SqlError(701, "There is insufficient system memory in resource pool 'default' to run this query.", 17)
    if isinstance(error, UnicodeEncodeError):
        return unsupported("text with half of a surrogate pair")
    place = f" in {where}" if where else ""
    return SqlError(8624, f"Internal error of the stand-in{place}, see its log: {type(error).__name__}: {error}")


def unsupported(construct: str) -> SqlError:
    """The answer to what the stand-in does not do; names the construct."""
    return SqlError(40510, f"The stand-in does not support {construct}.")


def syntax_error(near: str) -> SqlError:
    """102, as SQL Server words it."""
    return SqlError(102, f"Incorrect syntax near '{near}'.", 15)


def invalid_object(name: str) -> SqlError:
    """208; Debezium matches the name with its database part as written."""
    return SqlError(208, f"Invalid object name '{name}'.")


def invalid_column(name: str) -> SqlError:
    """207."""
    return SqlError(207, f"Invalid column name '{name}'.")


def undeclared_variable(name: str) -> SqlError:
    """137."""
    return SqlError(137, f'Must declare the scalar variable "{name}".', 15)
