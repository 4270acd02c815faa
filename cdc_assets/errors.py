"""The one error tree.

    CdcError
    ├── RetryableError          the same call may succeed later
    │   ├── ConnectionLostError     host down, socket closed, login time-out
    │   ├── ServerBusyError         deadlock victim 1205, query time-out, update conflict 3960
    │   │   └── LockTimeoutError        lock time-out 1222: it waited as long as it may
    │   ├── DatabaseAwayError       offline, being restored, or not on the server now
    │   ├── CaptureNotReadyError    no LSN recorded yet; the capture job has not scanned
    │   ├── LakeConflictError       another writer committed first; read again and repeat
    │   └── LakeFullError           the lake has no room left
    └── TerminalError           nothing changes until somebody acts
        ├── InvalidValueError       a value that cannot be what it claims to be
        ├── ConfigurationError      a property is unknown or has a wrong value
        ├── LoginError              login refused, database unknown to the login
        │   └── CredentialsError        user or password refused
        ├── PreflightError          CDC off, permission missing, Agent missing
        │   └── CdcDisabledError        change data capture is off in a database
        ├── DatabaseRestoredError   a database was put back behind what was read from it
        ├── QueryError              the server refused a statement
        ├── InvariantError          the log or the lake contradicts itself
        ├── FencedError             another writer has taken this capture over
        ├── EngineError             Spark cannot run the tasks as it is set up
        └── LakeError               the lake cannot be read or written

Each class says by `retryable` whether the same call may be repeated, and each
message holds the value, what was expected and the next step. Secrets never
enter a message: adapters pass driver texts through their own redaction.
"""

from typing import ClassVar

_LONGEST_VALUE = 300


def shortened(text: str) -> str:
    """A text as a message may hold it: the start of a long one, and how long it is."""
    if len(text) <= _LONGEST_VALUE:
        return text
    return f"{text[:_LONGEST_VALUE]}… ({len(text):,} characters)"


def describe_error(error: Exception) -> str:
    """What went wrong, as reasons, checks and skipped ticks tell it: the error's class and its message."""
    return f"{type(error).__name__}: {error}"


class CdcError(Exception):
    """Root of all errors that this project raises on purpose."""

    retryable: ClassVar[bool] = False


class RetryableError(CdcError):
    """The same call may succeed later."""

    retryable = True


class ConnectionLostError(RetryableError):
    """The server cannot be reached or the connection broke."""


class ServerBusyError(RetryableError):
    """The server gave up this time: deadlock, lock or query time-out, update conflict."""


class LockTimeoutError(ServerBusyError):
    """A lock was waited for as long as `snapshot.lock.timeout.ms` allows; not waited for again at once."""


class DatabaseAwayError(RetryableError):
    """A configured database is offline, being restored, or not on the server now."""


class CaptureNotReadyError(RetryableError):
    """The capture job has recorded no LSN yet."""


class LakeConflictError(RetryableError):
    """Another commit came first."""


class LakeFullError(RetryableError):
    """The lake has no room left: a full disk, or a quota that is used up."""


class TerminalError(CdcError):
    """Nothing changes until somebody acts."""


class InvalidValueError(TerminalError, ValueError):
    """A value that cannot be what it claims to be.

    Args:
        what: the kind of value, such as `LSN`.
        value: what was given.
        expected: what is allowed.
        hint: what to do next.
    """

    def __init__(self, what: str, value: object, expected: str, hint: str) -> None:
        shown = shortened(repr(value))
        super().__init__(f"{shortened(what)} {shown} is not valid: expected {expected}. Next: {hint}.")
        self.what = what
        self.value = value
        self.expected = expected
        self.hint = hint


class ConfigurationError(InvalidValueError):
    """A configuration property is unknown or has a value that is not allowed."""


class LoginError(TerminalError):
    """The server refused the credentials or the database."""


class CredentialsError(LoginError):
    """The server refused the user or the password."""


class PreflightError(TerminalError):
    """A prerequisite on the server is missing; the message holds the T-SQL that mends it."""


class CdcDisabledError(PreflightError):
    """Change data capture is off in a database, so none of its tables can be captured."""


class DatabaseRestoredError(TerminalError):
    """A database was put back to a moment before what was read from it, or is another one of the same name."""


class QueryError(TerminalError):
    """The server refused a statement.

    Args:
        message: the driver's text, redacted.
        number: SQL Server's error number, when the driver gave one.
    """

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.number = number


class InvariantError(TerminalError):
    """The log or the lake contradicts itself."""


class FencedError(TerminalError):
    """Another writer has taken this capture over; this one must stop."""


class EngineError(TerminalError):
    """Spark cannot run the tasks as it is set up: no executor, no code there, another Python."""


class LakeError(TerminalError):
    """The lake cannot be read or written."""
