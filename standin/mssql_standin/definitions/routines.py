"""CREATE [OR ALTER] and DROP PROCEDURE.

A procedure is kept as text. Its body is parsed when it is defined, so far as statements go; names and expressions are looked at
when a statement runs (`batches.routines`).
"""

from typing import Final

from mssql_standin.catalog import ProcedureParameter, UserProcedure, fold
from mssql_standin.certain import certain
from mssql_standin.definitions.objects import home, module_shape
from mssql_standin.definitions.ports import DefinitionInterpreter
from mssql_standin.errors import SqlError, unsupported
from mssql_standin.queries.names import SessionNames
from mssql_standin.text.batch import parse_batch
from mssql_standin.text.clauses import read_name, read_until
from mssql_standin.text.lexer import Kind
from mssql_standin.text.reader import Reader

_AFTER_TYPE: Final = frozenset({"OUTPUT", "OUT", "READONLY", "AS", "WITH", "NULL", "NOT", "VARYING", "FOR"})


_AFTER_DEFAULT: Final = frozenset({"OUTPUT", "OUT", "READONLY", "AS", "WITH", "FOR"})


def create_procedure(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """CREATE [OR ALTER] PROCEDURE name parameters [WITH RECOMPILE] AS body."""
    session = interpreter.session
    alter = reader.accept("OR", "ALTER")
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
    shape = module_shape(session, database, schema, parts[-1], known.shape if known else None, alter)
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


def drop_procedure(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
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
