"""Reports progress of a run as few, complete materializations.

An event costs 25 to 45 ms of run storage and is never pruned, while a loop may
finish several windows per second. So windows are added up per table, and a table
that changed is reported at most every `every_s` seconds and at the end; a table
that did not change is not reported.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import dagster as dg

from cdc_assets.capture.progress import Progress, StructureChange, TableProgress
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ran_on import NOWHERE, RanOn
from cdc_assets.history.records import table_change

OPERATIONS = {
    "r": "reads",
    "c": "creates",
    "u": "updates",
    "d": "deletes",
    "t": "truncates",
    "tombstone": "tombstones",
}
"""Name in metadata of each envelope `op` (`rows_creates`)."""


@dataclass(slots=True)
class Sum:
    """Progress of one table since its last report."""

    rows: Counter[str] = field(default_factory=Counter)
    size: int = 0
    from_lsn: Lsn | None = None
    to_lsn: Lsn | None = None
    committed: datetime | None = None
    windows: int = 0
    structures: list[StructureChange] = field(default_factory=list)
    ran_on: RanOn = NOWHERE

    def add(self, part: TableProgress, ran_on: RanOn = NOWHERE) -> None:
        """Add one window or round, and where its jobs ran."""
        self.ran_on += ran_on
        self.rows.update(part.rows)
        self.size += part.size
        self.from_lsn = part.from_lsn if self.windows == 0 else self.from_lsn
        self.to_lsn = part.to_lsn
        self.committed = part.committed or self.committed
        self.windows += 1

    def metadata(self, lag_s: float | None) -> dict[str, Any]:
        """Metadata for the asset page; numbers stay numbers, so that the page plots them."""
        facts: dict[str, Any] = {"rows": sum(self.rows.values()), "bytes": self.size, "windows": self.windows}
        facts |= {f"rows_{OPERATIONS.get(op, op)}": count for op, count in sorted(self.rows.items())}
        facts |= {name: str(lsn) for name, lsn in (("from_lsn", self.from_lsn), ("to_lsn", self.to_lsn)) if lsn}
        if self.committed:
            facts["last_commit"] = dg.MetadataValue.timestamp(self.committed)
        facts |= structure_facts(self.structures) if self.structures else {}
        facts |= ran_on_facts(self.ran_on)
        return facts if lag_s is None else facts | {"lag_seconds": round(lag_s, 3)}


def ran_on_facts(ran_on: RanOn) -> dict[str, Any]:
    """Metadata about where jobs ran, with a link to Spark's pages if it serves any."""
    facts: dict[str, Any] = {"ran_on": str(ran_on)}
    return facts | ({"spark_pages": dg.MetadataValue.url(ran_on.pages)} if ran_on.pages else {})


def structure_facts(changes: Sequence[StructureChange]) -> dict[str, Any]:
    """Metadata about a table's new structure: its differences, and its record from now on."""
    last = changes[-1].entry
    texts = [f"{change.entry.kind} from {change.entry.lsn}: {_differences(change)}" for change in changes]
    return {
        "structure_changed": "; ".join(texts),
        "structure_from_lsn": str(last.lsn),
        "schema_history_record": dg.MetadataValue.json(table_change(last)),
    }


def _differences(change: StructureChange) -> str:
    return ", ".join(map(str, change.differences)) or "all columns"


class Tally:
    """Adds up progress per table and returns what is due for a report.

    Args:
        every_s: minimum number of seconds between two reports, so that a short run reports once.
            Times are seconds on any monotonic clock.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._since: float | None = None
        self._tables: dict[TableId, Sum] = {}
        self.lag_s: float | None = None

    def add(self, progress: Progress, now: float) -> None:
        """Add a window or round."""
        self.lag_s = progress.lag_s
        if self._since is None:
            self._since = now
        for table, part in progress.tables.items():
            self._tables.setdefault(table, Sum()).add(part, progress.ran_on)
        for change in progress.structures:
            self._tables.setdefault(change.entry.table, Sum()).structures.append(change)

    def due(self, now: float) -> dict[TableId, Sum]:
        """Progress since the last report, if the interval is over; else empty."""
        waited = 0.0 if self._since is None else now - self._since
        return self.drain() if waited >= self._every_s else {}

    def take(self, table: TableId) -> Sum:
        """Progress of one table since the last report."""
        return self._tables.pop(table, Sum())

    def drain(self) -> dict[TableId, Sum]:
        """Progress since the last report."""
        self._since = None
        tables, self._tables = self._tables, {}
        return tables
