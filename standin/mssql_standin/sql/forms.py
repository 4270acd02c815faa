"""Function-like constructs the compiler must see as trees: their arguments are no plain values.

A *form* gets the argument trees and the scope and returns a typed piece. Examples are
DATEADD (its first argument is a word), ISNULL (its type follows the first argument), aggregates.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mssql_standin.contract import Typed
from mssql_standin.errors import SqlError

if TYPE_CHECKING:
    from mssql_standin.sql.expressions import Compiler
    from mssql_standin.sql.scope import Scope

Form = Callable[["Compiler", Sequence[Any], "Scope"], Typed]

FORMS: Final[dict[str, Form]] = {}


def form(name: str, minimum: int, maximum: int = 0) -> Callable[[Form], Form]:
    """Decorator: define a form; `maximum` 0 means the same as `minimum`, -1 any number of arguments."""

    def register(function: Form) -> Form:
        def checked(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
            check_count(name, len(arguments), minimum, maximum or minimum)
            return function(compiler, arguments, scope)

        FORMS[name] = checked
        return function

    return register


def check_count(name: str, count: int, minimum: int, maximum: int) -> None:
    """174 or 189 for a wrong number of arguments."""
    if count >= minimum and maximum in (-1, max(count, maximum)):
        return
    if minimum == maximum:
        raise SqlError(174, f"The {name.lower()} function requires {minimum} argument(s).", 15)
    raise SqlError(189, f"The {name.lower()} function requires {minimum} to {maximum} arguments.", 15)
