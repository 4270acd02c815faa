"""The one error tree::

    CdcError
    ├── RetryableError          the same call may succeed later
    │   ├── ConnectionLostError     host down, socket closed, login time-out
    │   ├── ServerBusyError         deadlock victim 1205, query time-out, update conflict 3960
    │   │   └── LockTimeoutError        lock time-out 1222: not granted within the allowed time
    │   ├── IncompleteReadError     a replica that lags, or fewer rows than there are
    │   ├── DatabaseAwayError       offline, being restored, or not on the server now
    │   ├── CaptureNotReadyError    no LSN recorded yet; the capture job has not scanned
    │   ├── LakeConflictError       another writer committed first; read again and repeat
    │   ├── LakeFullError           the lake's storage is full
    │   ├── LakeAwayError           the lake's store does not answer now
    │   └── SinkError               the code of an IO manager's `write` raised
    └── TerminalError           repeating does not help; somebody has to act
        ├── InvalidValueError       a value is not valid for its purpose
        ├── ConfigurationError      a property is unknown or has a wrong value
        ├── LoginError              login refused, database unknown to the login
        │   └── CredentialsError        user or password refused
        ├── PreflightError          CDC off, permission missing (also in a Kafka broker), Agent missing
        │   ├── CdcDisabledError        change data capture is off in a database
        │   └── ObjectDeniedError       a right on one table or column is missing
        ├── DatabaseRestoredError   a database was restored to a point before what was already read
        ├── QueryError              the server refused a statement
        ├── InvariantError          the log or the lake contradicts itself
        ├── FencedError             another writer has taken this capture over
        ├── EngineError             Spark cannot run the tasks as it is set up
        ├── MirrorError             a mirror cannot follow its topic
        │   └── UnknownRowError         events are about a row, or omit values, that it does not have, of a table without a key
        └── LakeError               the lake cannot be read or written
            └── EventsDroppedError      a topic no longer holds events that were requested

`retryable` of a class says whether the same call may be repeated. Each message names the value, what was expected and
the next step. Secrets never enter a message: adapters pass driver texts through their own redaction.
"""

import errno
import re
from collections.abc import Sequence
from typing import ClassVar

_LONGEST_VALUE = 300
_LONGEST_LIST = 3_500
"""Bytes of a list of errors."""
_CREDENTIALS = re.compile(r"(?<=://)[^/\s:@]*:[^/\s]+(?=@)")


def shortened(text: str) -> str:
    """The text for a message; a long one is cut and followed by its length."""
    if len(text) <= _LONGEST_VALUE:
        return text
    return f"{text[:_LONGEST_VALUE]}… ({len(text):,} characters)"


def has_credentials(text: str) -> bool:
    """Whether the text holds an address with a user and a password."""
    return bool(_CREDENTIALS.search(text))


def lacking(error: BaseException) -> str | None:
    """What the process needs more of, and where its limits are set, if that is all that an error says; else None."""
    number = error.errno if isinstance(error, OSError) else None
    if any(text in str(error) for text in ("failed to map segment", "Cannot allocate memory")):  # of a library, by one
        number = errno.ENOMEM
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        return "memory (of the machine, its container, or ulimit -v)"
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return "memory or threads (of the machine, its container, or ulimit -v and -u)"
    return "open files (ulimit -n)" if number in (errno.EMFILE, errno.ENFILE) else None


def describe_error(error: Exception) -> str:
    """The error's class and message, as shown in reasons, checks and skipped ticks."""
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
    """The server did not complete the statement this time: deadlock, lock or query time-out, update conflict."""


class LockTimeoutError(ServerBusyError):
    """A lock was not granted within `snapshot.lock.timeout.ms`, or on a change table within half a minute; callers do not retry at once."""


class IncompleteReadError(RetryableError):
    """Not everything arrived: the replica that answers lags behind what is known of the log, or sent fewer rows than there
    are."""


class DatabaseAwayError(RetryableError):
    """A configured database is offline, being restored, or not on the server now."""


TURN_ERRORS = (ConnectionLostError, ServerBusyError, IncompleteReadError)
"""Retryable errors of one database that the next turn may find gone, a second later."""

DATABASE_ERRORS = (*TURN_ERRORS, DatabaseAwayError)
"""Retryable errors that may concern one database of a server and not the others."""


class CaptureNotReadyError(RetryableError):
    """The capture job has recorded no LSN yet."""


class LakeConflictError(RetryableError):
    """Another commit came first."""


class LakeFullError(RetryableError):
    """The lake's storage is full: no disk space, or no quota left."""


class LakeAwayError(RetryableError):
    """The lake's store does not answer now: it is busy, restarts, or cannot be reached."""


class SinkError(RetryableError):
    """The code of an IO manager's `write` raised; the append is repeated.

    Args:
        is_tried: whether a commit had begun, so that it may be there; if not, there is none of it.
    """

    def __init__(self, message: str, *, is_tried: bool) -> None:
        super().__init__(message)
        self.is_tried = is_tried


class TerminalError(CdcError):
    """Repeating the call does not help; somebody has to act."""


class InvalidValueError(TerminalError, ValueError):
    """A value is not valid for its purpose.

    Args:
        what: the kind of value, such as `LSN`.
        value: what was given; the message quotes it, without the password of an address.
        expected: description of the allowed values.
        hint: next step for the reader.
    """

    def __init__(self, what: str, value: object, expected: str, hint: str) -> None:
        shown = shortened(repr(value))
        message = f"{shortened(what)} {shown} is not valid: expected {expected}. Next: {hint}."
        super().__init__(_CREDENTIALS.sub("***", message))
        self.what = what
        self.value = value
        self.expected = expected
        self.hint = hint


class ConfigurationError(InvalidValueError):
    """A configuration property is unknown or has a value that is not allowed."""

    @classmethod
    def of_all(cls, errors: "Sequence[ConfigurationError]") -> "ConfigurationError":
        """One error with the messages of several, so that all can be corrected at once; of very many, the first."""
        if len(errors) == 1:
            return errors[0]
        found = cls("configuration", "", "other properties", "correct them together")
        lines, room = [f"{len(errors)} properties of the configuration are not valid:"], _LONGEST_LIST
        for listed, message in enumerate(map(str, errors)):
            room -= len(message.encode(errors="replace"))
            if listed and room < 0:
                lines.append(f"… and {len(errors) - listed} more, which are listed when these are corrected.")
                break
            lines.append(message)
        found.args = ("\n".join(lines),)
        return found


class LoginError(TerminalError):
    """The server refused the credentials or the database."""


class CredentialsError(LoginError):
    """The server refused the user or the password."""


class PreflightError(TerminalError):
    """A prerequisite on the server or the broker is missing; the message holds the T-SQL or the command that fixes it."""


class CdcDisabledError(PreflightError):
    """Change data capture is off in a database, so none of its tables can be captured."""


class ObjectDeniedError(PreflightError):
    """The login lacks a right on one table, or on one column of it; other tables are not concerned."""


class DatabaseRestoredError(TerminalError):
    """A database was restored to a moment before what was already read, or replaced by another one of the same name."""


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
    """Spark's setup cannot run the tasks (no executor, code missing on workers, another Python version), or an embedded
    connector has ended."""


class LakeError(TerminalError):
    """The lake cannot be read or written."""


LAKE_WAITS = (LakeConflictError, LakeFullError, LakeAwayError, SinkError)
"""Retryable errors of the lake: they concern all databases."""

LAKE_ERRORS = (LakeError, *LAKE_WAITS)
"""All errors of the lake, for what is tried again later anyway."""


class MirrorError(TerminalError):
    """A mirror cannot follow its topic, for a reason that is nobody else's."""


class UnknownRowError(MirrorError):
    """Events of a table without a key of its own remove a row that its mirror does not have, or omit values of one."""


class EventsDroppedError(LakeError):
    """Events were requested that a topic no longer holds (`lake.topic.retention.hours`).

    Args:
        topic: its name.
        complete_after: commit LSN after which the topic holds every event.
        wanted: what was requested.
        hint: next step for the reader.
    """

    def __init__(self, topic: str, complete_after: str, wanted: str, hint: str) -> None:
        super().__init__(
            f"The topic {topic} holds every event after {complete_after}; those before were dropped "
            f"(lake.topic.retention.hours). Requested: {wanted}. Next: {hint}."
        )
        self.topic, self.complete_after = topic, complete_after
