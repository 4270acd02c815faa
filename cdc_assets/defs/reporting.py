"""Progress of a loop as few, full materializations.

An event costs 25 to 45 ms of run storage and is never pruned, while a loop may
finish several windows a second. So windows are added up per table, and a table
that changed is reported at most every `every_s` seconds and at the end; a table
that did not change is not reported at all.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import dagster as dg

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn

OPERATION_NAMES = {
    "r": "reads",
    "c": "creates",
    "u": "updates",
    "d": "deletes",
    "t": "truncates",
    "tombstone": "tombstones",
}
"""Envelope `op` → how the metadata names it."""


@dataclass(slots=True)
class TableProgress:
    """What happened to one table since it was last reported.

    Args:
        rows: events by envelope operation.
        from_lsn: everything at or before was there before.
        to_lsn: the table is complete up to here.
        committed: server time of the newest change.
    """

    rows: Counter[str] = field(default_factory=Counter)
    from_lsn: Lsn | None = None
    to_lsn: Lsn | None = None
    committed: datetime | None = None

    def add(
        self, rows: Mapping[str, int], from_lsn: Lsn | None, to_lsn: Lsn | None, committed: datetime | None
    ) -> None:
        """Add one window."""
        self.rows.update(rows)
        self.from_lsn = self.from_lsn or from_lsn
        self.to_lsn = to_lsn or self.to_lsn
        self.committed = committed or self.committed

    def metadata(self, now: datetime) -> dict[str, Any]:
        """As the asset page shows it; numbers stay numbers so that the page plots them."""
        facts: dict[str, Any] = {
            f"rows_{OPERATION_NAMES.get(op, op)}": count for op, count in sorted(self.rows.items())
        }
        facts["rows"] = sum(self.rows.values())
        if self.from_lsn:
            facts["from_lsn"] = str(self.from_lsn)
        if self.to_lsn:
            facts["to_lsn"] = str(self.to_lsn)
        if self.committed:
            facts["lag_seconds"] = max(0.0, (now - self.committed).total_seconds())
            facts["last_commit"] = dg.MetadataValue.timestamp(self.committed)
        return facts


class Progress:
    """Adds up windows per table and hands out what is due for a report.

    Args:
        every_s: least seconds between two reports.
        now: when the loop started.
    """

    def __init__(self, every_s: float, now: datetime) -> None:
        self._every_s = every_s
        self._last = now
        self._tables: dict[TableId, TableProgress] = {}

    def of(self, table: TableId) -> TableProgress:
        """The table's sum; made if there is none."""
        return self._tables.setdefault(table, TableProgress())

    def due(self, now: datetime) -> dict[TableId, TableProgress]:
        """Everything added since the last report, if it is time for the next; else nothing."""
        return self.drain(now) if (now - self._last).total_seconds() >= self._every_s else {}

    def drain(self, now: datetime) -> dict[TableId, TableProgress]:
        """Everything added since the last report."""
        self._last = now
        tables, self._tables = self._tables, {}
        return tables
