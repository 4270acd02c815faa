"""The channel `source`: rows inserted into the signal table, read from its change table.

They are read once the signal table's own events are committed, between its
position at the last read and its present position. Their effect is one
manifest row together with the new `read_until`. *Crash before that row:* the
same rows are read again. *After it:* they lie below `read_until`. Positions only
grow, so no row is applied twice, and none is missed unless the clean-up job took it before it was read, which is
told (`lost`). Of a text no more is read than shows that it is too long. A hand-over to a second capture
instance may lie in between: each part is read from the instance that holds it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from cdc_assets.core.identifiers import TableId, quote
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.signal import LONGEST_DATA, Signal
from cdc_assets.ledger.state import TableRead
from cdc_assets.shared.instances import Gap, gap_of, instance_of, newest, reads_of
from cdc_assets.shared.server import Server

log = logging.getLogger(__name__)

DELETE, INSERT = 1, 2
_COLUMNS = 3


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the signal table when it was inserted or deleted."""

    lsn: Lsn
    operation: int
    signal: Signal


@dataclass(frozen=True, slots=True)
class NewRows:
    """New rows of a signal table.

    Args:
        are_all: whether the clean-up has removed none of them.
    """

    rows: Sequence[Row] = ()
    are_all: bool = True


def is_readable(server: Server, table: TableId) -> bool:
    """Whether rows of a signal table are read: only if three columns of it are captured."""
    last = newest(server.instances(table.database, refresh=False).get(table, []))
    return last is not None and len(last.columns) == _COLUMNS


def cleaned_up(server: Server, table: TableId, after: Lsn, until: Lsn) -> Gap | None:
    """The part of (after, until] of which the clean-up has removed a signal table's rows, if it had any; None if there is none.

    Raises:
        CdcError: the server is away.
    """
    instances = server.instances(table.database, refresh=False).get(table, [])
    parts = reads_of(table, instances, after, until) if instances else []
    return gap_of(parts, server.source.low_water_marks(table.database))


def signal_rows(server: Server, table: TableId, after: Lsn, until: Lsn) -> list[Row]:
    """Rows of a signal table in (after, until], in the order of the log; empty if it is no longer captured.

    Raises:
        CdcError: the rows cannot be read.
    """
    instances = server.instances(table.database, refresh=False).get(table, [])
    parts = reads_of(table, instances, after, until) if instances else []
    return [
        row for part in parts if (found := instance_of(part, instances)) for row in _rows(server, part, found.columns)
    ]


def _rows(server: Server, part: TableRead, columns: Sequence[str]) -> list[Row]:
    table = part.table
    if len(columns) != _COLUMNS:
        log.warning(
            "Of signal table %s %d columns are captured instead of three; its rows are ignored.", table, len(columns)
        )
        return []
    texts = ", ".join(
        f"LEFT(CONVERT(nvarchar(max), [ct].{quote(name)}), {LONGEST_DATA + 1}) AS {quote(name)}" for name in columns
    )
    statement = (
        "/* cdc-assets: signals */ SELECT [ct].[__$start_lsn], [ct].[__$operation], "  # noqa: S608 - quoted names
        f"{texts} FROM {quote(table.database)}.cdc.{quote(f'{part.instance}_CT')} AS [ct] "
        "WHERE [ct].[__$start_lsn] > ? AND [ct].[__$start_lsn] <= ? AND [ct].[__$operation] IN (1, 2) "
        "ORDER BY [ct].[__$start_lsn], [ct].[__$command_id], [ct].[__$seqval], [ct].[__$operation]"
    )
    rows = []
    bulk = server.reaching(table.database, part.until)
    for batch in bulk.read(statement, (part.after.raw, part.until.raw)):
        for lsn, operation, own_id, kind, data in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            signal = Signal.arrived(
                (own_id or "").rstrip(" "), kind or "", data
            )  # a char column fills it up with blanks
            rows.append(Row(Lsn(bytes(lsn)), operation, signal))
    return rows
