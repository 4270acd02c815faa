"""Whatever happens between two reads, encoded blocks give what evaluation without them gives: to a reader of committed rows,
to the transaction that changes them, and to a snapshot from before."""

from collections.abc import Iterator
from contextlib import closing

import pyodbc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mssql_standin.control import StandIn
from mssql_standin.wire import blocks

DATABASE = "BlocksLawDb"
ROWS = 24

numbers = st.integers(0, 40)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(1, 10)),
        st.tuples(st.sampled_from(["update", "range", "move", "delete", "last", "partner"]), numbers),
        st.tuples(
            st.sampled_from(
                ["begin", "save", "rollback to", "rollback", "commit", "truncate", "alter", "pin", "unpin"]
            ),
            st.just(0),
        ),
    ),
    min_size=4,
    max_size=20,
)

READS = (
    ("SELECT {} id, s, n FROM dbo.t", 0),
    ("SELECT {} id, s FROM dbo.t ORDER BY id", 0),
    ("SELECT {} n, id FROM dbo.t WHERE id >= ? AND id < ? ORDER BY id", 2),
    ("SELECT {} t.id, u.s FROM dbo.t AS t LEFT JOIN dbo.u AS u ON u.k = t.n ORDER BY t.id", 0),
)


@pytest.fixture(scope="module")
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as started:
        started.execute(f"ALTER DATABASE {DATABASE} SET ALLOW_SNAPSHOT_ISOLATION ON")
        yield started


class Run:
    """A writer, a reader of committed rows, and a reader whose snapshot may be pinned."""

    def __init__(self, server: StandIn, *connections: pyodbc.Connection) -> None:
        self.server = server
        self.writer, self.reader, self.pinned = connections
        self.next_id, self.saved, self.pin, self.locked = 1, False, False, False
        for name in ("t", "u"):
            self.writer.execute(f"DROP TABLE IF EXISTS dbo.{name}")
        self.writer.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, s nvarchar(20), n int)")
        self.writer.execute("CREATE TABLE dbo.u (k int NOT NULL PRIMARY KEY, s int NOT NULL)")
        self.writer.execute("INSERT dbo.u SELECT value, 0 FROM GENERATE_SERIES(0, 6)")
        self.insert(ROWS)
        self.pinned.execute("SET TRANSACTION ISOLATION LEVEL SNAPSHOT")

    @property
    def inside(self) -> bool:
        return bool(self.writer.execute("SELECT @@TRANCOUNT").fetchval())

    def insert(self, count: int) -> None:
        rows = ", ".join(f"({n}, N'row {n}', {n % 7})" for n in range(self.next_id, self.next_id + count))
        self.writer.execute(f"INSERT dbo.t (id, s, n) VALUES {rows}")
        self.next_id += count

    def step(self, kind: str, number: int) -> None:
        inside = self.inside
        match kind:
            case "insert":
                self.insert(number)
            case "update":
                self.writer.execute("UPDATE dbo.t SET s = s + N'!' WHERE id = ?", number)
            case "range":
                self.writer.execute("UPDATE dbo.t SET n = (n + 1) % 7 WHERE id BETWEEN ? AND ?", number, number + 9)
            case "move":
                self.writer.execute("UPDATE dbo.t SET id = -id WHERE ABS(id) BETWEEN ? AND ?", number, number + 7)
            case "delete":
                self.writer.execute("DELETE dbo.t WHERE id = ?", number)
            case "last":  # rowids of the highest rows are given again
                self.writer.execute("DELETE dbo.t WHERE id >= ?", max(1, self.next_id - number % 12))
            case "partner":
                self.writer.execute("UPDATE dbo.u SET s = s + 1 WHERE k = ?", number % 7)
            case "begin" if not inside:
                self.writer.execute("BEGIN TRAN")
                self.saved = False
            case "save" if inside:
                self.writer.execute("SAVE TRAN s")
                self.saved = True
            case "rollback to" if inside and self.saved:
                self.writer.execute("ROLLBACK TRAN s")
            case "rollback" | "commit" if inside:
                self.writer.execute(kind)
            case "truncate":
                self.locked = inside
                self.writer.execute("TRUNCATE TABLE dbo.t")
            case "alter" if not self.pin:
                self.locked = inside
                self.writer.execute(f"ALTER TABLE dbo.t ALTER COLUMN s nvarchar({20 + self.next_id})")
            case "pin" if not self.pin and not inside:
                self.pinned.execute("BEGIN TRAN")
                self.pinned.execute("SELECT COUNT(*) FROM dbo.t").fetchval()
                self.pin = True
            case "unpin" if self.pin:
                self.pinned.execute("COMMIT")
                self.pin = False

    def compare(self, number: int) -> None:
        """TOP keeps the same statement from blocks. Readers wait for a definition statement that is not committed."""
        self.locked &= self.inside
        readers = [self.pinned] if self.pin else [] if self.locked else [self.reader, self.pinned]
        for connection in [self.writer, *readers]:
            for text, parameters in READS:
                bounds = (number, number + 20)[:parameters]
                found = connection.execute(text.format(""), *bounds).fetchall()
                expected = connection.execute(text.format("TOP (1000000)"), *bounds).fetchall()
                key = None if "ORDER BY" in text else lambda row: row[0]
                assert (
                    [tuple(row) for row in found] == [tuple(row) for row in expected]
                    if key is None
                    else (sorted(map(tuple, found)) == sorted(map(tuple, expected)))
                )


@given(steps=steps)
@settings(max_examples=15, deadline=None)
def test_blocks_give_what_evaluation_gives(server: StandIn, steps: list[tuple[str, int]]) -> None:
    engine_blocks = server.engine.blocks
    assert isinstance(engine_blocks, blocks.RowBlocks)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in (("BLOCK", 8), ("WORTHWHILE", 8), ("_PATIENCE", 10**9)):
            patched.setattr(blocks, name, value)
        connections = [pyodbc.connect(server.connection_string(DATABASE), autocommit=True) for _ in range(3)]
        with closing(connections[0]), closing(connections[1]), closing(connections[2]):
            run = Run(server, *connections)
            served = engine_blocks.served
            run.compare(1)
            assert engine_blocks.served - served >= 3 * 3 * ROWS, "the law says nothing if blocks are not used"
            for kind, number in steps:
                run.step(kind, number)
                run.compare(number)
