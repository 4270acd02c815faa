"""Settings of snapshots."""

from dataclasses import dataclass
from typing import Literal

from cdc_assets.core.identifiers import TableId

SnapshotMode = Literal[
    "always",
    "initial",
    "initial_only",
    "no_data",
    "recovery",
    "when_needed",
    "when_needed_no_data",
    "configuration_based",
]
IsolationMode = Literal["read_committed", "repeatable_read", "exclusive", "snapshot"]


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """Settings of snapshots (spec debezium-sqlserver §2).

    Args:
        mode: `snapshot.mode`.
        isolation: `snapshot.isolation.mode`.
        locking: `snapshot.locking.mode`; `none` takes no table locks.
        lock_timeout_ms: `snapshot.lock.timeout.ms`; 0 fails at once, -1 waits for ever.
        fetch_size: rows per Arrow batch (`snapshot.fetch.size`).
        partitions: key-range partitions of a table's snapshot asset (`snapshot.partitions`); fixed once the asset
            exists.
        slices_per_thread: `snapshot.max.threads.multiplier`: slices of a table per parallel reader.
        multipliers: (`schema.table` or `db.schema.table`, the same for that table) pairs.
        threads: `snapshot.max.threads`; 0 takes the task runner's parallelism.
        keyless_wait_s: `snapshot.keyless.wait.ms` in seconds.
        delay_s: `snapshot.delay.ms` in seconds.
        include: `snapshot.include.collection.list`; empty means all captured tables.
        overrides: (`schema.table` or `db.schema.table`, SELECT statement) pairs.
        order_by_row_count: `snapshot.tables.order.by.row.count`.
        data: rows are read at each start; this and the next four: `snapshot.mode.configuration.based.*`.
        schema: structures are recorded at each start.
        start_stream: changes are streamed afterwards.
        on_schema_error: structures are recorded when the schema history lacks them.
        on_data_error: rows are read when the position can no longer be read.
    """

    mode: SnapshotMode = "initial"
    isolation: IsolationMode = "read_committed"
    locking: Literal["exclusive", "none"] = "exclusive"
    lock_timeout_ms: int = 10_000
    fetch_size: int = 32_768
    partitions: int = 8
    slices_per_thread: int = 1
    multipliers: tuple[tuple[str, int], ...] = ()
    threads: int = 0
    keyless_wait_s: float = 60.0
    delay_s: float = 0.0
    include: tuple[str, ...] = ()
    overrides: tuple[tuple[str, str], ...] = ()
    order_by_row_count: Literal["disabled", "ascending", "descending"] = "disabled"
    data: bool = False
    schema: bool = False
    start_stream: bool = False
    on_schema_error: bool = False
    on_data_error: bool = False

    def override_of(self, table: TableId) -> str:
        """The table's SELECT of `overrides`; empty if it has none. Letter case of the name is ignored."""
        return next((statement for name, statement in self.overrides if _names(name, table)), "")

    def slices_of(self, table: TableId) -> int:
        """Slices of a table per parallel reader."""
        return next((count for name, count in self.multipliers if _names(name, table)), self.slices_per_thread)


def _names(name: str, table: TableId) -> bool:
    return name.lower() in (table.within_database.lower(), str(table).lower())
