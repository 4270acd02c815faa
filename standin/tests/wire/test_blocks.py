"""Encoded blocks give exactly what the ordinary way gives, whatever happens to the table in between."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyodbc
import pytest

from mssql_standin.control import StandIn
from mssql_standin.wire import blocks

DATABASE = "BlocksDb"


@pytest.fixture(scope="module")
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as started:
        yield started


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 8)
    monkeypatch.setattr(blocks, "WORTHWHILE", 8)
    monkeypatch.setattr(blocks, "_PATIENCE", 10**9)


@pytest.fixture
def connection(server: StandIn) -> Iterator[Any]:
    opened = pyodbc.connect(server.connection_string(DATABASE), autocommit=True)
    yield opened
    opened.close()


@pytest.fixture
def table(server: StandIn) -> Iterator[str]:
    server.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, s nvarchar(20), n int)", database=DATABASE)
    yield "dbo.t"
    server.execute("DROP TABLE dbo.t", database=DATABASE)


def fill(server: StandIn, count: int, first: int = 1) -> None:
    rows = ", ".join(f"({n}, N'row {n}', {n % 7})" for n in range(first, first + count))
    server.execute(f"INSERT dbo.t VALUES {rows}", database=DATABASE)


def same(server: StandIn, connection: Any, statement: str, *parameters: object) -> int:
    """Reads both ways, compares, and returns how many rows came from blocks."""
    engine_blocks = server.engine.blocks
    assert isinstance(engine_blocks, blocks.RowBlocks)
    before = engine_blocks.served
    found = [tuple(row) for row in connection.execute(statement, *parameters).fetchall()]
    expected = server.execute(statement, *parameters, database=DATABASE)
    assert found == expected if "ORDER BY" in statement else sorted(found) == sorted(expected)
    return engine_blocks.served - before


pytestmark = pytest.mark.usefixtures("small_blocks")

RANGE = "SELECT id, s, n FROM dbo.t WHERE id >= ? AND id < ? ORDER BY id"


def test_scans_and_ranges_come_from_blocks(server: StandIn, connection: Any, table: str) -> None:
    fill(server, 100)
    for _ in range(2):
        assert same(server, connection, "SELECT * FROM dbo.t") == 100
        assert same(server, connection, "SELECT s, id + 1 AS next FROM dbo.t ORDER BY id") == 100
        for low, high in ((1, 101), (5, 90), (17, 25), (16, 64)):
            assert same(server, connection, RANGE, low, high) == high - low


def test_what_has_holes_or_another_order_takes_the_ordinary_way(server: StandIn, connection: Any, table: str) -> None:
    fill(server, 100)
    for statement in (
        "SELECT id FROM dbo.t WHERE n = 3",
        "SELECT id FROM dbo.t ORDER BY n, id",
        "SELECT id FROM dbo.t ORDER BY id DESC",
        "SELECT id FROM dbo.t ORDER BY s",
        "SELECT TOP (20) id FROM dbo.t ORDER BY id",
        "SELECT DISTINCT n FROM dbo.t",
        "SELECT n, COUNT(*) FROM dbo.t GROUP BY n",
        "SELECT a.id FROM dbo.t AS a JOIN dbo.t AS b ON a.id = b.n",
        "SELECT id, (SELECT MAX(n) FROM dbo.t) FROM dbo.t",
        "SELECT id, ROW_NUMBER() OVER (ORDER BY n) FROM dbo.t WHERE id < 50",
        "SELECT id FROM dbo.t WHERE id IN (SELECT n FROM dbo.t)",
        "SELECT id FROM dbo.t WHERE s = N'x ORDER BY id' OR id > 0 UNION ALL SELECT 1",
    ):
        assert same(server, connection, statement) == 0


def test_rows_inserted_out_of_order_are_still_sorted(server: StandIn, connection: Any, table: str) -> None:
    fill(server, 40, first=100)
    assert same(server, connection, RANGE, 0, 1000) == 40
    fill(server, 40, first=1)
    assert same(server, connection, RANGE, 0, 1000) == 0
    assert same(server, connection, "SELECT * FROM dbo.t") == 80


def test_a_block_that_moves_away_from_the_next_one_is_noticed(server: StandIn, connection: Any, table: str) -> None:
    fill(server, 40)
    everything = "SELECT id, s FROM dbo.t ORDER BY id"
    assert same(server, connection, everything) == 40
    server.execute(
        "UPDATE dbo.t SET id = id + 1000 WHERE id BETWEEN 8 AND 15", database=DATABASE
    )  # rowids of one block
    assert same(server, connection, everything) == 0
    server.execute("UPDATE dbo.t SET id = id - 1000 WHERE id > 1000", database=DATABASE)
    assert same(server, connection, everything) == 40


def test_order_is_proved_over_nulls_and_holes_too(server: StandIn, connection: Any, table: str) -> None:
    """What the quick proof leaves open is told by the slow one: in order, or not."""
    by_number = "SELECT id, n FROM dbo.t ORDER BY n, id"
    fill(server, 40)
    server.execute("UPDATE dbo.t SET n = CASE WHEN id < 10 THEN NULL ELSE id / 4 END", database=DATABASE)
    assert same(server, connection, by_number) == 40
    server.execute("DELETE dbo.t WHERE id IN (3, 20, 21)", database=DATABASE)
    assert same(server, connection, by_number) == 37
    for wrong in ("n = NULL WHERE id = 30", "n = 1 WHERE id = 24"):
        server.execute(f"UPDATE dbo.t SET {wrong}", database=DATABASE)
        assert same(server, connection, by_number) == 0
        server.execute("UPDATE dbo.t SET n = id / 4 WHERE id >= 10", database=DATABASE)
        assert same(server, connection, by_number) == 37


def test_temporary_tables_are_left_alone(server: StandIn, connection: Any, table: str) -> None:
    fill(server, 40)
    connection.execute("SELECT * INTO #copy FROM dbo.t")
    for _ in range(2):
        assert len(connection.execute("SELECT * FROM #copy").fetchall()) == 40
        assert (
            len(connection.execute("SELECT t.id FROM dbo.t AS t LEFT JOIN #copy AS c ON c.id = t.id").fetchall()) == 40
        )


def test_a_value_that_does_not_depend_on_the_row_alone_is_not_kept(
    server: StandIn, connection: Any, table: str
) -> None:
    fill(server, 40)
    first = connection.execute("SELECT id, NEWID() FROM dbo.t").fetchall()
    second = connection.execute("SELECT id, NEWID() FROM dbo.t").fetchall()
    assert {row[1] for row in first}.isdisjoint(row[1] for row in second)


def test_only_blocks_that_a_change_touched_are_encoded_anew(server: StandIn, connection: Any, table: str) -> None:
    fill(server, 100)
    everything = "SELECT id, s, n FROM dbo.t ORDER BY id"

    def encoded() -> int:
        before = engine_blocks.encoded
        assert same(server, connection, everything) >= 90
        return engine_blocks.encoded - before

    engine_blocks = server.engine.blocks
    assert isinstance(engine_blocks, blocks.RowBlocks)
    assert encoded() == 100
    assert encoded() == 0
    server.execute("UPDATE dbo.t SET n = 8 WHERE id IN (20, 60)", database=DATABASE)
    assert encoded() == 16
    server.execute("DELETE dbo.t WHERE id = 41", database=DATABASE)
    assert encoded() == 7
    fill(server, 1, first=101)  # into the last block, which holds 96 to 100
    assert encoded() == 6
    with server.connect(DATABASE, autocommit=False) as writer:
        writer.execute("UPDATE dbo.t SET n = 9")
        assert encoded() == 0
        writer.rollback()
    assert encoded() == 0
    server.execute("DELETE dbo.t WHERE id >= 94", database=DATABASE)
    fill(server, 8, first=94)
    assert encoded() == 14, "rowids that are taken again lie in both of the last blocks"


def test_snapshot_isolation_keeps_its_rows(server: StandIn, connection: Any, table: str) -> None:
    server.execute(f"ALTER DATABASE {DATABASE} SET ALLOW_SNAPSHOT_ISOLATION ON")
    fill(server, 40)
    same(server, connection, "SELECT * FROM dbo.t")
    connection.execute("SET TRANSACTION ISOLATION LEVEL SNAPSHOT; BEGIN TRAN")
    before = connection.execute("SELECT * FROM dbo.t").fetchall()
    server.execute("UPDATE dbo.t SET s = N'later'", database=DATABASE)
    reader = pyodbc.connect(server.connection_string(DATABASE), autocommit=True)
    same(server, reader, "SELECT * FROM dbo.t")
    reader.close()
    assert connection.execute("SELECT * FROM dbo.t").fetchall() == before
    connection.execute("COMMIT; SET TRANSACTION ISOLATION LEVEL READ COMMITTED")


def test_a_join_follows_its_partner(server: StandIn, connection: Any, table: str) -> None:
    server.execute("CREATE TABLE dbo.u (k int NOT NULL PRIMARY KEY, s nvarchar(20))", database=DATABASE)
    server.execute("INSERT dbo.u SELECT value, N'u' FROM GENERATE_SERIES(0, 6)", database=DATABASE)
    fill(server, 40)
    joined = "SELECT t.id, u.s FROM dbo.t AS t LEFT JOIN dbo.u AS u ON u.k = t.n ORDER BY t.id"
    for change in (
        "UPDATE dbo.u SET s = N'w' WHERE k = 3",
        "INSERT dbo.u VALUES (8, N'new')",
        "UPDATE dbo.t SET n = 8",
    ):
        for _ in range(2):
            assert same(server, connection, joined) == 40
        server.execute(change, database=DATABASE)
    server.execute("DELETE dbo.u WHERE k = 8", database=DATABASE)
    assert same(server, connection, joined) == 0
    server.execute("DROP TABLE dbo.u", database=DATABASE)


def test_a_key_that_is_unique_among_some_rows_may_find_two(server: StandIn, connection: Any, table: str) -> None:
    server.execute("CREATE TABLE dbo.u (k int NOT NULL, live bit NOT NULL)", database=DATABASE)
    server.execute("CREATE UNIQUE INDEX one ON dbo.u (k) WHERE live = 1", database=DATABASE)
    server.execute("INSERT dbo.u SELECT value, 1 FROM GENERATE_SERIES(0, 6)", database=DATABASE)
    fill(server, 40)
    joined = "SELECT t.id, u.live FROM dbo.t AS t LEFT JOIN dbo.u AS u ON u.k = t.n"
    same(server, connection, joined)
    server.execute("INSERT dbo.u VALUES (3, 0)", database=DATABASE)
    same(server, connection, joined)
    server.execute("DROP TABLE dbo.u", database=DATABASE)


def test_a_scan_of_more_than_is_kept_is_encoded_each_time() -> None:
    with StandIn(databases=(DATABASE,), kept_rows=500) as small:
        small.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, s nvarchar(20), n int)", database=DATABASE)
        fill(small, 100)
        engine_blocks = small.engine.blocks
        assert isinstance(engine_blocks, blocks.RowBlocks)
        with closing(pyodbc.connect(small.connection_string(DATABASE), autocommit=True)) as connection:
            for scan in (1, 2):
                assert same(small, connection, RANGE, 1, 101) == 100
                assert engine_blocks.encoded == 100 * scan


def test_a_change_table_with_its_commit_times(server: StandIn, connection: Any, table: str) -> None:
    enable = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL"
    server.execute(enable, database=DATABASE)
    changes = (
        "SELECT ct.[__$start_lsn], ct.[__$operation], ct.id, ct.s, CONVERT(varchar(30), m.tran_end_time, 121) "
        "FROM cdc.dbo_t_CT AS ct LEFT JOIN cdc.lsn_time_mapping AS m ON m.start_lsn = ct.[__$start_lsn] "
        "WHERE ct.[__$start_lsn] > ? AND ct.[__$start_lsn] <= ? "
        "ORDER BY ct.[__$start_lsn], ct.[__$command_id], ct.[__$seqval], ct.[__$operation]"
    )
    fill(server, 30)
    bounds: list[bytes] = [bytes(10)]
    for step in range(6):
        server.execute("UPDATE dbo.t SET s = ? WHERE id <= 20", f"step {step}", database=DATABASE)
        bounds.append(server.execute("SELECT sys.fn_cdc_get_max_lsn()", database=DATABASE)[0][0])
        assert same(server, connection, changes, bounds[0], bounds[-1]) == 30 + 40 * (step + 1)
        assert same(server, connection, changes, bounds[-2], bounds[-1]) == (70 if step == 0 else 40)
    server.agent.cleanup(DATABASE, "dbo_t", bounds[3])
    assert same(server, connection, changes, bounds[0], bounds[-1]) > 0
    server.execute(
        "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N't', @capture_instance = N'all'",
        database=DATABASE,
    )
