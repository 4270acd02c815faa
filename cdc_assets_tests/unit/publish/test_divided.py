"""Rows of a topic of several databases are published after the LSN of their own one."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from cdc_assets.config.settings import EventSettings
from cdc_assets.history.events import topic_schema
from cdc_assets.publish.divided import divided_rows
from cdc_assets.system_topics.transactions import TOPIC_SCHEMA

LATE, EARLY = "0000009a:00000001:0001", "0000002a:00000001:0001"
NAMES, AFTER = ["Sales", "Sales.old", "Other"], {"Sales": LATE, "Other": EARLY}


def transaction(status: str, lsn: str, *tables: str) -> dict[str, object]:
    counts = [{"data_collection": table, "event_count": 1} for table in tables] if status == "END" else None
    value = {"status": status, "id": lsn, "event_count": None, "data_collections": counts, "ts_ms": 0}
    return {"position": f"{lsn}/{status}", "key": {"id": lsn}, "value": value, "headers": [], "window_id": 3}


def both(lsn: str, *tables: str) -> list[dict[str, object]]:
    return [transaction("BEGIN", lsn, *tables), transaction("END", lsn, *tables)]


def kept(rows: Sequence[dict[str, object]], size: int, after: dict[str, str] = AFTER) -> list[str]:
    """Positions of rows that are left, if each file has so many."""
    divided = divided_rows("transactions", NAMES)
    assert divided is not None

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(0, len(rows), size):
            yield pa.RecordBatch.from_pylist(rows[at : at + size], TOPIC_SCHEMA)
            yield pa.RecordBatch.from_pylist([], TOPIC_SCHEMA)

    return [position for batch in divided(batches(), after) for position in batch.column("position").to_pylist()]


def test_a_begin_is_of_the_database_of_its_end_also_in_the_next_file() -> None:
    middle = "00000050:00000001:0001"
    left_out = [*both(EARLY, "Other.dbo.y"), *both("0000002b:00000001:0001", "sales.dbo.a", "Sales.dbo.b")]
    sent = [*both(middle, "Other.dbo.y"), *both("00000051:00000001:0001", "Sales.old.dbo.t")]
    also = both("0000009b:00000001:0001", "Sales.dbo.a")
    unknown = both("00000001:00000001:0001", "Former.dbo.t")
    rows = [*unknown, *left_out, *sent, *both(LATE, "Sales.dbo.a"), *also]
    wanted = [str(row["position"]) for row in [*unknown, *sent, *also]]
    for size in (1, 2, 3, 5, 100):
        assert kept(rows, size) == wanted, size
        assert kept(rows, size, {}) == [row["position"] for row in rows]
    assert kept([transaction("BEGIN", EARLY)], 1) == [f"{EARLY}/BEGIN"], "no row says whose it is"


def test_a_change_of_structure_counts_by_its_own_lsn() -> None:
    divided, schema = divided_rows("schema_changes", NAMES), topic_schema(EventSettings("shop"))
    assert divided is not None
    rows = [
        {
            "position": f"{LATE}/s{at}",
            "key": {"databaseName": database},
            "value": {"source": {"commit_lsn": lsn}, "databaseName": database, "tableChanges": []},
            "headers": [],
            "window_id": 1,
        }
        for at, (database, lsn) in enumerate(
            [("Sales", LATE), ("Other", EARLY), ("Other", LATE), ("Sales.old", EARLY), ("Former", EARLY), (None, EARLY)]
        )
    ]
    [found] = divided(iter([pa.Table.from_pylist(rows, schema).to_batches()[0]]), AFTER)
    assert [position[-1] for position in found.column("position").to_pylist()] == ["2", "3", "4", "5"]


def test_topics_of_one_database_or_of_none_are_not_divided() -> None:
    assert divided_rows("transactions", ["Sales"]) is None
    assert divided_rows("heartbeat", NAMES) is None
