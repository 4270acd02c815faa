"""An engine whose answers the test writes: the wire alone is under test."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mssql_standin.contract import Fault, Login, Parameter, ResultColumn, ResultSink
from mssql_standin.errors import SqlError, unknown_type
from mssql_standin.sqltypes import INT, SYSNAME, SqlType, Value

Answer = Callable[["ScriptedSession", Sequence[Parameter], ResultSink], int]


@dataclass
class ScriptedEngine:
    """Statements are looked up by their text, stripped; what is not there selects its parameters."""

    answers: dict[str, Answer] = field(default_factory=dict)
    name: str = "standin"
    fault: Fault | None = None
    sessions: list["ScriptedSession"] = field(default_factory=list)
    described: list[Parameter] = field(default_factory=list)

    def open(self, login: Login) -> "ScriptedSession":
        if login.password != "secret":
            raise SqlError(18456, f"Login failed for user '{login.user}'.", 14)
        session = ScriptedSession(self, login)
        self.sessions.append(session)
        return session

    def before_statement(self, session: object, text: str) -> Fault | None:
        fault, self.fault = self.fault, None
        return fault

    def select(self, text: str, columns: Sequence[ResultColumn], rows: Sequence[Sequence[Value]]) -> None:
        """The statement answers with these rows."""

        def answer(session: ScriptedSession, parameters: Sequence[Parameter], sink: ResultSink) -> int:
            sink.columns(columns)
            sink.done(sink.rows(rows))
            return 0

        self.answers[text] = answer


class ScriptedSession:
    """One login."""

    def __init__(self, engine: ScriptedEngine, login: Login) -> None:
        self.engine, self.login = engine, login
        self.session_id, self.database, self.in_transaction = 51, login.database or "master", False
        self.log: list[str] = []
        self.closed = threading.Event()

    def batch(self, text: str, sink: ResultSink) -> None:
        self.execute_sql(text, [], sink)

    def execute_sql(self, text: str, parameters: Sequence[Parameter], sink: ResultSink) -> int:
        self.log.append(text)
        answer = self.engine.answers.get(text.strip())
        if answer is not None:
            return answer(self, parameters, sink)
        if parameters:
            sink.columns([ResultColumn(parameter.name, parameter.type) for parameter in parameters])
            sink.done(sink.rows([[parameter.value for parameter in parameters]]))
        else:
            sink.columns([ResultColumn("one", INT, nullable=False)])
            sink.done(sink.rows([(1,)]))
        return 0

    def call(self, procedure: str, arguments: Sequence[Parameter], sink: ResultSink) -> int:
        self.log.append(procedure)
        if procedure.endswith("sp_datatype_info_100"):
            return _type_info(arguments[0].value, sink)
        answer = self.engine.answers.get(procedure)
        if answer is None:
            raise SqlError(2812, f"Could not find stored procedure '{procedure}'.")
        return answer(self, arguments, sink)

    def type_named(self, text: str, number: int) -> SqlType:
        raise unknown_type(text, number)

    def describe_parameters(self, text: str) -> Sequence[Parameter]:
        return self.engine.described

    def begin(self, name: str = "", isolation: str | None = None) -> int:
        self.log.append(f"begin {isolation or ''}".strip())
        self.in_transaction = True
        return 77

    def commit(self) -> None:
        self.log.append("commit")
        self.in_transaction = False

    def rollback(self, name: str = "") -> None:
        self.log.append("rollback")
        self.in_transaction = False

    def save(self, name: str) -> None:
        self.log.append(f"save {name}")

    def reset(self) -> None:
        self.log.append("reset")
        self.in_transaction = False

    def close(self) -> None:
        self.closed.set()


def _type_info(data_type: Value, sink: ResultSink) -> int:
    """As much of sp_datatype_info as pyodbc reads: the size in the third column."""
    sink.columns([ResultColumn("TYPE_NAME", SYSNAME), ResultColumn("DATA_TYPE", INT), ResultColumn("PRECISION", INT)])
    sink.done(sink.rows([("any", 0, 27 if data_type == 93 else 8000)]))
    return 0


def column(name: str, sql_type: SqlType) -> ResultColumn:
    """A nullable column."""
    return ResultColumn(name, sql_type)
