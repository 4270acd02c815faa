"""Translates errors of both drivers to the project's error tree.

SQL Server's error number decides first, then the SQLSTATE. pyodbc gives both; mssql-python gives neither, only a text
for the SQLSTATE, so for it the number is derived from the server's message.

A number that is not listed is retried if its neighbours concern a connection, the state of a database, or a resource,
for such errors pass. Any other one counts as refusing that statement: a table that fails by it is tried again, too, but after
pauses and without holding up others.
https://learn.microsoft.com/en-us/sql/relational-databases/errors-events/database-engine-events-and-errors
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from cdc_assets.core.identifiers import quote
from cdc_assets.errors import (
    CdcDisabledError,
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

BUSY = frozenset(
    {
        *(601, 701, 802, 1204, 1205, 3947, 3948, 3958, 3960, 3961, 3966, 3967, 8645, 8651, 10928, 10929, 40501, 49918),
        *(49919, 49920),
    }
)
"""Rows moved under a read without locks, memory, locks, deadlock, a replica that ended the transaction, update conflict,
structure changed since the snapshot, no space for row versions, Azure SQL throttling."""
LOCKED = frozenset({1222})
"""Lock time-out."""
LOST = frozenset(
    {
        *(64, 121, 233, 596, 976, 978, 982, 983, 988, 4221, 6005, 10053, 10054, 10060, 17142, 18401, 40197, 40549),
        *(40550, 40613),
    }
)
"""Socket broken, session killed, replica not readable now, server starting, stopping or moving."""
AWAY = frozenset({911, 922, 923, 924, 927, 942, 945, 952, 955, 9001})
"""Database gone, recovering, restricted, being restored, offline, suspect or in transition; its log is not available."""
NO_ROOM = frozenset({1101, 1104, 1105, 3959, 9002, 40544, 40551, 40552, 40553})
"""A file group, tempdb, the version store or the transaction log is full, or a quota of Azure SQL is used up."""
CREDENTIALS = frozenset({18452, 18456, 18470, 18486, 18487, 18488})
"""User or password refused."""
LOGIN = frozenset({916, 4060, 4064, 40615})
"""Database or address refused."""
PERMISSION = frozenset({229, 230, 262, 297, 300, 371, 378, 15247, 22902, 22904, 22914, 22981})
"""Permission missing."""
OF_ONE_OBJECT = frozenset({229, 230})
"""Permission on one object, or on one column of it, missing."""
_NO_USER = 916
"""The login has no user in a database."""
INVALID_OBJECT = 208
"""No such table, view or function."""
NO_CDC = frozenset({22901, 22910})
"""Change data capture is not enabled where a CDC procedure was called."""

_RESOURCES = (
    *(range(701, 800), range(1201, 1300), range(8640, 8653), range(8656, 8660), range(10920, 10940)),
    range(40540, 40560),
)
"""Numbers of memory, locks, grants of memory, limits of Azure SQL and sessions that it ended; those between concern one table, whose
file group is offline or whose index is disabled."""
_CONNECTIONS = (range(6001, 6010), range(10050, 10070), range(17140, 17200), range(40140, 40200))
"""Numbers of servers that stop, sockets, servers that start, and databases of Azure SQL that move."""
_STATES = (range(901, 1000),)
"""Numbers of databases that cannot be opened or used now."""

_NUMBER = re.compile(r"\((\d{1,6})\) \(SQL")
_PREFIX = re.compile(
    r"(?:(?<=^)|(?<=; ))\[[0-9A-Z]{5}\] ?|\[Microsoft\]|\[ODBC Driver [^\]]*\]|\[SQL Server\]|\[unixODBC\]|\[Driver Manager\]"
)
_SUFFIX = re.compile(r" \(\d+\)(?: \(SQL\w+\))?(?=;|$)")
_PASSWORD = re.compile(r"(?i)\b(pwd|password)\s*=\s*(\{(?:[^}]|\}\})*\}|[^;]*)")
_VALUE = re.compile(r"( value )'.*'(?= to data type | overflowed )|(, value = )[-+.\w]*\w", re.DOTALL)
"""Values of rows in messages of conversions that failed; by a condition of a signal they may be of any column."""

_TEXTS: tuple[tuple[str, int], ...] = (
    ("was deadlocked on", 1205),
    ("Attempt to fetch logical page", 605),
    ("to SQL Server during a", 823),
    ("logical consistency-based I/O error", 824),
    ("A system assertion check has failed", 3624),
    ("Lock request time out period exceeded", 1222),
    ("Could not continue scan with NOLOCK", 601),
    ("Snapshot isolation transaction aborted due to update conflict", 3960),
    ("Snapshot isolation transaction failed accessing database", 3952),
    ("Retry the transaction", 3948),
    ("because the object accessed by the statement has been modified by a DDL statement", 3961),
    ("no online secondary replicas are enabled for read-only access", 982),
    ("lacks a quorum of nodes for high availability", 988),
    ("currently not accessible for queries", 976),
    ("is not in the PRIMARY or SECONDARY role", 983),
    ("Login to read-secondary failed", 4221),
    ("Session is terminated because you have a long-running transaction", 40549),
    ("session has been terminated because it has acquired too many locks", 40550),
    ("The log for database", 9001),
    ("Requested versioned row was not found", 3958),
    ("when accessing version store", 3966),
    ("Insufficient space in tempdb to hold row versions", 3967),
    ("insufficient system memory", 701),
    ("insufficient memory available in the buffer pool", 802),
    ("cannot obtain a LOCK resource", 1204),
    ("waiting for memory resources to execute the query", 8645),
    ("requested memory grant was not available", 8651),
    ("The service is currently busy", 40501),
    ("Not enough resources to process", 49918),
    ("is not currently available. Please retry the connection later", 40613),
    ("service has encountered an error processing your request", 40197),
    ("session is in the kill state", 596),
    ("SHUTDOWN is in progress", 6005),
    ("Could not allocate a new page for database", 1101),
    ("ran out of space during spilling", 1104),
    ("Could not allocate space for object", 1105),
    ("due to insufficient space in tempdb, the version store", 3959),
    ("has reached its size quota", 40544),
    ("The transaction log for database", 9002),
    ("Login failed for user", 18456),
    ("Cannot open database", 4060),
    ("cannot be opened because it is offline", 942),
    ("cannot be opened. It is in the middle of a restore", 927),
    ("cannot be opened. It is being recovered", 922),
    ("Invalid object name", 208),
    ("Invalid column name", 207),
    ("under the current security context", 916),
    ("permission was denied", 229),
    ("permission denied in database", 262),
    ("insufficient number of arguments were supplied", 313),
)
"""Error numbers by message text, for messages without a number."""

_UNTRUSTED = ("certificate verify failed", "SSL Provider", "Encryption not supported", "TLS")
_BAD_OPTION = ("Invalid value specified for connection string attribute", "Invalid connection string attribute")
_NO_ERROR_GIVEN = "The driver did not supply an error"
"""Message of a time-out in the middle of a result when the server does not answer the request to cancel."""
_NO_DRIVER = ("Can't open lib", "Data source name not found", "SQLAllocHandle", "could not be loaded")


def number_in(text: str) -> int | None:
    """SQL Server's error number in a driver's message; None for the driver's own errors, which have 0."""
    for match in _NUMBER.finditer(text):
        if number := int(match.group(1)):
            return number
    return next((number for needle, number in _TEXTS if needle in text), None)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without passwords: those of connection strings, and all occurrences of the given ones."""
    hidden = _PASSWORD.sub(r"\1=***", text)
    for secret in secrets:
        if secret:
            hidden = hidden.replace(secret, "***")
    return hidden


def clean(text: str) -> str:
    """The message of server or driver without values of rows, names of driver layers and a final full stop."""
    return " ".join(_SUFFIX.sub("", _PREFIX.sub("", _VALUE.sub(r"\1\2(hidden)", text))).split()).rstrip(".")


def to_cdc_error(sqlstate: str, text: str, server: str, secrets: Iterable[str] = ()) -> CdcError:
    """Translate a driver error. The caller raises the result from the original.

    Args:
        sqlstate: five characters, or empty if the driver gives none.
        text: the driver's message.
        server: host and port, for the message.
        secrets: texts that must not appear.
    """
    number = number_in(text)
    message = clean(redact(text, secrets))
    if any(needle in text for needle in _NO_DRIVER):
        return ConfigurationError(
            "odbc.driver", message, "an ODBC driver that loads", "install msodbcsql18 or unixodbc, or set odbc.driver"
        )
    if any(needle in text for needle in _BAD_OPTION):
        return ConfigurationError(
            "driver option",
            message,
            "options of the ODBC driver with valid values",
            "correct the driver.* property",
        )
    return (
        _by_number(number, message, server)
        or _by_state(sqlstate, text, message, server)
        or QueryError(f"{server} refused a statement: {message}", number)
    )


def _by_number(number: int | None, message: str, server: str) -> CdcError | None:
    if number in BUSY:
        return ServerBusyError(f"{server} is busy: {message}. Next: nothing; it is retried")
    if number in LOCKED:
        return LockTimeoutError(
            f"{server} gave up waiting for a lock that another session holds: {message}. "
            "It is retried later. Next: end that session; for a captured table snapshot.lock.timeout.ms may be raised, too"
        )
    if number in NO_ROOM:
        return ServerBusyError(f"{server} is out of space: {message}. It is retried. Next: free space there")
    if number in LOST:
        return ConnectionLostError(f"The connection to {server} broke: {message}. Next: nothing; it is reopened")
    if number in AWAY:
        return DatabaseAwayError(
            f"A database of {server} cannot be read now: {message}. Next: bring it online; the capture then resumes"
        )
    if number == _NO_USER:
        return LoginError(
            f"{server} refused the login a database: {message}. Next: `cdc-assets doctor` prints CREATE USER"
        )
    if number in CREDENTIALS:
        return CredentialsError(
            f"{server} refused the login: {message}. Next: check database.user and database.password"
        )
    if number in LOGIN:
        return LoginError(
            f"{server} refused the login: {message}. Next: check database.user, database.password and database.names"
        )
    if number in PERMISSION:
        kind = ObjectDeniedError if number in OF_ONE_OBJECT else PreflightError
        return kind(f"{server} denied access: {message}. Next: `cdc-assets doctor` prints the required GRANT")
    if number in NO_CDC:
        return PreflightError(f"Change data capture is off: {message}. Next: `cdc-assets doctor` prints the T-SQL")
    return _by_neighbours(number, message, server)


def _by_neighbours(number: int | None, message: str, server: str) -> CdcError | None:
    """The error of a number that is not listed."""
    if any(number in numbers for numbers in _RESOURCES):
        return ServerBusyError(f"{server} is busy: {message}. Next: nothing; it is retried")
    if any(number in numbers for numbers in _CONNECTIONS):
        return ConnectionLostError(f"The connection to {server} broke: {message}. Next: nothing; it is reopened")
    if any(number in numbers for numbers in _STATES):
        return DatabaseAwayError(
            f"A database of {server} cannot be read now: {message}. Next: bring it online; the capture then resumes"
        )
    return None


def _by_state(sqlstate: str, text: str, message: str, server: str) -> CdcError | None:
    if sqlstate.startswith("08") and any(needle in text for needle in _UNTRUSTED):
        return LoginError(
            f"{server} and the driver could not agree on encryption: {message}. "
            "Next: check driver.encrypt, driver.trustServerCertificate and driver.hostNameInCertificate"
        )
    if sqlstate in ("08S01", "08003", "08007"):
        return ConnectionLostError(f"The connection to {server} broke: {message}. Next: nothing; it is reopened")
    if _NO_ERROR_GIVEN in text:
        return ConnectionLostError(
            f"{server} stopped answering in the middle of a result: {message}. Next: nothing; the connection is reopened"
        )
    if sqlstate.startswith("08") or sqlstate == "HYT01" or "Login timeout" in text:
        return ConnectionLostError(
            f"Cannot reach {server}: {message}. Next: check database.hostname, database.port and the network"
        )
    if sqlstate in ("HYT00", "HY008"):
        return ServerBusyError(
            f"A statement at {server} took too long: {message}. It is retried. Next: see database.query.timeout.ms"
        )
    if sqlstate.startswith("40") or sqlstate in ("HY001", "HY013"):  # transaction ended, no memory
        return ServerBusyError(f"{server} is busy: {message}. Next: nothing; it is retried")
    if sqlstate == "28000":
        return CredentialsError(
            f"{server} refused the login: {message}. Next: check database.user and database.password"
        )
    return None


@contextmanager
def cdc_objects(database: str) -> Iterator[None]:
    """Raise CdcDisabledError when CDC objects are missing."""
    try:
        yield
    except QueryError as error:
        if error.number != INVALID_OBJECT and "fn_cdc_get_max_lsn" not in str(error):
            raise
        raise cdc_is_off(database) from error


def cdc_is_off(database: str) -> CdcDisabledError:
    """Change data capture is off in a database."""
    return CdcDisabledError(
        f"Change data capture is not enabled in database {database!r}, or the login may not see it. "
        f"Next: USE {quote(database)}; EXEC sys.sp_cdc_enable_db; then `cdc-assets doctor` prints what each table needs"
    )
