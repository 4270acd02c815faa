"""EXEC: procedures, and sp_executesql with its declaration text and arguments."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from mssql_standin.batches import routines
from mssql_standin.batches.ports import BatchInterpreter
from mssql_standin.catalog import fold
from mssql_standin.contract import Parameter
from mssql_standin.errors import SqlError, syntax_error
from mssql_standin.queries.frame import Frame
from mssql_standin.sql.convert import convert_argument, convert_value
from mssql_standin.sqltypes import INT
from mssql_standin.text import tree
from mssql_standin.text.batch import parse_batch

_DEEPEST: Final = 32


def run(interpreter: BatchInterpreter, statement: tree.Execute) -> None:
    """EXEC of a procedure."""
    frame = interpreter.frame
    with _nested(interpreter):
        status = _call(interpreter, statement)
    if statement.status:
        frame.variable(statement.status).value = status


@contextmanager
def _nested(interpreter: BatchInterpreter) -> Iterator[None]:
    session = interpreter.session
    if session.nest_level >= _DEEPEST:
        raise SqlError(217, "Maximum stored procedure, function, trigger, or view nesting level exceeded (limit 32).")
    session.nest_level += 1
    try:
        yield
    finally:
        session.nest_level -= 1


def _call(interpreter: BatchInterpreter, statement: tree.Execute) -> int:
    frame, name = interpreter.frame, statement.procedure
    if name.startswith("@"):
        name = str(frame.variable(name).value or "")
    arguments = [_argument(interpreter, argument) for argument in statement.arguments]
    status = call(interpreter, name, arguments)
    for argument, parameter in zip(statement.arguments, arguments, strict=True):
        if argument.output:
            variable = frame.variable(argument.expression)
            variable.value = convert_value(parameter.value, parameter.type, variable.type)
    return status


def _argument(interpreter: BatchInterpreter, argument: tree.Argument) -> Parameter:
    if argument.default:
        return Parameter(argument.name, INT, None, default=True)
    value, sql_type = interpreter.typed_value(argument.expression)
    return Parameter(argument.name, sql_type, value, output=argument.output)


def call(interpreter: BatchInterpreter, name: str, arguments: Sequence[Parameter]) -> int:
    """Run a procedure; returns its status.

    Raises:
        SqlError: 2812 when there is none of that name.
    """
    if fold(name).removeprefix("sys.").strip("[]") == "sp_executesql":
        return _sp_executesql(interpreter, arguments)
    session = interpreter.session
    found = session.procedure(name)
    if found is None:
        user = routines.find(session, name)
        if user is not None:
            return routines.call(interpreter, user, arguments)
        raise SqlError(2812, f"Could not find stored procedure '{name}'.", 16, 62)
    procedure, database = found
    named = {argument_key(parameter, place): parameter for place, parameter in enumerate(arguments, start=1)}
    outer, session.procedure_database = session.procedure_database, database
    outer_sink, session.sink = session.sink, interpreter.sink
    try:
        status: int = session.editing(lambda: procedure(session, named))
        return status
    except SqlError as error:
        error.procedure = error.procedure or name.rsplit(".", 1)[-1].strip("[]")
        raise
    finally:
        session.procedure_database, session.sink = outer, outer_sink


def _sp_executesql(interpreter: BatchInterpreter, arguments: Sequence[Parameter]) -> int:
    text, parameters = _bound(interpreter, arguments)
    frame = Frame(depth=interpreter.frame.depth + 1)
    for parameter in parameters:
        frame.declare(parameter.name, parameter.type, parameter.value)
    with interpreter.session.trusting(False):
        status = interpreter.run_inner(text, frame)
    for parameter in parameters:
        if parameter.output:
            parameter.value = frame.variable(parameter.name).value
    _give_back(arguments, parameters)
    return status


def _bound(interpreter: BatchInterpreter, arguments: Sequence[Parameter]) -> tuple[str, list[Parameter]]:
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
        parameter.value = convert_argument(source.value, source.type, parameter.type)
    return text, declared


def _declared(interpreter: BatchInterpreter, text: str) -> list[Parameter]:
    """Parameters of a declaration text `@a int, @b nvarchar(10) = N'x' OUTPUT`."""
    if not text.strip():
        return []
    statement = parse_batch(f"DECLARE {text}").statements[0]
    if not isinstance(statement, tree.Declare):
        raise syntax_error(text)
    declared = []
    for number, item in enumerate(statement.items, start=1):
        words = item.type.split()
        output = words[-1].upper() in ("OUT", "OUTPUT")
        kind = interpreter.type_named(" ".join(words[: len(words) - output]), number)
        declared.append(Parameter(item.name, kind, None, output))
    return declared


def _give_back(arguments: Sequence[Parameter], parameters: Sequence[Parameter]) -> None:
    """Copy output values into the caller's arguments."""
    for place, parameter in enumerate(parameters):
        for order, argument in enumerate(arguments[2:]):
            named = argument.name and argument.name.casefold() == parameter.name.casefold()
            if argument.output and (named or (not argument.name and order == place)):
                argument.value, argument.type = parameter.value, parameter.type


def argument_key(parameter: Parameter, place: int) -> str:
    """Key of an argument: its folded name without `@`, or its place."""
    return fold(parameter.name.removeprefix("@")) if parameter.name else str(place)
