"""Rows of a topic of several databases are published after the LSN of their own one."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.config.settings import EventSettings
from cdc_assets.core.lsn import ZERO_LSN, Lsn, Position
from cdc_assets.envelope.blocks import TRANSACTION
from cdc_assets.history.events import topic_schema
from cdc_assets.lake.files import TopicWriter
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.publish.divided import divided_rows
from cdc_assets.publish.rows import TopicRows
from cdc_assets.system_topics.transactions import TOPIC_SCHEMA, Stream, number

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


def transactions_of(database: str, lsn: str) -> list[pa.RecordBatch]:
    """BEGIN and END of a transaction with one event."""
    source = pa.struct([("commit_lsn", pa.string()), ("ts_ms", pa.int64())])
    value = pa.struct([pa.field("source", source), TRANSACTION.to_field("transaction")])
    row = {
        "position": str(Position(Lsn.parse(lsn), 1, Lsn.from_int(1), 2)),
        "value": {"source": {"commit_lsn": lsn, "ts_ms": 5}, "transaction": None},
    }
    events = pa.RecordBatch.from_pylist([row], pa.schema([("position", pa.string()), ("value", value)]))
    stream = Stream(f"{database}.dbo.t", iter([events]), lambda batches: None, lambda error: None)
    return list(number([stream], ZERO_LSN, 3, database=database))


@pytest.mark.parametrize(("starts", "wanted"), [({}, ["Sales", "Other"]), (AFTER, ["Other"])], ids=["all", "divided"])
def test_transactions_of_two_databases_with_one_lsn_are_published_both(
    tmp_path: Path, starts: dict[str, str], wanted: list[str]
) -> None:
    tables, written, lsn = TopicTables(Location(str(tmp_path)), "shop"), [], "00000050:00000001:0001"
    tables.ensure("t", TOPIC_SCHEMA)
    for database in ("Sales", "Other"):
        with TopicWriter(tables.location, "t", TOPIC_SCHEMA, 3) as writer:
            writer.write(iter(transactions_of(database, lsn)))
        written += writer.files
    assert tables.commit("t", TOPIC_SCHEMA, written, 3, {})
    divided = divided_rows("transactions", NAMES)
    assert divided is not None
    rows = [row for batch in divided(TopicRows(tables, "t").read((-1, "~"), None), starts) for row in batch.to_pylist()]
    told = Counter((row["value"]["status"], row["position"].rpartition("/")[2]) for row in rows)
    assert told == Counter((status, database) for status in ("BEGIN", "END") for database in wanted)
    ends = [row["value"]["data_collections"][0]["data_collection"] for row in rows if row["value"]["status"] == "END"]
    assert sorted(ends) == sorted(f"{database}.dbo.t" for database in wanted)


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
