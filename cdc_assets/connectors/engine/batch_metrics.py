"""What a batch brought each table, to be counted in metrics: a part for each database, because a connector's log may be of several."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from cdc_assets.config.engine import EngineConfig
from cdc_assets.connectors.engine.ledger import Batch
from cdc_assets.connectors.engine.topics import table_of, topics_of_tables
from cdc_assets.core.identifiers import TableId


@dataclass(slots=True)
class TableMetrics:
    """One table's part of a batch, as `capture.progress.TableCommit` has it.

    Args:
        rows: events by envelope operation.
        size: bytes of Parquet.
        files: data files.
        committed: not known of a single table.
    """

    rows: Counter[str] = field(default_factory=Counter)
    size: int = 0
    files: int = 0
    committed: datetime | None = None


@dataclass(frozen=True, slots=True)
class BatchMetrics:
    """A batch's part of one database, as `capture.progress.Commit` has it; the rest is not known of a connector."""

    database: str
    tables: Mapping[TableId, TableMetrics]
    kind: str = "batch"
    slices_done: int = 0
    slices: int = 0
    lag_s: float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


def parts_by_database(config: EngineConfig, batch: Batch) -> Iterator[BatchMetrics]:
    """The parts of a batch that is in its tables; none if it holds no events of tables."""
    topics = set(topics_of_tables(batch.files, config))
    found: dict[str, dict[TableId, TableMetrics]] = defaultdict(dict)
    for directory, files in batch.files.items():
        if (topic := directory.partition("@")[0]) not in topics:
            continue
        table = table_of(topic, config)
        part = found[table.database].setdefault(table, TableMetrics())
        for file in files:
            part.rows.update(file.operations)
            part.size += file.size
            part.files += 1
    for database, tables in found.items():
        yield BatchMetrics(database, tables)
