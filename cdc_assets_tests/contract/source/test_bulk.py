"""The data plane streams Arrow, keeps values, and says what went wrong."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pyarrow as pa
import pytest

from cdc_assets.adapters.sqlserver import bulk, bulk_sessions
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource, piece_rows
from cdc_assets.adapters.sqlserver.bulk_sessions import POOL
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.sqlserver.table_queries import LOCK_WAIT_MS
from cdc_assets.config.settings import ConnectionSettings, IsolationMode
from cdc_assets.core.lsn import ZERO_LSN
from cdc_assets.errors import (
    ConnectionLostError,
    IncompleteReadError,
    LockTimeoutError,
    LoginError,
    QueryError,
    ServerBusyError,
)
from cdc_assets_tests.contract.source.conftest import DATABASE, Server, connection, drain
from mssql_standin.control import StandIn

pytestmark = pytest.mark.contract
ROWS = 1000
WIDE = "SELECT id, REPLICATE(N'x', 200) AS padding FROM dbo.t"
"""Rows that fill many packets, so that a fault after some rows strikes behind the first batch."""


@pytest.fixture
def reader(server: Server) -> MssqlBulkSource:
    server.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v nvarchar(40))", database=DATABASE)
    for start in range(0, ROWS, 500):
        values = ", ".join(f"({number}, N'v{number}')" for number in range(start, start + 500))
        server.execute(f"INSERT INTO dbo.t VALUES {values}", database=DATABASE)
    return MssqlBulkSource(connection(server, DATABASE), batch_rows=300)


def test_batches_stream_in_order(reader: MssqlBulkSource) -> None:
    batches = list(reader.read("SELECT id, v FROM dbo.t ORDER BY id"))
    assert [batch.num_rows for batch in batches] == [300, 300, 300, 100]
    assert pa.Table.from_batches(batches)["id"].to_pylist() == list(range(ROWS))


def read_with_small_batches(reader: MssqlBulkSource, statement: str) -> tuple[list[int], list[int]]:
    """In a process of its own: ids, and rows of each batch of at most 8,000 bytes."""
    bulk.BATCH_BYTES = 8_000
    batches = list(reader.read(statement))
    return pa.Table.from_batches(batches)["id"].to_pylist(), [batch.num_rows for batch in batches]


def test_wide_values_come_in_batches_of_fewer_rows(reader: MssqlBulkSource) -> None:
    wide = "REPLICATE(CAST('x' AS varchar(max)), CASE WHEN id < 200 THEN 10 ELSE 4000 END)"
    statement = f"SELECT id, {wide} AS w FROM dbo.t WHERE id < 320 ORDER BY id"
    # not in this process: while the driver waits for a large value, it would stop the server, too
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        ids, rows = pool.submit(read_with_small_batches, reader, statement).result(120)
    assert ids == list(range(320))
    assert rows[0] >= 200  # of small values a whole batch, but for the piece in which they grow
    assert max(rows[1:]) <= 4


@pytest.mark.parametrize(
    ("sizes", "rows", "expected"),
    [
        ([(int, 10), (str, 40)], 32_768, (32_768, 32_768)),
        ([(str, 4000)] * 4, 32_768, (1048, 1048)),
        ([(int, 10)] + [(str, 100)] * 300, 32_768, (559, 559)),
        ([(int, 10), (str, 0)], 32_768, (8, 64)),
        ([(bytes, 0)], 5, (5, 5)),
        ([(bytes, 8000)] * 10_000, 32_768, (1, 1)),
    ],
)
def test_the_driver_is_asked_for_rows_of_bounded_width(
    sizes: list[tuple[type, int]], rows: int, expected: tuple[int, int]
) -> None:
    description = [("name", kind, None, size, size, None, True) for kind, size in sizes]
    assert piece_rows(description, rows) == expected


def test_a_server_that_lags_is_not_read(server: Server, reader: MssqlBulkSource) -> None:
    """As a replica that a connection of a task was routed to."""
    for statement in (
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL",
        "INSERT INTO dbo.t VALUES (5000, N'x')",
    ):
        server.execute(statement, database=DATABASE)
    drain(server)
    with SqlServerSource(connection(server, DATABASE)) as source:
        newest, [instance] = source.max_captured_lsn(DATABASE), source.capture_instances(DATABASE)
    assert newest is not None
    rows = "SELECT id FROM dbo.t WHERE id < 3"
    assert sum(batch.num_rows for batch in reader.reaching(DATABASE, newest).read(rows)) == 3
    for behind in (reader.reaching(DATABASE, newest.next()), reader.reaching(DATABASE, newest.next(), captured=False)):
        with pytest.raises(IncompleteReadError, match="the replica lags"):
            list(behind.read(rows))
        with pytest.raises(IncompleteReadError), behind.transaction():
            pass
    with SqlServerSource(connection(server, DATABASE)) as source:
        fork = source.recovery_fork(DATABASE)
        assert fork is not None
        source.leave_forks(DATABASE, [fork.identity])
        with pytest.raises(IncompleteReadError, match="recovery fork"):
            source.max_transaction_lsn(DATABASE, None, 0, newest)
        assert source.recovery_fork(DATABASE, newest) == fork
        for known in (newest, ZERO_LSN):  # a snapshot without change data capture knows no LSN
            with pytest.raises(IncompleteReadError, match="recovery fork"):
                list(reader.reaching(DATABASE, known, left=source.left_forks(DATABASE)).read(rows))
    server.execute("DELETE FROM cdc.lsn_time_mapping", database=DATABASE)
    logged = reader.reaching(DATABASE, instance.start_lsn, captured=False)
    assert sum(batch.num_rows for batch in logged.read(rows)) == 3
    with pytest.raises(IncompleteReadError):
        list(reader.reaching(DATABASE, instance.start_lsn).read(rows))


def test_parameters(reader: MssqlBulkSource) -> None:
    [batch] = reader.read("SELECT v FROM dbo.t WHERE id >= ? AND v = ?", (5, "v7"))
    assert batch.to_pydict() == {"v": ["v7"]}


def test_binary_parameters_keep_their_zeros(reader: MssqlBulkSource) -> None:
    raw = bytes(8) + b"\1\0"
    [batch] = reader.read("SELECT CONVERT(varbinary(10), ?) AS b, DATALENGTH(?) AS n", (raw, raw))
    assert batch.to_pydict() == {"b": [raw], "n": [10]}


def test_no_rows_still_tell_the_structure(reader: MssqlBulkSource) -> None:
    [batch] = reader.read("SELECT id, v FROM dbo.t WHERE id < 0")
    assert batch.num_rows == 0
    assert batch.schema.names == ["id", "v"]


def test_travels_to_a_task_without_showing_its_password(reader: MssqlBulkSource) -> None:
    copy = pickle.loads(pickle.dumps(reader))  # noqa: S301 - our own bytes
    assert copy == reader
    assert reader.settings.password not in repr(reader)
    assert next(iter(copy.read("SELECT 1 AS one"))).to_pydict() == {"one": [1]}


def test_wrong_statement(reader: MssqlBulkSource) -> None:
    with pytest.raises(QueryError, match="nope") as error:
        list(reader.read("SELECT * FROM dbo.nope"))
    assert error.value.number == 208


def test_wrong_password(server: Server) -> None:
    with pytest.raises(LoginError) as error:
        list(MssqlBulkSource(connection(server, DATABASE, password="wr0ng")).read("SELECT 1"))
    assert "wr0ng" not in str(error.value)


def test_host_down() -> None:
    settings = ConnectionSettings(
        host="127.0.0.1", port=1, user="u", password="p", databases=("x",), encrypt="no", login_timeout_s=1
    )
    with pytest.raises(ConnectionLostError):
        list(MssqlBulkSource(settings).read("SELECT 1"))


def test_an_error_before_the_first_batch_is_repeated(standin: StandIn, reader: MssqlBulkSource) -> None:
    standin.faults.deadlock(matching="FROM dbo.t", times=2)
    assert sum(batch.num_rows for batch in reader.read("SELECT id FROM dbo.t")) == ROWS
    assert len(standin.faults.struck) == 2


def test_a_lost_connection_before_the_first_batch_is_repeated(standin: StandIn, reader: MssqlBulkSource) -> None:
    list(reader.read("SELECT 1 AS one"))
    standin.drop_connections()
    assert sum(batch.num_rows for batch in reader.read("SELECT id FROM dbo.t")) == ROWS


def test_an_error_in_mid_stream_is_not_repeated(standin: StandIn, reader: MssqlBulkSource) -> None:
    standin.faults.deadlock(matching="FROM dbo.t", after_rows=700)
    seen: list[int] = []
    with pytest.raises(ServerBusyError, match="deadlock"):
        seen.extend(batch.num_rows for batch in reader.read(WIDE))
    assert 0 < sum(seen) <= 700
    assert len(standin.faults.struck) == 1


def test_a_connection_that_breaks_in_mid_stream(standin: StandIn, reader: MssqlBulkSource) -> None:
    standin.faults.drop(matching="FROM dbo.t", after_rows=700)
    seen: list[int] = []
    with pytest.raises(ConnectionLostError):
        seen.extend(batch.num_rows for batch in reader.read(WIDE))
    assert 0 < sum(seen) <= 700


def test_leaving_early_frees_the_connection(standin: StandIn, reader: MssqlBulkSource) -> None:
    for _ in range(30):
        next(iter(reader.read("SELECT id FROM dbo.t")))
    assert standin.connections <= 16
    assert next(iter(reader.read("SELECT 2 AS two"))).to_pydict() == {"two": [2]}


def test_as_many_reads_at_once_as_somebody_wants(server: Server, reader: MssqlBulkSource) -> None:
    open_reads = [reader.read("SELECT id FROM dbo.t ORDER BY id") for _ in range(40)]
    first = [next(batches)["id"][0].as_py() for batches in open_reads]
    rest = [sum(batch.num_rows for batch in batches) for batches in open_reads]
    assert first == [0] * 40
    assert rest == [ROWS - 300] * 40


def test_small_results_side_by_side_need_one_session(standin: StandIn, reader: MssqlBulkSource) -> None:
    list(reader.read("SELECT 1 AS one"))
    before = standin.connections
    open_reads = [reader.read("SELECT TOP 100 id FROM dbo.t") for _ in range(40)]
    assert [next(batches).num_rows for batches in open_reads] == [100] * 40
    assert standin.connections == before


def test_sessions_that_wait_for_work_are_few_and_not_for_long(
    standin: StandIn, reader: MssqlBulkSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_sessions, "MAX_IDLE", 3)
    POOL.clear()
    open_reads = [reader.read("SELECT id FROM dbo.t") for _ in range(10)]
    for batches in [*open_reads, *open_reads]:
        next(batches)
    for batches in open_reads:
        list(batches)
    assert len(POOL._idle) == 3
    monkeypatch.setattr(bulk_sessions, "IDLE_S", -1.0)
    list(reader.read("SELECT 1 AS one"))
    assert not POOL._idle


def test_the_server_is_reported_our_name(server: Server) -> None:
    name = "ERP; nightly} capture"
    settings = connection(server, DATABASE, application=name)
    ask = "SELECT program_name FROM sys.dm_exec_sessions WHERE session_id = @@SPID"
    [batch] = MssqlBulkSource(settings).read(ask)
    assert batch.to_pydict() == {"program_name": [name]}
    with SqlServerSource(settings) as source:
        assert source.session.value(ask) == name
    [batch] = MssqlBulkSource(connection(server, DATABASE)).read(ask)
    assert batch.to_pydict() == {"program_name": ["cdc-assets"]}


def level(reader: MssqlBulkSource, statement: str) -> int:
    [batch] = reader.read(statement)
    return int(batch.column(0)[0].as_py())


LEVEL = "SELECT transaction_isolation_level FROM sys.dm_exec_sessions WHERE session_id = @@SPID"
"""2 read committed, 3 repeatable read, 4 serializable, 5 snapshot."""


@pytest.mark.parametrize(("mode", "expected"), [("read_committed", 2), ("repeatable_read", 3), ("snapshot", 5)])
def test_isolation_is_for_source_tables_only(server: Server, mode: IsolationMode, expected: int) -> None:
    server.execute(f"ALTER DATABASE {DATABASE} SET ALLOW_SNAPSHOT_ISOLATION ON")
    reader = MssqlBulkSource(connection(server, DATABASE), isolation=mode)
    assert level(reader, f"/* cdc-assets: rows */ {LEVEL}") == expected
    assert level(reader, f"/* cdc-assets: changes */ {LEVEL}") == 2


def lock_wait(reader: MssqlBulkSource, tag: str) -> int:
    """The longest wait of a statement for a lock, in milliseconds."""
    [batch] = reader.read(f"/* cdc-assets: {tag} */ SELECT @@LOCK_TIMEOUT AS milliseconds")
    return int(batch.column(0)[0].as_py())


def test_the_lock_of_one_change_table_is_waited_for_and_then_hardly_any(
    standin: StandIn, reader: MssqlBulkSource
) -> None:
    """Somebody may hold those of many, and the other tables of the window would wait half a minute for each."""
    window = reader.reaching(DATABASE, ZERO_LSN)
    standin.faults.error(1222, matching="dbo_t_CT", times=1)
    assert lock_wait(window, "changes") == LOCK_WAIT_MS
    with pytest.raises(LockTimeoutError):
        list(window.read("/* cdc-assets: changes */ SELECT 1 AS one FROM cdc.dbo_t_CT"))
    assert 0 < lock_wait(window, "changes") == lock_wait(window, "preceding") < 1000
    assert lock_wait(window, "marks") == LOCK_WAIT_MS
    assert lock_wait(reader.reaching(DATABASE, ZERO_LSN), "changes") == LOCK_WAIT_MS, "the next window waits again"
