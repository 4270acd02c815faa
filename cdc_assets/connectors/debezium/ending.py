"""Why a connector has ended, as an error that says what to do; a retryable one may be gone in the next run."""

import re
from typing import Final

from cdc_assets.errors import CdcError, ConnectionLostError, CredentialsError, EngineError

GO_ON: Final = "the next run continues after the last batch"
_LOST: Final = re.compile(
    r"no longer available on the server|could not find first log file|purged required binary logs"
    r"|requested WAL segment \S+ has already been removed|can no longer get changes from replication slot"
    r"|snapshot mode when needed|but this is no longer available|offset.{0,60}no longer (exists|valid)"
    r"|missing in the archive log|ORA-01291|ORA-01292",
    re.IGNORECASE,
)
_RULES: Final[tuple[tuple[re.Pattern[str], str, type[CdcError]], ...]] = (
    (
        _LOST,
        "the source no longer has what follows the last batch, so the lake is complete only as far as that. Next: set "
        "snapshot.mode=when_needed, which reads the tables again, and keep the source's log for longer",
        EngineError,
    ),
    (
        re.compile(r"replication slot .{0,80}is active", re.IGNORECASE),
        f"another process reads the replication slot. Next: end it, or wait until the server notices that it is gone; {GO_ON}",
        ConnectionLostError,
    ),
    (
        re.compile(r"with the same server_(uuid|id)", re.IGNORECASE),
        f"another client has the same number. Next: give each capture its own database.server.id; {GO_ON}",
        ConnectionLostError,
    ),
    (
        re.compile(r"access denied for user \S+ \(using|authentication failed|ORA-01017", re.IGNORECASE),
        f"the server refuses the user. Next: correct database.user or database.password; {GO_ON}",
        CredentialsError,
    ),
    (
        re.compile(r"access denied|permission denied|ORA-01031", re.IGNORECASE),
        f"the user lacks a right. Next: grant what `cdc-assets doctor` names; {GO_ON}",
        EngineError,
    ),
    (
        re.compile(
            r"communications link failure|connection (was )?(refused|reset|timed out)|unknown ?host|no route to host"
            r"|terminating connection|the database system is|broken pipe|connection attempt failed"
            r"|(stream|connection|socket) ((has been|is|was) )?(already )?closed"
            r"|failed to (connect|establish)|database connection failed|unable to connect|connect timed out|I/O error|EOFException",
            re.IGNORECASE,
        ),
        f"the server cannot be reached. Next: see that it is up; {GO_ON}",
        ConnectionLostError,
    ),
    (
        re.compile(r"OutOfMemory|heap space|exit status 3\b"),
        "the Java machine had no memory left. Next: raise engine.heap, or lower max.batch.size and max.queue.size "
        f"(max.queue.size.in.bytes for wide rows); {GO_ON}",
        EngineError,
    ),
)
"""What a message contains, what it means, and the error; the first that fits counts."""


def ending_error(reason: str) -> CdcError:
    """The error of a connector that has ended by itself, by its own reason."""
    for pattern, meaning, kind in _RULES:
        if pattern.search(reason):
            return kind(f"The connector has ended: {reason}: {meaning}.")
    return EngineError(
        f"The connector has ended: {reason}. Next: see its log above; when the cause is removed, {GO_ON}."
    )
