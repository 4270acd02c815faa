"""Cheap queries to a connector's database beside the connector, for sensors, checks and commands."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from cdc_assets.connectors.engine.ledger import BatchState
from cdc_assets.core.check_result import CheckResult
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema

WAKING = "cdc_assets_wake"
"""Prefix of logical messages that wake PostgreSQL's connector, and are no events."""


@dataclass(frozen=True, slots=True, order=True)
class LogPoint:
    """A place in a database's log.

    Args:
        order: what is compared: number of the binlog file and position, LSN, or SCN.
        text: as the database writes it.
    """

    order: tuple[int, ...]
    text: str = field(compare=False)

    def __str__(self) -> str:
        return self.text


def binlog_point(file: str, position: int) -> LogPoint:
    """A place in MySQL's binlog; its files are numbered."""
    number = re.search(r"[0-9]+$", file)
    return LogPoint((int(number[0]) if number else 0, position), f"{file}:{position}")


def wal_point(lsn: int) -> LogPoint:
    """A place in PostgreSQL's write-ahead log."""
    return LogPoint((lsn,), f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}")


def point_of_offset(offset: Mapping[str, Any]) -> LogPoint | None:
    """Up to where a connector has read for sure when it made an offset; None if the offset does not show it.

    A binlog offset made by an event in a transaction names the place where the transaction begins; one that was made by
    a heartbeat names the end of the last transaction.
    """
    try:
        if "file" in offset and "pos" in offset:
            return binlog_point(str(offset["file"]), int(offset["pos"]))
        if any(name in offset for name in _WAL):
            return wal_point(max(int(offset.get(name) or 0) for name in _WAL))
        if str(offset.get("scn") or "").isdigit():
            return LogPoint((int(offset["scn"]),), str(offset["scn"]))
    except (TypeError, ValueError):
        return None
    return None


def time_of_offset(offset: Mapping[str, Any]) -> datetime | None:
    """Time of the event that an offset was made by, by the database's clock; None if the offset has none."""
    try:
        if offset.get("ts_sec"):
            return datetime.fromtimestamp(int(offset["ts_sec"]), UTC)
        if offset.get("ts_usec"):
            return datetime.fromtimestamp(int(offset["ts_usec"]) / 1e6, UTC)
    except (TypeError, ValueError, OverflowError):
        return None
    return None


_WAL = ("lsn", "lsn_proc", "lsn_commit")


def recorded_point(state: BatchState) -> LogPoint | None:
    """Up to where the lake is complete for sure: the least of all partitions; None if an offset does not show it."""
    points = [point_of_offset(offset) for offset in state.offsets.values()]
    known = [point for point in points if point is not None]
    return min(known) if known and len(known) == len(points) else None


def is_complete(state: BatchState, probe: "SourceProbe", end: LogPoint) -> bool:
    """Whether it is proved that the lake holds every captured change up to a place of the log.

    Either the connector's offset has reached the place; or the connector was quiet after its last event, and the log
    itself shows no captured change from there on.

    Raises:
        CdcError: the database cannot be queried.
    """
    if state.pending is not None or not state.offsets:
        return False
    point = recorded_point(state)
    if point is not None and point >= end:
        return point == end
    return state.quiet and all(probe.has_no_changes_between(offset, end) for offset in state.offsets.values())


@dataclass(frozen=True, slots=True)
class Retention:
    """Whether the database still has what was not read yet.

    Args:
        lost: what is gone for ever, and the next step; empty if nothing is.
        near: what will be gone soon; empty if nothing will.
        facts: what was found, for people.
        kept_h: hours for which the database keeps what is written now; None if it does not count by time.
        room_bytes: bytes that may still be written before unread changes are removed; None if it does not count by size.
    """

    lost: str = ""
    near: str = ""
    facts: Mapping[str, str | int | float] = field(default_factory=dict)
    kept_h: float | None = None
    room_bytes: int | None = None


class SourceProbe(Protocol):
    """A connection of our own to a connector's database; with time-outs of seconds."""

    def clock(self) -> datetime:
        """The database's clock.

        Raises:
            CdcError: the database cannot be queried.
        """

    def log_end(self) -> LogPoint:
        """Where the log ends now.

        Raises:
            CdcError: the database cannot be queried.
        """

    def check_replication(self) -> bool | None:
        """Whether the database sends its log to a reader of this capture; None if it does not show that.

        Raises:
            CdcError: the database cannot be queried.
        """

    def has_no_changes_between(self, offset: Mapping[str, Any], end: LogPoint) -> bool:
        """Whether the log holds no captured change between an offset, after which the connector was quiet, and a place.

        False also if that is unknown.

        Raises:
            CdcError: the database cannot be queried.
        """

    def retention(self, recorded: LogPoint | None) -> Retention:
        """Whether everything after a recorded place is still there.

        Raises:
            CdcError: the database cannot be queried.
        """

    def tables(self) -> Sequence[TableSchema]:
        """Structures of the tables that the connector's filters let through.

        Raises:
            CdcError: the database cannot be queried, or a filter is no expression.
        """

    def unsent(self, tables: Sequence[TableId]) -> Mapping[TableId, str]:
        """Those among captured tables whose changes the database does not send, with the reason and the next step.

        Raises:
            CdcError: the database cannot be queried.
        """

    def inspect(self) -> Sequence[CheckResult]:
        """What the connector needs of the database, and whether it is so.

        Raises:
            CdcError: the database cannot be queried.
        """

    def signal(self, id_: str, type_: str, data: str) -> None:
        """Put a row into the signal table (`signal.data.collection`).

        Raises:
            CdcError: it is not there, or must not be written.
        """

    def nudge(self) -> None:
        """Write something into the log that is no change, if a connector in quiet needs it to take up a signal."""

    def close(self) -> None:
        """End the connection."""
