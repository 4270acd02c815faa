"""Remote procedure calls: prepared statements here, everything else to the session."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mssql_standin.contract import Parameter, ResultColumn, Session
from mssql_standin.errors import SqlError, unsupported
from mssql_standin.sqltypes import BIT, INT, MAX, SMALLINT, SYSNAME, TINYINT, SqlType, Value
from mssql_standin.wire.binding import Declaration, bind, read_declarations
from mssql_standin.wire.request import Call
from mssql_standin.wire.response import Response
from mssql_standin.wire.typeinfo import type_info


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a handle stands for."""

    text: str
    declarations: tuple[Declaration, ...]


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """What a handle of sp_prepexecrpc stands for: ODBC's `{call p(?)}`."""

    procedure: str


@dataclass(slots=True)
class Outcome:
    """What a call leaves: its status and the parameters to send back, with their places."""

    status: int
    outputs: list[tuple[int, Parameter]]


class Procedures:
    """The calls of one connection; handles live until the connection is reset."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._handles: dict[int, Prepared | PreparedCall] = {}
        self._last_handle = 0
        self._own: dict[str, Callable[[list[Parameter], Response], Outcome]] = {
            "sp_executesql": self._execute_sql,
            "sp_prepare": self._prepare,
            "sp_prepexec": self._prepare_and_execute,
            "sp_prepexecrpc": self._prepare_and_call,
            "sp_execute": self._execute,
            "sp_unprepare": self._unprepare,
            "sp_describe_undeclared_parameters": self._describe,
        }

    def reset(self) -> None:
        """Forget all handles."""
        self._handles.clear()

    def statement(self, call: Call) -> str:
        """The text that a call is about, for fault injection."""
        bare = _bare(call.procedure)
        if bare == "sp_execute" and call.parameters and call.parameters[0].value in self._handles:
            known = self._handles[call.parameters[0].value]  # type: ignore[index]  # it is an int: found above
            return known.text if isinstance(known, Prepared) else f"EXEC {known.procedure}"
        if bare == "sp_prepexecrpc":
            return f"EXEC {_text(call.parameters, 1, '@rpc_call')}"
        place = {"sp_executesql": 0, "sp_prepare": 2, "sp_prepexec": 2}.get(bare, -1)
        if 0 <= place < len(call.parameters) and isinstance(call.parameters[place].value, str):
            return str(call.parameters[place].value)
        return f"EXEC {call.procedure}"

    def run(self, call: Call, response: Response) -> Outcome:
        """Run a call.

        Raises:
            SqlError: the call itself is wrong; errors of statements go to the response.
        """
        bare = _bare(call.procedure)
        if bare in self._own:
            return self._own[bare](call.parameters, response)
        if bare.startswith("sp_cursor"):
            raise unsupported(f"the procedure {bare}")
        return self._call(call.procedure, call.parameters, 0, response)

    def _call(self, procedure: str, parameters: list[Parameter], first: int, response: Response) -> Outcome:
        """Call a procedure whose arguments begin at place `first`."""
        arguments = parameters[first:]
        status = self._session.call(procedure, arguments, response)
        return Outcome(status, [(place, given) for place, given in enumerate(arguments, first) if given.output])

    def _execute_sql(self, parameters: list[Parameter], response: Response) -> Outcome:
        text = _text(parameters, 0, "@stmt")
        declarations = read_declarations(_text(parameters, 1, "@params")) if len(parameters) > 1 else ()
        return self._run(Prepared(text, declarations), parameters, 2, response)

    def _prepare(self, parameters: list[Parameter], response: Response) -> Outcome:
        return self._give_handle(parameters, self._prepared(parameters), Outcome(0, []))

    def _prepare_and_execute(self, parameters: list[Parameter], response: Response) -> Outcome:
        """The handle that comes in belonged to the same statement object: it is not used again (spec standin §4)."""
        old = parameters[0].value if parameters else None
        if isinstance(old, int):
            self._handles.pop(old, None)
        prepared = self._prepared(parameters)
        return self._give_handle(parameters, prepared, self._run(prepared, parameters, 3, response))

    def _prepare_and_call(self, parameters: list[Parameter], response: Response) -> Outcome:
        old = parameters[0].value if parameters else None
        if isinstance(old, int):
            self._handles.pop(old, None)
        prepared = PreparedCall(_text(parameters, 1, "@rpc_call"))
        return self._give_handle(parameters, prepared, self._call(prepared.procedure, parameters, 2, response))

    def _prepared(self, parameters: list[Parameter]) -> Prepared:
        if len(parameters) < 3:
            raise SqlError(201, "Procedure or function 'sp_prepare' expects parameter '@stmt', which was not supplied.")
        return Prepared(_text(parameters, 2, "@stmt"), read_declarations(_text(parameters, 1, "@params")))

    def _give_handle(self, parameters: list[Parameter], prepared: Prepared | PreparedCall, outcome: Outcome) -> Outcome:
        self._last_handle += 1
        self._handles[self._last_handle] = prepared
        handle = Parameter(parameters[0].name, INT, self._last_handle, output=True)
        return Outcome(outcome.status, [(0, handle), *outcome.outputs])

    def _execute(self, parameters: list[Parameter], response: Response) -> Outcome:
        known = self._known(parameters)
        if isinstance(known, PreparedCall):
            return self._call(known.procedure, parameters, 1, response)
        return self._run(known, parameters, 1, response)

    def _unprepare(self, parameters: list[Parameter], response: Response) -> Outcome:
        self._known(parameters)
        self._handles.pop(parameters[0].value, None)  # type: ignore[arg-type]  # an int: `_known` found it
        return Outcome(0, [])

    def _known(self, parameters: list[Parameter]) -> Prepared | PreparedCall:
        handle = parameters[0].value if parameters else None
        if not isinstance(handle, int) or handle not in self._handles:
            raise SqlError(8179, f"Could not find prepared statement with handle {handle!r}.")
        return self._handles[handle]

    def _run(self, prepared: Prepared, parameters: list[Parameter], first: int, response: Response) -> Outcome:
        """Run a statement whose values begin at place `first` of the call."""
        bound = bind(prepared.text, prepared.declarations, parameters[first:], self._session.type_named)
        status = self._session.execute_sql(prepared.text, bound, response)
        return Outcome(status, _outputs(bound, parameters, first))

    def _describe(self, parameters: list[Parameter], response: Response) -> Outcome:
        described = self._session.describe_parameters(_text(parameters, 0, "@tsql"))
        response.columns(_DESCRIPTION)
        response.done(response.rows(_description(described)))
        return Outcome(0, [])


def _outputs(bound: Sequence[Parameter], sent: Sequence[Parameter], first: int) -> list[tuple[int, Parameter]]:
    """The parameters to send back, with the places at which they came in."""
    wanted = [(first + order, parameter) for order, parameter in enumerate(bound) if parameter.output]
    if not wanted:
        return wanted
    places = {given.name.casefold(): place for place, given in enumerate(sent) if given.name}
    return [(places.get(parameter.name.casefold(), place), parameter) for place, parameter in wanted]


@lru_cache(maxsize=1024)
def _bare(procedure: str) -> str:
    """Name without schema and brackets, folded."""
    return procedure.rsplit(".", 1)[-1].strip("[] ").casefold()


def _text(parameters: Sequence[Parameter], place: int, name: str) -> str:
    """A text argument, by name or place; NULL is empty."""
    found = parameters[place] if place < len(parameters) else None
    if found is None or found.name:
        found = next((given for given in parameters if given.name.casefold() == name), found)
    if found is None:
        raise SqlError(201, f"Procedure or function expects parameter '{name}', which was not supplied.")
    if found.value is not None and not isinstance(found.value, str):
        raise SqlError(214, f"Procedure expects parameter '{name}' of type 'ntext/nchar/nvarchar'.")
    return found.value or ""


_DESCRIPTION: Final = [
    ResultColumn("parameter_ordinal", INT, nullable=False),
    ResultColumn("name", SYSNAME, nullable=False),
    ResultColumn("suggested_system_type_id", INT, nullable=False),
    ResultColumn("suggested_system_type_name", SqlType("nvarchar", 256)),
    ResultColumn("suggested_max_length", SMALLINT, nullable=False),
    ResultColumn("suggested_precision", TINYINT, nullable=False),
    ResultColumn("suggested_scale", TINYINT, nullable=False),
    ResultColumn("suggested_user_type_id", INT),
    ResultColumn("suggested_user_type_database", SYSNAME),
    ResultColumn("suggested_user_type_schema", SYSNAME),
    ResultColumn("suggested_user_type_name", SYSNAME),
    ResultColumn("suggested_assembly_qualified_type_name", SqlType("nvarchar", 4000)),
    ResultColumn("suggested_xml_collection_id", INT),
    ResultColumn("suggested_xml_collection_database", SYSNAME),
    ResultColumn("suggested_xml_collection_schema", SYSNAME),
    ResultColumn("suggested_xml_collection_name", SYSNAME),
    ResultColumn("suggested_is_xml_document", BIT, nullable=False),
    ResultColumn("suggested_is_case_sensitive", BIT, nullable=False),
    ResultColumn("suggested_is_fixed_length_clr_type", BIT, nullable=False),
    ResultColumn("suggested_is_input", BIT, nullable=False),
    ResultColumn("suggested_is_output", BIT, nullable=False),
    ResultColumn("formal_parameter_name", SYSNAME),
    ResultColumn("suggested_tds_type_id", INT, nullable=False),
    ResultColumn("suggested_tds_length", INT, nullable=False),
]
"""Result of sp_describe_undeclared_parameters (vendor page of that procedure)."""

_PRECISION: Final = {
    "bit": (1, 0), "tinyint": (3, 0), "smallint": (5, 0), "int": (10, 0), "bigint": (19, 0), "real": (24, 0), "float": (53, 0),
    "money": (19, 4), "smallmoney": (10, 4), "date": (10, 0), "datetime": (23, 3), "smalldatetime": (16, 0),
}  # fmt: skip
_TIME_DIGITS: Final = {"time": 8, "datetime2": 19, "datetimeoffset": 26}


def _precision(sql_type: SqlType) -> tuple[int, int]:
    if sql_type.name in _TIME_DIGITS:
        return _TIME_DIGITS[sql_type.name] + (sql_type.scale + 1 if sql_type.scale else 0), sql_type.scale
    if sql_type.name in ("decimal", "numeric"):
        return sql_type.precision, sql_type.scale
    return _PRECISION.get(sql_type.name, (0, 0))


def _description(parameters: Sequence[Parameter]) -> Iterator[tuple[Value, ...]]:
    for ordinal, parameter in enumerate(parameters, start=1):
        precision, scale = _precision(parameter.type)
        declared = str(parameter.type)
        tds_type = type_info(parameter.type)[0]
        tds_length = 65535 if parameter.type.length == MAX else max(parameter.type.max_length, 0)
        head = (
            ordinal,
            parameter.name,
            parameter.type.system_id,
            declared,
            parameter.type.max_length,
            precision,
            scale,
        )
        yield (*head, *[None] * 9, 0, 0, 0, 1, 0, None, tds_type, tds_length)
