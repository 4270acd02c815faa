"""Every class of driver error maps to one of ours, and no password gets out."""

import inspect
from types import SimpleNamespace
from typing import cast

import mssql_python
import pyodbc
import pytest
from mssql_python import exceptions as mssql_errors

from cdc_assets.adapters.sqlserver import bulk
from cdc_assets.adapters.sqlserver import session as sqlserver_session
from cdc_assets.adapters.sqlserver.bulk_sessions import BulkSession
from cdc_assets.adapters.sqlserver.errors import (
    AWAY,
    BUSY,
    CREDENTIALS,
    LOCKED,
    LOGIN,
    LOST,
    NO_CDC,
    NO_ROOM,
    OF_ONE_OBJECT,
    PERMISSION,
    clean,
    number_in,
    redact,
    to_cdc_error,
)
from cdc_assets.config.settings import ConnectionSettings
from cdc_assets.errors import (
    CdcError,
    ConfigurationError,
    ConnectionLostError,
    CredentialsError,
    DatabaseAwayError,
    LockTimeoutError,
    LoginError,
    ObjectDeniedError,
    PreflightError,
    QueryError,
    ServerBusyError,
)

SETTINGS = ConnectionSettings(host="db", user="reader", password="p;w}d", databases=("Sales",))
DRIVER = "[Microsoft][ODBC Driver 18 for SQL Server][ODBC Driver 18 for SQL Server]"


def odbc(state: str, text: str, number: int = 0) -> pyodbc.Error:
    return pyodbc.Error(state, f"[{state}] {DRIVER}[SQL Server]{text} ({number}) (SQLExecDirectW)")


PYODBC_CLASSES = [kind for kind in vars(pyodbc).values() if inspect.isclass(kind) and issubclass(kind, pyodbc.Error)]
MSSQL_CLASSES = [
    kind for kind in vars(mssql_errors).values() if inspect.isclass(kind) and issubclass(kind, mssql_errors.Error)
]


@pytest.mark.parametrize("kind", PYODBC_CLASSES, ids=lambda kind: kind.__name__)
def test_every_pyodbc_class_maps(kind: type[pyodbc.Error]) -> None:
    assert isinstance(sqlserver_session.translate(kind("HY000", "[HY000] x (0) (SQLFetch)"), SETTINGS), CdcError)
    assert isinstance(sqlserver_session.translate(kind("only a text"), SETTINGS), QueryError)
    assert isinstance(sqlserver_session.translate(kind(), SETTINGS), QueryError)


@pytest.mark.parametrize("kind", MSSQL_CLASSES, ids=lambda kind: kind.__name__)
def test_every_mssql_python_class_maps(kind: type[mssql_errors.Error]) -> None:
    error = bulk.translate(kind("General error", "[Microsoft][ODBC Driver 18 for SQL Server]x"), SETTINGS)
    assert isinstance(error, QueryError)
    assert "db:1433" in str(error)


def test_all_classes_were_found() -> None:
    assert {kind.__name__ for kind in PYODBC_CLASSES} >= {"OperationalError", "ProgrammingError", "InterfaceError"}
    assert {kind.__name__ for kind in MSSQL_CLASSES} >= {"OperationalError", "ProgrammingError", "InterfaceError"}
    assert issubclass(mssql_python.Error, mssql_errors.Exception)


NUMBERS = [
    (BUSY, ServerBusyError),
    (LOCKED, LockTimeoutError),
    (LOST, ConnectionLostError),
    (AWAY, DatabaseAwayError),
    (LOGIN, LoginError),
    (CREDENTIALS, CredentialsError),
    (NO_ROOM, ServerBusyError),
    (OF_ONE_OBJECT, ObjectDeniedError),
    (PERMISSION - OF_ONE_OBJECT, PreflightError),
    (NO_CDC, PreflightError),
    (frozenset({102, 207, 208, 313, 605, 824, 2627, 3952, 8653, 8655}), QueryError),
    (frozenset({703, 1221, 8649, 10936, 40545}), ServerBusyError),
    (frozenset({6006, 10061, 17188, 40143}), ConnectionLostError),
    (frozenset({926, 965, 987}), DatabaseAwayError),
]


@pytest.mark.parametrize(
    ("number", "expected"), [(number, kind) for numbers, kind in NUMBERS for number in sorted(numbers)]
)
def test_server_numbers(number: int, expected: type[CdcError]) -> None:
    error = sqlserver_session.translate(odbc("42000", "Something.", number), SETTINGS)
    assert type(error) is expected
    assert "Something" in str(error)
    if isinstance(error, QueryError):
        assert error.number == number


@pytest.mark.parametrize(
    ("state", "text", "expected"),
    [
        ("08S01", "TCP Provider: Error code 0x68", ConnectionLostError),
        ("08001", "TCP Provider: Error code 0x2749", ConnectionLostError),
        ("HYT01", "Connection timeout expired", ConnectionLostError),
        ("HYT00", "Login timeout expired", ConnectionLostError),
        ("HYT00", "Query timeout expired", ServerBusyError),
        ("HY008", "Operation canceled", ServerBusyError),
        ("40001", "Serialization failure", ServerBusyError),
        ("40003", "Statement completion unknown", ServerBusyError),
        ("HY001", "Memory allocation error", ServerBusyError),
        ("28000", "Login refused somehow", CredentialsError),
        ("08001", "SSL Provider: certificate verify failed", LoginError),
        ("08001", "Encryption not supported on SQL Server", LoginError),
        ("01000", "[unixODBC][Driver Manager]Can't open lib 'x' : file not found", ConfigurationError),
        ("IM002", "[unixODBC][Driver Manager]Data source name not found", ConfigurationError),
        ("HY000", "anything", QueryError),
    ],
)
def test_driver_states(state: str, text: str, expected: type[CdcError]) -> None:
    assert type(sqlserver_session.translate(odbc(state, text), SETTINGS)) is expected


@pytest.mark.parametrize(
    ("state", "text", "expected"),
    [
        ("08001", "[Microsoft][ODBC Driver 18 for SQL Server]TCP Provider: Error code 0x2749", ConnectionLostError),
        ("08S01", "[Microsoft][ODBC Driver 18 for SQL Server]Communication link failure", ConnectionLostError),
        ("HYT00", "[Microsoft][ODBC Driver 18 for SQL Server]Query timeout expired", ServerBusyError),
        ("28000", "[Microsoft][ODBC Driver 18 for SQL Server]Login failed for user 'reader'.", CredentialsError),
        (
            "42000",
            '[Microsoft][ODBC Driver 18 for SQL Server]Cannot open database "x" requested by the login.',
            LoginError,
        ),
        (
            "40001",
            "[Microsoft][ODBC Driver 18 for SQL Server]Transaction (Process ID 5) was deadlocked on lock resources",
            ServerBusyError,
        ),
        ("HY000", "[Microsoft][ODBC Driver 18 for SQL Server]Lock request time out period exceeded.", LockTimeoutError),
        (
            "42000",
            "[Microsoft][ODBC Driver 18 for SQL Server]Transaction aborted when accessing versioned row in table 'a' in "
            "database 'b'. Requested versioned row was not found. Your tempdb is probably out of space.",
            ServerBusyError,
        ),
        (
            "42000",
            "[Microsoft][ODBC Driver 18 for SQL Server]The transaction was terminated because of the availability replica "
            "config/state change or because ghost records are being deleted on the primary. Retry the transaction.",
            ServerBusyError,
        ),
        (
            "42000",
            "[Microsoft][ODBC Driver 18 for SQL Server]Unable to access database 'a' because it lacks a quorum of nodes "
            "for high availability. Try the operation again later.",
            ConnectionLostError,
        ),
        (
            "HY000",
            "[Microsoft][ODBC Driver 18 for SQL Server]The log for database 'a' is not available.",
            DatabaseAwayError,
        ),
        ("42S02", "[Microsoft][ODBC Driver 18 for SQL Server]Invalid object name 'cdc.change_tables'.", QueryError),
        (
            "42000",
            "[Microsoft][ODBC Driver 18 for SQL Server]The SELECT permission was denied on the object 't'.",
            ObjectDeniedError,
        ),
    ],
)
def test_mssql_python_states(state: str, text: str, expected: type[CdcError]) -> None:
    original = mssql_errors.sqlstate_to_exception(state, text)
    assert type(bulk.translate(original, SETTINGS)) is expected


def test_mssql_python_numbers_by_text() -> None:
    error = bulk.translate(
        mssql_errors.ProgrammingError("x", "[Microsoft][ODBC Driver 18 for SQL Server]Invalid object name 'a'."),
        SETTINGS,
    )
    assert isinstance(error, QueryError)
    assert error.number == 208


def test_errors_that_are_no_dbapi_errors() -> None:
    assert isinstance(bulk.translate(RuntimeError("fetch failed"), SETTINGS), QueryError)
    with pytest.raises(ValueError) as error:  # the driver package stumbles over its own prefix: bulk catches this too
        mssql_errors.OperationalError("x", "[Microsoft]no second bracket")
    assert isinstance(bulk.translate(error.value, SETTINGS), QueryError)
    parse = mssql_errors.ConnectionStringParseError(["Unknown keyword", "PWD=p;w}d"])
    assert "p;w}d" not in str(bulk.translate(parse, SETTINGS))


@pytest.mark.parametrize(
    "text",
    [
        "Server={db};PWD={p;w}}d};Encrypt={no}",
        "server=db;pwd=secret1;x=y",
        "Password = secret1",
        "it said p;w}d to me",
    ],
)
def test_passwords_are_hidden(text: str) -> None:
    shown = redact(text, ("p;w}d", ""))
    assert "w}}d" not in shown
    assert "secret1" not in shown
    assert "p;w}d" not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "Conversion failed when converting the varchar value '078-05-1120' to data type int.",
            "the varchar value (hidden) to",
        ),
        (
            "The conversion of the nvarchar value 'it''s\n078' overflowed an int column.",
            "the nvarchar value (hidden) overflowed",
        ),
        (
            "Arithmetic overflow error for data type tinyint, value = 078.",
            "error for data type tinyint, value = (hidden)",
        ),
        ("Arithmetic overflow error for type int, value = -1.078000e+19.", "for type int, value = (hidden)"),
        ("Cannot insert the value NULL into column 'x'", "value NULL into column 'x'"),
    ],
)
def test_values_of_rows_are_not_shown(text: str, shown: str) -> None:
    found = to_cdc_error("42000", f"[42000] [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]{text} (245)", "h:1")
    assert shown in str(found)
    assert "078" not in str(found)


def test_redaction_reaches_every_message() -> None:
    for state in ("08001", "28000", "HYT00", "42000", "01000"):
        error = to_cdc_error(state, f"[{state}] Can't open p;w}}d (0) (SQLDriverConnect)", "db", (SETTINGS.password,))
        assert "p;w}d" not in str(error)


def test_layers_are_not_shown() -> None:
    assert clean(f"[28000] {DRIVER}[SQL Server]Login failed. (18456) (SQLDriverConnect)") == "Login failed"
    assert clean(f"[42000] {DRIVER}a (1) (SQLx); [42000] {DRIVER}b (2)") == "a; b"
    assert number_in(f"[42000] {DRIVER}x (0) (SQLx); [42000] y (208) (SQLx)") == 208
    assert number_in("no number") is None


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (605, "Attempt to fetch logical page (1:312) in database 5 failed. It belongs to allocation unit 7 not to 9."),
        (
            823,
            "The operating system returned error 23(Data error (cyclic redundancy check).) to SQL Server during a read at offset "
            "0x00000000270000 in file '/var/opt/mssql/data/Sales.mdf'. Additional messages in the SQL Server error log may provide more detail.",
        ),
        (
            824,
            "SQL Server detected a logical consistency-based I/O error: incorrect pageid (expected 1:312; actual 0:0). It occurred during a "
            "read of page (1:312) in database ID 5 at offset 0x00000000270000 in file '/var/opt/mssql/data/Sales.mdf'.",
        ),
        (
            3624,
            "A system assertion check has failed. Check the SQL Server error log for details. Typically, an assertion failure is caused by a "
            "software bug or data corruption.",
        ),
    ],
)
def test_damage_of_one_table_is_not_taken_for_a_lost_connection_that_it_ends(number: int, text: str) -> None:
    closed = cast("BulkSession", SimpleNamespace(tcp=SimpleNamespace(is_closed=lambda: True)))
    original = mssql_errors.OperationalError("x", f"[Microsoft][ODBC Driver 18 for SQL Server]{text}")
    error = bulk.translate(original, SETTINGS, closed)
    assert isinstance(error, QueryError)
    assert error.number == number
