"""The recorded state of one table of a capture: to which place its topic is complete, and whether changes are missing before it.

All values are plain and convert to JSON and back (`codec`), because they are stored in the manifest's `detail` column.
A new field needs a default, so that older manifests can be read.
"""

import dataclasses
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.core.ports import KeyRange
from cdc_assets.core.schema import InstanceId
from cdc_assets.ledger.gaps import Interval, Skipped

Status = Literal["healthy", "gap", "failed", "excluded"]

EXCLUDED = "The settings leave it out (database.names, table and schema lists); its position is kept."
"""Reason of an excluded table; the reason of its gap follows, if it has one."""

INTERRUPTED = "Its adoption was interrupted. Next: run `cdc-assets adopt` with --yes again."
"""Reason of a table until its adoption is complete."""


@dataclass(frozen=True, slots=True)
class Start:
    """The place inside a transaction up to which another reader delivered a table's changes (`adoption`).

    Args:
        position: of the last change row that was delivered.
        serial: number of change rows up to it that share its change LSN.
        events: number of the table's events in the transaction that were delivered, if transactions are numbered.
    """

    position: Position
    serial: int
    events: int = 0


@dataclass(frozen=True, slots=True)
class TableState:
    """One table of the capture.

    Args:
        object_id: object id of the source table to which the position belongs.
        position: the topic table is complete up to here, inclusive; None if the table cannot be streamed (no CDC).
        instance: capture instance that was read last, or None.
        made: creation time of that instance, in server time without zone; None if unknown.
        change_table_id: object id of that instance's change table; None if unknown.
        status: `healthy`; `gap`: changes in (gap_after, gap_until] were removed unread; `failed`: see reason and `again`;
            `excluded`: the settings exclude it; it continues from its position when they include it again.
        reason: reason for which it is not healthy, for people.
        gaps: intervals of lost changes, oldest first, as (exclusive start, inclusive end); kept after a repair.
        ignored_gaps: those of them after which it went on without its rows (`gap.policy=ignore`, or a snapshot that reads none, or
            not all), until a snapshot reads all of them.
        ranges: key ranges of the snapshot partitions, fixed by the first snapshot while they fit the key (`core.ranges.fit`).
        snapshot_lsn: low watermark of the last complete snapshot of the whole table, or None; None also once its READs may be lost in
            the lake.
        begins: place after `position` up to which another reader delivered its changes; None after the first window.
        directory: of the topic generation that has its newest events; empty if it was not recorded yet.
        again: whether a failed table is tried again from its position, because nothing up to it is wrong in the lake and
            all later changes are still on the server.
        skipped: intervals that windows read without some operations (`skipped.operations`), oldest first; kept after a snapshot.
        reads_all: whether the snapshot of `snapshot_lsn` read the table and not a SELECT of `snapshot.select.statement.overrides`; None
            if that was not recorded.
        snapshot_id: number of the snapshot of `snapshot_lsn`, which is less than those of all its READs; None if that was not recorded.
    """

    table: TableId
    object_id: int
    position: Lsn | None
    instance: str | None = None
    status: Status = "healthy"
    reason: str = ""
    gaps: tuple[Interval, ...] = ()
    ranges: tuple[KeyRange, ...] = ()
    snapshot_lsn: Lsn | None = None
    made: datetime | None = None
    begins: Start | None = None
    directory: str = ""
    change_table_id: int | None = None
    again: bool = False
    ignored_gaps: tuple[Interval, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    reads_all: bool | None = None
    snapshot_id: int | None = None

    @property
    def is_half_adopted(self) -> bool:
        """Whether its adoption has begun and was not completed; until then nothing is read of it."""
        return self.status == "failed" and self.reason == INTERRUPTED

    @property
    def identity(self) -> InstanceId | None:
        """The capture instance that was read last, or None."""
        return None if self.instance is None else InstanceId(self.instance, self.made, self.change_table_id)

    @property
    def streams(self) -> bool:
        """Whether windows include this table."""
        return self.status == "healthy" and self.position is not None

    @property
    def resumes(self) -> bool:
        """Whether it failed and is tried again from its position."""
        return self.status == "failed" and self.again and self.position is not None

    @property
    def goes_on(self) -> bool:
        """Whether its changes are read from its position, now or after a pause."""
        return self.streams or self.resumes

    @property
    def keeps_position(self) -> bool:
        """Whether its position stays valid when its rows are read again: all later changes can be read, now or in the
        future."""
        whole = self.position is not None and self.status == "excluded" and self.reason == EXCLUDED
        return self.goes_on or whole

    def stopped(self, reason: str, *, again: bool = False) -> "TableState":
        """Its state when it has failed.

        Args:
            reason: for people; what to do next.
            again: see the class.
        """
        return dataclasses.replace(self, status="failed", reason=reason, again=again)

    def tried_again(self) -> "TableState":
        """Its state when windows include it again."""
        return dataclasses.replace(self, status="healthy", reason="", again=False)

    def is_to_be_repaired(self, gap_policy: str) -> bool:
        """Whether changes are missing and `gap.policy` requires that the table is read again."""
        return self.status == "gap" and gap_policy == "resnapshot"

    @property
    def unrepaired_gaps(self) -> tuple[Interval, ...]:
        """Intervals of lost changes after which no snapshot has read all its rows.

        One that has not read all has left those before it in `ignored_gaps`.
        """
        newest = self.gaps[-1:] if self.status == "gap" else ()
        later = [gap for gap in self.gaps if self.snapshot_lsn is None or gap[1] > self.snapshot_lsn]
        return tuple(dict.fromkeys((*self.ignored_gaps, *later, *newest)))

    @property
    def gap_after(self) -> Lsn | None:
        """Exclusive start of the newest gap."""
        return self.gaps[-1][0] if self.gaps else None

    @property
    def reached(self) -> Lsn | None:
        """LSN up to which the lake may hold something of the table, or is known to lack it; None if it has nothing of it."""
        return self.position or self.snapshot_lsn or self.gap_until

    @property
    def gap_until(self) -> Lsn | None:
        """Inclusive end of the newest gap."""
        return self.gaps[-1][1] if self.gaps else None
