"""User procedures: CREATE, ALTER, DROP and EXEC.

A procedure is kept as text. Its body runs as a batch of its own, in a frame of its own with its parameters as variables and in
its own database; names are looked up when a statement runs, as on a real server, and so is the syntax of its expressions, which
a real server judges at the definition. SET options that it changes are restored
at its end, temporary tables that it creates go with it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from mssql_standin.batches.ports import BatchInterpreter, BatchSession
from mssql_standin.catalog import UserProcedure, fold
from mssql_standin.contract import Parameter
from mssql_standin.errors import SqlError
from mssql_standin.queries.frame import Frame
from mssql_standin.queries.names import SessionNames
from mssql_standin.sql.convert import convert_argument
from mssql_standin.sqltypes import SqlType, Value
from mssql_standin.text.clauses import name_parts

# ---- definition ------------------------------------------------------------------------------------------------


# ---- EXEC ------------------------------------------------------------------------------------------------------


def find(session: BatchSession, name: str) -> UserProcedure | None:
    """The user procedure that a name means, or None."""
    parts = name_parts(name)
    if not parts:
        return None
    database = session.catalog.database(parts[-3] if len(parts) > 2 and parts[-3] else session.database)
    schema = parts[-2] if len(parts) > 1 and parts[-2] else "dbo"
    return database.procedure(schema, parts[-1]) if database else None


def call(interpreter: BatchInterpreter, procedure: UserProcedure, arguments: Sequence[Parameter]) -> int:
    """Run a user procedure; output arguments are changed in place. Returns its status.

    Raises:
        SqlError: 201 for a missing argument, 8144 and 8145 for one too many or of another name.
    """
    session, name = interpreter.session, procedure.shape.name
    SessionNames(session, interpreter.frame).permit("EXECUTE", procedure.shape)
    given = _matched(procedure, arguments)
    frame = Frame(depth=interpreter.frame.depth + 1, procedure=name)
    with _inside(session, procedure.shape.database), session.trusting(True):
        for parameter, argument in zip(procedure.parameters, given, strict=True):
            kind = interpreter.type_named(parameter.type)
            value: Value
            if argument is not None and not argument.default:
                value = _given(name, argument, kind)
            elif parameter.default is not None:
                value = interpreter.value(parameter.default, kind)
            else:
                raise SqlError(
                    201,
                    f"Procedure or function '{name}' expects parameter '{parameter.name}', which was not supplied.",
                    16,
                    4,
                )
            frame.declare(parameter.name, kind, value)
        status = interpreter.run_inner(procedure.body, frame)
    for parameter, argument in zip(procedure.parameters, given, strict=True):
        if parameter.output and argument is not None and argument.output:
            variable = frame.variable(parameter.name)
            argument.value, argument.type = variable.value, variable.type
    return status


def _given(procedure: str, argument: Parameter, kind: SqlType) -> Value:
    try:
        return convert_argument(argument.value, argument.type, kind)
    except SqlError as error:
        error.procedure = procedure
        raise


def _matched(procedure: UserProcedure, arguments: Sequence[Parameter]) -> list[Parameter | None]:
    """The argument of each parameter."""
    name = procedure.shape.name
    places = {fold(parameter.name): place for place, parameter in enumerate(procedure.parameters)}
    found: list[Parameter | None] = [None] * len(places)
    for place, argument in enumerate(arguments):
        wanted = places.get(fold(argument.name)) if argument.name else place
        if wanted is None:
            raise SqlError(8145, f"{argument.name} is not a parameter for procedure {name}.")
        if wanted >= len(found):
            raise SqlError(8144, f"Procedure or function {name} has too many arguments specified.")
        found[wanted] = argument
    return found


@contextmanager
def _inside(session: BatchSession, database: str) -> Iterator[None]:
    """The procedure's own database and SET options."""
    options = replace(session.options)
    with session.within(database):
        try:
            yield
        finally:
            session.options = options
            session.set_isolation(options.isolation)
            session.transaction.implicit = options.implicit_transactions
