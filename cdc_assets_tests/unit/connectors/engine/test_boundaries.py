"""BEGIN and END of transactions count once, although they have no position."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.connectors.engine.boundaries import Boundary, has_boundaries, last_boundary
from cdc_assets.connectors.engine.feed import Chunk, Lines
from cdc_assets.connectors.engine.ledger import Batch, BatchLedger
from cdc_assets.connectors.engine.positions import Repetitions
from cdc_assets.connectors.engine.staging import Staging
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables


def chunk(*boundaries: tuple[str, str]) -> pa.Table:
    values = [{"status": status, "id": id_, "event_count": 1, "ts_ms": 5} for id_, status in boundaries]
    return pa.table({"n": list(range(len(values))), "value": pa.array(values)})


def kept(recorded: Boundary, *boundaries: tuple[str, str]) -> list[int]:
    [table] = Repetitions(None, (), recorded).drop([chunk(*boundaries)])
    found: list[int] = table.column("n").to_pylist()
    return found


@pytest.mark.parametrize(
    ("recorded", "sent", "new"),
    [
        (("a", "END"), [("a", "END"), ("b", "BEGIN")], [1]),
        (("a", "END"), [("a", "BEGIN"), ("a", "END"), ("b", "BEGIN")], [2]),
        (("a", "BEGIN"), [("a", "END"), ("b", "BEGIN")], [0, 1]),
        (("a", "BEGIN"), [("a", "BEGIN"), ("a", "END")], [1]),
        (("a", "END"), [("b", "BEGIN"), ("b", "END")], [0, 1]),
        (("7", "END"), [("7:120", "BEGIN"), ("7:160", "END"), ("8:200", "BEGIN")], [2]),
    ],
)
def test_what_is_new(recorded: Boundary, sent: list[tuple[str, str]], new: list[int]) -> None:
    assert kept(recorded, *sent) == new


def test_the_search_ends_with_the_first_new_one() -> None:
    repetitions = Repetitions(None, (), ("a", "END"))
    assert repetitions.drop([chunk(("a", "END"))])[0].num_rows == 0
    assert repetitions.drop([chunk(("b", "BEGIN"))])[0].num_rows == 1
    assert repetitions.drop([chunk(("a", "END"))])[0].num_rows == 1


def test_a_batch_of_repetitions_keeps_the_last_one_that_is_recorded(tmp_path: Path) -> None:
    lines = Lines("shop.transaction", 1, None, None, 1, 0, b"", chunk(("7:120", "BEGIN")))
    tables = TopicTables(Location(str(tmp_path)), "shop")
    staging = Staging(tables, "shop", 1, Repetitions(None, (), ("7", "END")), {1: lines.table.schema})
    staging.add(Chunk(1, [lines], 1, [({"server": "shop"}, {"pos": 9})]))
    batch = staging.close()
    assert (batch.rows, batch.boundary) == (0, None)


def test_rows_have_none_and_a_chunk_has_a_last_one() -> None:
    rows = pa.table({"n": [0], "value": pa.array([{"source": {"connector": "mysql"}, "op": "c"}])})
    assert not has_boundaries(rows)
    assert last_boundary([rows]) is None
    assert last_boundary([rows, chunk(("7:1", "BEGIN"), ("7:9", "END"))]) == ("7", "END")


@pytest.mark.long
def test_it_is_recorded_with_the_batch_and_in_the_state(tmp_path: Path) -> None:
    tables = TopicTables(Location(str(tmp_path)), "shop")
    ledger, now = BatchLedger(tables, "shop"), datetime.now(UTC)
    ledger.claim(now)
    for number in range(60):
        ledger.plan(now, Batch(number, {}, [], 1, None, ("a", "END") if number == 0 else None))
        ledger.complete(now, {})
    assert ledger.folded
    assert BatchLedger(tables, "shop").read().boundary == ("a", "END")
