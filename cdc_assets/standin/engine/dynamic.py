"""sp_executesql called as EXEC: its declaration text and its arguments."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cdc_assets.standin.contract import Parameter
from cdc_assets.standin.engine import tree
from cdc_assets.standin.engine.batch import parse_batch
from cdc_assets.standin.errors import SqlError, syntax_error
from cdc_assets.standin.sql.convert import convert_value

if TYPE_CHECKING:
    from cdc_assets.standin.engine.interpreter import Interpreter


def bound(interpreter: "Interpreter", arguments: Sequence[Parameter]) -> tuple[str, list[Parameter]]:
    """Text and parameters of the call.

    Raises:
        SqlError: 201 without a text, 214 for a text that is none, 8178 for a parameter that was not supplied.
    """
    if not arguments:
        raise SqlError(
            201, "Procedure or function 'sp_executesql' expects parameter '@statement', which was not supplied."
        )
    if arguments[0].value is not None and not isinstance(arguments[0].value, str):
        raise SqlError(214, "Procedure expects parameter '@statement' of type 'ntext/nchar/nvarchar'.")
    text = str(arguments[0].value or "")
    if len(arguments) == 1:
        return text, []
    declared = _declared(interpreter, str(arguments[1].value or ""))
    given = list(arguments[2:])
    for place, parameter in enumerate(declared):
        source = next((g for g in given if g.name.casefold() == parameter.name.casefold()), None)
        if source is None and place < len(given) and not given[place].name:
            source = given[place]
        if source is None:
            if not parameter.output:
                raise SqlError(
                    8178,
                    f"The parameterized query expects the parameter '{parameter.name}', which was not supplied.",
                )
            continue
        parameter.value = convert_value(source.value, source.type, parameter.type)
    return text, declared


def _declared(interpreter: "Interpreter", text: str) -> list[Parameter]:
    """Parameters of a declaration text `@a int, @b nvarchar(10) = N'x' OUTPUT`."""
    if not text.strip():
        return []
    statement = parse_batch(f"DECLARE {text}").statements[0]
    if not isinstance(statement, tree.Declare):
        raise syntax_error(text)
    declared = []
    for item in statement.items:
        words = item.type.split()
        output = words[-1].upper() in ("OUT", "OUTPUT")
        kind = interpreter.type_named(" ".join(words[: len(words) - output]))
        declared.append(Parameter(item.name, kind, None, output))
    return declared


def give_back(arguments: Sequence[Parameter], parameters: Sequence[Parameter]) -> None:
    """Copy output values into the caller's arguments."""
    for place, parameter in enumerate(parameters):
        for order, argument in enumerate(arguments[2:]):
            named = argument.name and argument.name.casefold() == parameter.name.casefold()
            if argument.output and (named or (not argument.name and order == place)):
                argument.value, argument.type = parameter.value, parameter.type
