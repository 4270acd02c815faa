"""A client inside the process: statements to the engine without a driver, values as Python objects.

For seeding, the sample and the workload. It follows DB-API as far as those need it: `?`
markers, `execute`, `fetch*`, `commit`. What drivers do to values is not tested here.
"""

import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Final, Self

from mssql_standin.contract import Parameter, ResultColumn, Session
from mssql_standin.errors import SqlError, unsupported
from mssql_standin.sqltypes import (
    BIGINT,
    BIT,
    DATE,
    DECIMAL,
    FLOAT,
    INT,
    MAX,
    MONEY,
    UNIQUEIDENTIFIER,
    SqlType,
    Value,
    decimal_from_stored,
    decimal_to_stored,
    guid_from_stored,
    guid_to_stored,
    offset_from_stored,
    offset_to_stored,
)

_EPOCH: Final = datetime(1, 1, 1)
_1900: Final = datetime(1900, 1, 1)

_MARKERS: Final = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|\[[^\]]*\]|--[^\n]*|/\*.*?\*/|\?", re.DOTALL)


def to_parameter(name: str, value: object) -> Parameter:
    """A parameter of the type that suits a Python value.

    Raises:
        SqlError: for a Python type without counterpart.
    """
    if isinstance(value, bool):
        return Parameter(name, BIT, int(value))
    if isinstance(value, int):
        return Parameter(name, INT if -(2**31) <= value < 2**31 else BIGINT, value)
    if isinstance(value, float):
        return Parameter(name, FLOAT, value)
    if isinstance(value, Decimal):
        return _decimal_parameter(name, value)
    if isinstance(value, str):
        units = len(value.encode("utf-16-le", "surrogatepass")) // 2
        return Parameter(name, SqlType("nvarchar", max(units, 1) if units <= 4000 else MAX), value)
    if isinstance(value, bytes | bytearray):
        return Parameter(name, SqlType("varbinary", max(len(value), 1) if len(value) <= 8000 else MAX), bytes(value))
    return _rare_parameter(name, value)


def _decimal_parameter(name: str, value: Decimal) -> Parameter:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise unsupported(f"the decimal {value}")
    scale = max(-exponent, 0)
    scaled = int("".join(map(str, digits))) * 10 ** max(exponent, 0) * (-1 if sign else 1)
    sql_type = SqlType("decimal", precision=min(max(len(str(abs(scaled))), scale, 1), 38), scale=min(scale, 38))
    return Parameter(name, sql_type, decimal_to_stored(scaled, sql_type))


def _rare_parameter(name: str, value: object) -> Parameter:
    if isinstance(value, datetime):
        offset = value.utcoffset()
        if offset is None:
            return Parameter(name, SqlType("datetime2", scale=7), _ticks(value - _EPOCH))
        ticks = _ticks(value.replace(tzinfo=None) - offset - _EPOCH)
        stored = offset_to_stored(ticks, int(offset.total_seconds()) // 60)
        return Parameter(name, SqlType("datetimeoffset", scale=7), stored)
    if isinstance(value, date):
        return Parameter(name, DATE, value.toordinal() - 1)
    if isinstance(value, time):
        return Parameter(name, SqlType("time", scale=7), _ticks(datetime.combine(_EPOCH, value) - _EPOCH))
    if isinstance(value, uuid.UUID):
        return Parameter(name, UNIQUEIDENTIFIER, guid_to_stored(value.bytes_le))
    raise unsupported(f"parameters of the Python type {type(value).__name__}")


def _ticks(span: timedelta) -> int:
    return ((span.days * 86400 + span.seconds) * 1_000_000 + span.microseconds) * 10


def to_python(value: Value, sql_type: SqlType) -> Any:
    """A stored value as the Python object that pyodbc would give; datetimeoffset as an aware datetime."""
    name = sql_type.name
    if value is None:
        return None
    if isinstance(value, int | bytes) and (name in DECIMAL or name in MONEY):
        return Decimal(decimal_from_stored(value)).scaleb(-(sql_type.scale if name in DECIMAL else 4))
    if isinstance(value, int):
        return _from_integer(value, name)
    if isinstance(value, bytes) and name == "uniqueidentifier":
        return str(uuid.UUID(bytes_le=guid_from_stored(value))).upper()
    if isinstance(value, bytes) and name == "datetimeoffset":
        ticks, minutes = offset_from_stored(value)
        zone = timezone(timedelta(minutes=minutes))
        return (_EPOCH + timedelta(microseconds=ticks // 10) + timedelta(minutes=minutes)).replace(tzinfo=zone)
    return value


def _from_integer(value: int, name: str) -> Any:
    if name == "bit":
        return bool(value)
    if name == "date":
        return date.fromordinal(value + 1)
    if name == "time":
        return (_EPOCH + timedelta(microseconds=value // 10)).time()
    if name == "datetime2":
        return _EPOCH + timedelta(microseconds=value // 10)
    if name == "datetime":
        days, thirds = divmod(value, 86400 * 300)
        return _1900 + timedelta(days=days, milliseconds=(thirds * 10 + 1) // 3)
    if name == "smalldatetime":
        return _1900 + timedelta(minutes=value)
    return value


@dataclass(slots=True)
class _Result:
    columns: Sequence[ResultColumn] | None = None
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    count: int = -1


class _Collector:
    """A sink that keeps results as Python values and the first error."""

    def __init__(self) -> None:
        self.results: list[_Result] = []
        self.messages: list[SqlError] = []
        self.failure: SqlError | None = None
        self._open: _Result | None = None

    def columns(self, columns: Sequence[ResultColumn]) -> None:
        self._open = _Result(list(columns))

    def rows(self, rows: Iterable[Sequence[Value]]) -> int:
        if self._open is None or self._open.columns is None:
            raise RuntimeError("rows before columns")
        types = [column.type for column in self._open.columns]
        found = [tuple(map(to_python, row, types)) for row in rows]
        self._open.rows += found
        return len(found)

    def blocks(self, blocks: Iterable[tuple[int, bytes]]) -> int:
        raise RuntimeError("encoded rows are for the wire only")

    def done(self, count: int | None = None) -> None:
        result, self._open = self._open or _Result(), None
        result.count = -1 if count is None else count
        if result.columns is not None or count is not None:
            self.results.append(result)

    def message(self, message: SqlError) -> None:
        self.messages.append(message)

    def error(self, error: SqlError) -> None:
        self.failure = self.failure or error

    def database_changed(self, old: str, new: str) -> None:
        """Nothing to do: the session knows."""

    def check(self) -> None:
        """Nobody cancels."""


class Cursor:
    """Results of one statement at a time."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._results: list[_Result] = []
        self._place = 0

    def execute(self, statement: str, *parameters: Any) -> Self:
        """Run a statement.

        Args:
            statement: T-SQL with `?` markers.
            parameters: their values, or one tuple or list of them.

        Raises:
            SqlError: the first error of the statement.
        """
        if len(parameters) == 1 and isinstance(parameters[0], tuple | list):
            parameters = tuple(parameters[0])
        self._results, self._place = self._connection.run(statement, parameters), 0
        return self

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for each row of parameters."""
        for row in rows:
            self.execute(statement, *row)

    @property
    def _result(self) -> _Result:
        return self._results[0] if self._results else _Result()

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """Column names and types of the current result."""
        columns = self._result.columns
        return None if columns is None else [(c.name, c.type, None, None, None, None, c.nullable) for c in columns]

    @property
    def rowcount(self) -> int:
        """Rows that the current result has, or that the statement changed; -1 if not counted."""
        return self._result.count

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None."""
        rows = self._result.rows
        if self._place >= len(rows):
            return None
        self._place += 1
        return rows[self._place - 1]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        rest, self._place = self._result.rows[self._place :], len(self._result.rows)
        return rest

    def fetchval(self) -> Any:
        """First value of the next row, or None."""
        row = self.fetchone()
        return None if row is None else row[0]

    def nextset(self) -> bool:
        """Go to the next result; False if there is none."""
        self._results, self._place = self._results[1:], 0
        return bool(self._results)

    def close(self) -> None:
        """Let the results go."""
        self._results = []


class Connection:
    """A session of the engine.

    Args:
        session: its own.
        autocommit: False begins a transaction before the first statement after a commit.
    """

    def __init__(self, session: Session, autocommit: bool = True) -> None:
        self.session, self.autocommit = session, autocommit

    def cursor(self) -> Cursor:
        """A cursor; several may be open, since results are kept in memory."""
        return Cursor(self)

    def execute(self, statement: str, *parameters: Any) -> Cursor:
        """`cursor().execute(…)`."""
        return self.cursor().execute(statement, *parameters)

    def run(self, statement: str, parameters: Sequence[Any]) -> list[_Result]:
        """Run a statement; returns its results. Raises SqlError."""
        if not self.autocommit and not self.session.in_transaction:
            self.session.begin()
        text, given = _named(statement, parameters)
        sink = _Collector()
        if given:
            self.session.execute_sql(text, given, sink)
        else:
            self.session.batch(text, sink)
        if sink.failure is not None:
            raise sink.failure
        rows_first = [result for result in sink.results if result.columns is not None]
        return rows_first or sink.results

    def commit(self) -> None:
        """Commit, if a transaction is open."""
        if self.session.in_transaction:
            self.session.commit()

    def rollback(self) -> None:
        """Roll back, if a transaction is open."""
        if self.session.in_transaction:
            self.session.rollback()

    def close(self) -> None:
        """Roll back and end the session."""
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _named(statement: str, values: Sequence[Any]) -> tuple[str, list[Parameter]]:
    """Markers become `@P1` …; a None becomes the literal NULL, which suits every type."""
    given, place = list[Parameter](), 0

    def replace(found: re.Match[str]) -> str:
        nonlocal place
        if found[0] != "?":
            return found[0]
        if place >= len(values):
            raise SqlError(8178, f"The statement has more markers than its {len(values)} values.")
        value, place = values[place], place + 1
        if value is None:
            return "NULL"
        given.append(to_parameter(f"@P{place}", value))
        return f"@P{place}"

    text = _MARKERS.sub(replace, statement)
    if place != len(values):
        raise SqlError(8144, f"The statement has {place} markers, but {len(values)} values were given.")
    return text, given
