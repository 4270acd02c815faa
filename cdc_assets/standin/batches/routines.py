"""User procedures: CREATE, ALTER, DROP and EXEC.

A procedure is kept as text. Its body runs as a batch of its own, in a frame of its own with its parameters as variables and in
its own database; names are looked up when a statement runs, as on a real server, and so is the syntax of its expressions, which
a real server judges at the definition. SET options that it changes are restored
at its end, temporary tables that it creates go with it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cdc_assets.standin.catalog import ProcedureParameter, UserProcedure, fold
from cdc_assets.standin.certain import certain
from cdc_assets.standin.contract import Parameter
from cdc_assets.standin.definitions.dispatch import home, module_shape
from cdc_assets.standin.errors import SqlError, unsupported
from cdc_assets.standin.queries.frame import Frame
from cdc_assets.standin.queries.lookup import name_parts
from cdc_assets.standin.queries.names import SessionNames
from cdc_assets.standin.queries.targets import read_name, read_until
from cdc_assets.standin.sql.convert import convert_argument
from cdc_assets.standin.sqltypes import SqlType, Value
from cdc_assets.standin.text.batch import parse_batch
from cdc_assets.standin.text.lexer import Kind
from cdc_assets.standin.text.reader import Reader

if TYPE_CHECKING:
    from cdc_assets.standin.batches.interpreter import Interpreter
    from cdc_assets.standin.engine.session import EngineSession

_AFTER_TYPE: Final = frozenset({"OUTPUT", "OUT", "READONLY", "AS", "WITH", "NULL", "NOT", "VARYING", "FOR"})
_AFTER_DEFAULT: Final = frozenset({"OUTPUT", "OUT", "READONLY", "AS", "WITH", "FOR"})


# ---- definition ------------------------------------------------------------------------------------------------


def create_procedure(interpreter: "Interpreter", reader: Reader, text: str) -> None:
    """CREATE [OR ALTER] PROCEDURE name parameters [WITH RECOMPILE] AS body."""
    either = reader.accept("OR", "ALTER")
    _define(interpreter, reader, text, create=True, alter=either)


def alter_procedure(interpreter: "Interpreter", reader: Reader, text: str) -> None:
    """ALTER PROCEDURE: like CREATE; id and creation date stay."""
    _define(interpreter, reader, text, create=False, alter=True)


def _define(interpreter: "Interpreter", reader: Reader, text: str, create: bool, alter: bool) -> None:
    session = interpreter.session
    reader.take()
    parts = read_name(reader)
    if parts[-1].startswith("#"):
        raise unsupported("temporary procedures")
    if len(parts) > 2:
        raise SqlError(
            166,
            "'CREATE/ALTER PROCEDURE' does not allow specifying the database name as a prefix to the object name.",
            15,
        )
    parameters = _read_parameters(reader)
    for number, parameter in enumerate(parameters, start=1):
        interpreter.type_named(parameter.type, number)
    if reader.accept("WITH") and reader.take().upper != "RECOMPILE":
        raise unsupported("CREATE PROCEDURE WITH other options than RECOMPILE")
    reader.expect("AS")
    body = reader.between(reader.place, len(reader.tokens))
    parse_batch(body)
    session.edit()
    database, schema = home(session, parts)
    known = database.procedure(schema, parts[-1])
    shape = module_shape(session, database, (schema, parts), known.shape if known else None, create=create, alter=alter)
    made = UserProcedure(shape, text, parameters, body)
    database.procedures = [other for other in database.procedures if other is not known] + [made]


def _read_parameters(reader: Reader) -> list[ProcedureParameter]:
    closed = reader.accept("(")
    found: list[ProcedureParameter] = []
    token = reader.token()
    while token is not None and token.kind is Kind.VARIABLE:
        found.append(_read_parameter(reader))
        if not reader.accept(","):
            break
        token = reader.token()
    if closed:
        reader.expect(")")
    if len({fold(parameter.name) for parameter in found}) < len(found):
        raise SqlError(134, "The variable names of a procedure's parameters must be unique.", 15)
    return found


def _read_parameter(reader: Reader) -> ProcedureParameter:
    name = reader.take().text
    reader.accept("AS")
    kind = read_until(reader, _AFTER_TYPE, ",=")
    if reader.word() in ("READONLY", "VARYING", "NULL", "NOT"):
        raise unsupported(f"{reader.word()} in a procedure's parameter")
    default = read_until(reader, _AFTER_DEFAULT, ",") if reader.accept("=") else None
    output = reader.accept("OUTPUT") or reader.accept("OUT")
    return ProcedureParameter(name, kind, default, output)


def drop_procedure(interpreter: "Interpreter", reader: Reader, text: str) -> None:
    """DROP PROCEDURE [IF EXISTS] a, b."""
    session = interpreter.session
    reader.take()
    quiet = reader.accept("IF", "EXISTS")
    while True:
        parts = read_name(reader)
        database_name, schema = SessionNames(session, interpreter.frame).place(parts)
        session.edit()
        database = certain(session.catalog.database(database_name), database_name)
        found = database.procedure(schema, parts[-1])
        if found is None and not quiet:
            raise SqlError(
                3701,
                f"Cannot drop the procedure '{'.'.join(parts)}', because it does not exist or you do not have permission.",
                11,
                5,
            )
        database.procedures = [other for other in database.procedures if other is not found]
        if not reader.accept(","):
            return


# ---- EXEC ------------------------------------------------------------------------------------------------------


def find(session: "EngineSession", name: str) -> UserProcedure | None:
    """The user procedure that a name means, or None."""
    parts = name_parts(name)
    if not parts:
        return None
    database = session.catalog.database(parts[-3] if len(parts) > 2 and parts[-3] else session.database)
    schema = parts[-2] if len(parts) > 1 and parts[-2] else "dbo"
    return database.procedure(schema, parts[-1]) if database else None


def call(interpreter: "Interpreter", procedure: UserProcedure, arguments: Sequence[Parameter]) -> int:
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
def _inside(session: "EngineSession", database: str) -> Iterator[None]:
    """The procedure's own database and SET options."""
    options = replace(session.options)
    with session.within(database):
        try:
            yield
        finally:
            session.options = options
            session.set_isolation(options.isolation)
            session.transaction.implicit = options.implicit_transactions
