"""Transactions, isolation, locks between sessions."""

import threading
import time
from collections.abc import Callable

import pytest

from mssql_standin.contract import Cancelled
from mssql_standin.store.locks import Locks
from tests.engine.collect import Client, Collected

Connect = Callable[[], Client]


@pytest.fixture
def table(client: Client) -> Client:
    client.do("CREATE TABLE t (id int PRIMARY KEY, v int) INSERT t VALUES (1, 10) CREATE TABLE u (id int PRIMARY KEY)")
    return client


def ids(client: Client) -> list[int]:
    return [row[0] for row in client.rows("SELECT id FROM t ORDER BY id")]


def test_nesting(table: Client) -> None:
    assert table.value("BEGIN TRAN BEGIN TRAN INSERT t VALUES (2, 0) COMMIT SELECT @@TRANCOUNT") == 1
    assert table.value("ROLLBACK SELECT @@TRANCOUNT") == 0
    assert ids(table) == [1]
    assert table.errors("COMMIT") == [3902]
    assert table.errors("ROLLBACK") == [3903]
    assert table.errors("SAVE TRAN a") == [628]
    assert table.errors("BEGIN TRAN ROLLBACK TRAN nosuch") == [6401]


def test_savepoints(table: Client) -> None:
    table.do("""
    BEGIN TRAN
    SAVE TRAN a INSERT t VALUES (2, 0)
    SAVE TRAN b INSERT t VALUES (3, 0)
    ROLLBACK TRAN b INSERT t VALUES (4, 0)
    ROLLBACK TRAN b INSERT t VALUES (5, 0)
    COMMIT
    """)
    assert ids(table) == [1, 2, 5]


def test_a_savepoint_before_the_first_write(table: Client) -> None:
    table.do(
        "BEGIN TRAN SAVE TRAN a INSERT t VALUES (2, 0) ROLLBACK TRAN a INSERT t VALUES (3, 0) ROLLBACK TRAN a INSERT t VALUES (4, 0) COMMIT"
    )
    assert ids(table) == [1, 4]


def test_one_savepoint_name_used_twice(table: Client) -> None:
    table.do("BEGIN TRAN SAVE TRAN a INSERT t VALUES (2, 0) SAVE TRAN a INSERT t VALUES (3, 0) ROLLBACK TRAN a COMMIT")
    assert ids(table) == [1, 2]


def test_implicit_transactions(table: Client, connect: Connect) -> None:
    table.do("SET IMPLICIT_TRANSACTIONS ON")
    assert table.value("SELECT 1 SELECT @@TRANCOUNT") == 0
    assert table.value("SELECT id FROM t SELECT @@TRANCOUNT") == 1
    table.do("INSERT t VALUES (2, 0)")
    assert ids(connect()) == [1]
    table.do("IF @@TRANCOUNT > 0 COMMIT TRAN")
    assert ids(connect()) == [1, 2]
    table.do("set implicit_transactions off IF @@TRANCOUNT > 0 COMMIT TRAN ")


def test_the_savepoint_text_of_the_jdbc_driver(table: Client) -> None:
    table.do("IF @@TRANCOUNT = 0 BEGIN BEGIN TRAN IF @@TRANCOUNT = 2 COMMIT TRAN END SAVE TRAN [dbz_schema_snapshot]")
    table.do("SELECT TOP(0) * FROM [D].[dbo].[t] WITH (TABLOCKX)")
    assert table.value("IF @@TRANCOUNT > 0 ROLLBACK TRAN [dbz_schema_snapshot] SELECT @@TRANCOUNT") == 1


def test_a_failed_statement_keeps_the_transaction_and_a_conversion_error_does_not(table: Client) -> None:
    assert table.errors("BEGIN TRAN INSERT t VALUES (2, 0) INSERT t VALUES (2, 0) COMMIT") == [2627]
    assert ids(table) == [1, 2]
    assert table.errors("BEGIN TRAN INSERT t VALUES (3, 0) SELECT CAST('x' AS int) COMMIT") == [245]
    assert table.value("SELECT @@TRANCOUNT") == 0
    assert ids(table) == [1, 2]


def test_xact_abort(table: Client) -> None:
    assert table.errors(
        "SET XACT_ABORT ON BEGIN TRAN INSERT t VALUES (2, 0) INSERT t VALUES (2, 0) INSERT t VALUES (3, 0) COMMIT"
    ) == [2627]
    assert table.value("SELECT @@TRANCOUNT") == 0
    assert ids(table) == [1]


def test_read_committed_never_pins_a_snapshot(table: Client, connect: Connect) -> None:
    reader = connect()
    reader.do("BEGIN TRAN")
    assert ids(reader) == [1]
    table.do("INSERT t VALUES (2, 0)")
    assert ids(reader) == [1, 2]


def test_snapshot_isolation_pins_at_the_first_read(table: Client, connect: Connect) -> None:
    reader = connect()
    reader.do("SET TRANSACTION ISOLATION LEVEL SNAPSHOT BEGIN TRAN")
    table.do("INSERT t VALUES (2, 0)")
    assert ids(reader) == [1, 2]
    table.do("INSERT t VALUES (3, 0)")
    assert ids(reader) == [1, 2]
    assert reader.errors("INSERT t VALUES (4, 0)") == [3960]
    assert reader.value("SELECT @@TRANCOUNT") == 0
    assert ids(reader) == [1, 2, 3]


def test_snapshot_isolation_may_write_when_nothing_changed(table: Client, connect: Connect) -> None:
    writer = connect()
    writer.do("SET TRANSACTION ISOLATION LEVEL SNAPSHOT BEGIN TRAN SELECT * FROM t INSERT t VALUES (2, 0) COMMIT")
    assert ids(table) == [1, 2]


def test_a_snapshot_outlives_a_rollback_to_a_savepoint_from_before_it(table: Client, connect: Connect) -> None:
    for first in ("SELECT id FROM t", ""):
        table.do(f"SET TRANSACTION ISOLATION LEVEL SNAPSHOT BEGIN TRAN SAVE TRAN a {first} INSERT t VALUES (2, 0)")
        table.do("ROLLBACK TRAN a")
        writer = connect()
        writer.do("SET LOCK_TIMEOUT 0")
        assert writer.errors("INSERT u VALUES (1)") == [1222]  # the transaction goes on, and holds the database
        assert ids(table) == [1]
        table.do("INSERT t VALUES (3, 0) ROLLBACK TRAN a")
        assert ids(table) == [1]
        table.do("COMMIT SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        writer.do("INSERT u VALUES (1) DELETE u")


def test_snapshot_isolation_must_be_allowed(table: Client) -> None:
    table.do("ALTER DATABASE D SET ALLOW_SNAPSHOT_ISOLATION OFF")
    assert table.errors("SET TRANSACTION ISOLATION LEVEL SNAPSHOT BEGIN TRAN SELECT * FROM t") == [3952]


def test_a_savepoint_has_an_lsn_above_all_commits_so_far_and_below_later_ones(table: Client, connect: Connect) -> None:
    table.do("EXEC sys.sp_cdc_enable_db EXEC sys.sp_cdc_enable_table 'dbo', 't', @role_name = NULL")
    table.do("INSERT t VALUES (2, 0)")
    reader = connect()
    reader.do("SET TRANSACTION ISOLATION LEVEL SNAPSHOT BEGIN TRAN SELECT COUNT(*) FROM t SAVE TRAN s")
    table.do("INSERT t VALUES (3, 0)")
    before, after = (
        row[0]
        for row in table.rows("SELECT start_lsn FROM cdc.lsn_time_mapping WHERE tran_id <> 0x00 ORDER BY start_lsn")
    )
    assert reader.session.savepoint_lsn is not None
    savepoint = reader.session.savepoint_lsn.to_bytes(10, "big")
    assert before < savepoint < after


def test_a_second_writer_waits_for_the_first(table: Client, connect: Connect) -> None:
    other = connect()
    table.do("BEGIN TRAN INSERT t VALUES (2, 0)")
    assert other.errors("SET LOCK_TIMEOUT 50 INSERT t VALUES (3, 0)") == [1222]
    thread = threading.Thread(target=lambda: other.do("SET LOCK_TIMEOUT -1 INSERT t VALUES (4, 0)"))
    thread.start()
    time.sleep(0.1)
    assert thread.is_alive()
    table.do("COMMIT")
    thread.join(60)
    assert ids(table) == [1, 2, 4]


@pytest.mark.parametrize(("hint", "reads", "writes"), [("TABLOCKX", [1222], [1222]), ("TABLOCK, HOLDLOCK", [], [1222])])
def test_table_locks_hold_to_the_end_of_the_transaction(
    table: Client, connect: Connect, hint: str, reads: list[int], writes: list[int]
) -> None:
    other = connect()
    other.do("SET LOCK_TIMEOUT 50")
    table.do(f"BEGIN TRAN SELECT TOP (0) * FROM t WITH ({hint})")
    assert other.errors("SELECT * FROM t") == reads
    assert other.errors("UPDATE t SET v = 1") == writes
    other.do("INSERT u VALUES (1) SELECT * FROM t WITH (NOLOCK)")
    table.do("ROLLBACK")
    other.do("UPDATE t SET v = 1 SELECT * FROM t")


def test_a_kept_lock_is_not_let_go_with_the_statement_that_also_read(table: Client, connect: Connect) -> None:
    """While any table is locked exclusively, a reader locks what it reads for the statement."""
    table.do("BEGIN TRAN SELECT * FROM t WITH (TABLOCKX) SELECT * FROM u WITH (TABLOCKX)")
    other = connect()
    other.do("SET LOCK_TIMEOUT 0")
    assert other.errors("SELECT * FROM t") == [1222]
    assert other.errors("SELECT * FROM u") == [1222]
    table.do("COMMIT")
    assert other.errors("SELECT * FROM u") == []


def test_a_lock_for_a_statement_does_not_take_the_kept_one_with_it(table: Client, connect: Connect) -> None:
    table.do("BEGIN TRAN INSERT t VALUES (2, 0) SELECT * FROM t WITH (TABLOCK)")
    other = connect()
    other.do("SET LOCK_TIMEOUT 0")
    assert other.errors("SELECT * FROM t WITH (TABLOCK)") == [1222]


def test_rolling_back_to_a_savepoint_lets_go_of_its_locks(table: Client, connect: Connect) -> None:
    other = connect()
    other.do("SET LOCK_TIMEOUT 50")
    table.do("BEGIN TRAN SAVE TRAN s SELECT TOP (0) * FROM t WITH (TABLOCKX)")
    assert other.errors("UPDATE t SET v = 1") == [1222]
    table.do("ROLLBACK TRAN s")
    other.do("UPDATE t SET v = 1")


def test_a_table_lock_waits_for_open_writers(table: Client, connect: Connect) -> None:
    other = connect()
    table.do("BEGIN TRAN INSERT t VALUES (2, 0)")
    assert other.errors("SET LOCK_TIMEOUT 50 SELECT TOP (0) * FROM t WITH (TABLOCK, HOLDLOCK)") == [1222]


def test_who_waits_for_a_table_keeps_nobody_from_writing_others(table: Client, connect: Connect) -> None:
    table.do("BEGIN TRAN SELECT TOP (0) * FROM t WITH (TABLOCK, HOLDLOCK)")
    waits, other = connect(), connect()
    thread = threading.Thread(target=lambda: waits.do("UPDATE t SET v = 7"))
    thread.start()
    while not other.value("SELECT COUNT(*) FROM sys.dm_exec_requests WHERE blocking_session_id <> 0"):
        time.sleep(0.01)
    other.do("SET LOCK_TIMEOUT 500 INSERT u VALUES (1)")
    assert thread.is_alive()
    table.do("COMMIT")
    thread.join(60)
    assert not thread.is_alive()


def test_a_deadlock_has_one_victim(table: Client, connect: Connect) -> None:
    other = connect()
    other.do("BEGIN TRAN SELECT TOP (0) * FROM t WITH (TABLOCK, HOLDLOCK)")
    table.do("BEGIN TRAN INSERT u VALUES (1)")
    outcome: list[list[int]] = []
    thread = threading.Thread(target=lambda: outcome.append(table.errors("INSERT t VALUES (2, 0)")))
    thread.start()
    while not other.value("SELECT COUNT(*) FROM sys.dm_exec_requests WHERE blocking_session_id <> 0"):
        time.sleep(0.01)
    assert other.errors("INSERT u VALUES (2)") == [1205]
    assert other.value("SELECT @@TRANCOUNT") == 0
    thread.join(60)
    assert outcome == [[]]
    table.do("COMMIT")


def test_an_attention_ends_the_wait_for_a_lock(table: Client, connect: Connect) -> None:
    other = connect()
    table.do("BEGIN TRAN INSERT t VALUES (2, 0)")
    begin = time.monotonic()
    with pytest.raises(Cancelled):
        other.session.batch("INSERT t VALUES (3, 0)", Collected(stop=Cancelled()))
    assert time.monotonic() - begin < 20
    table.do("COMMIT")
    other.do("INSERT t VALUES (3, 0)")


class Attention(Collected):
    """A client that sends one attention; `check` takes it."""

    pending = True

    def check(self) -> None:
        """Raise once."""
        if self.pending:
            self.pending = False
            raise Cancelled


@pytest.mark.parametrize("statement", ["SELECT i FROM n WHERE i < 0", "INSERT t SELECT i, 0 FROM n"])
def test_no_attention_is_swallowed_while_a_transaction_writes(table: Client, statement: str) -> None:
    """One that is taken must end the request: the client waits for its answer."""
    table.do("CREATE TABLE n (i int) INSERT n SELECT value FROM GENERATE_SERIES(10, 200000)")
    table.do("BEGIN TRAN INSERT t VALUES (2, 0)")
    sink, ended = Attention(), False
    try:
        table.session.batch(statement, sink)
    except Cancelled:
        ended = True
    assert ended != sink.pending
    assert table.rows("SELECT id FROM t WHERE id > 1") == [(2,)]


def test_definitions_roll_back_with_their_transaction(table: Client, connect: Connect) -> None:
    table.do("BEGIN TRAN CREATE TABLE made (id int) INSERT made VALUES (1) ALTER TABLE t ADD w int NULL DROP TABLE u")
    assert connect().errors("SELECT * FROM made") == [208]
    table.do("ROLLBACK")
    assert table.errors("SELECT * FROM made") == [208]
    assert table.do("SELECT * FROM t").names == [["id", "v"]]
    table.do("INSERT u VALUES (1)")


def test_definitions_roll_back_to_a_savepoint(table: Client) -> None:
    table.do(
        "BEGIN TRAN CREATE TABLE a (id int) SAVE TRAN s CREATE TABLE b (id int) ROLLBACK TRAN s INSERT a VALUES (1) COMMIT"
    )
    assert table.errors("SELECT * FROM b") == [208]
    assert table.value("SELECT id FROM a") == 1


def test_closing_a_session_rolls_back(table: Client, connect: Connect) -> None:
    other = connect()
    other.do("BEGIN TRAN INSERT t VALUES (2, 0)")
    other.session.close()
    table.do("INSERT t VALUES (3, 0)")
    assert ids(table) == [1, 3]


def test_transaction_manager_requests(table: Client) -> None:
    session = table.session
    first = session.begin()
    assert session.in_transaction
    table.do("INSERT t VALUES (2, 0)")
    session.save("s")
    table.do("INSERT t VALUES (3, 0)")
    session.rollback("s")
    session.commit()
    session.rollback()
    assert ids(table) == [1, 2]
    assert session.begin() != first
    session.rollback()


def test_writers_wait_for_each_other_also_on_other_tables(
    table: Client, connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One transaction writes at a time: the second one waits, is seen waiting, and both commit."""
    monkeypatch.setattr(Locks, "TELL_AFTER_S", 0.05)
    first, second = table, connect()
    first.do("BEGIN TRAN INSERT t VALUES (2, 0)")
    thread = threading.Thread(target=lambda: second.do("BEGIN TRAN INSERT u VALUES (1) INSERT t VALUES (3, 0) COMMIT"))
    thread.start()
    query = "SELECT session_id, blocking_session_id, status FROM sys.dm_exec_requests WHERE blocking_session_id <> 0"
    numbers = second.session.session_id, first.session.session_id
    deadline = time.monotonic() + 60
    while first.rows(query) != [(*numbers, "suspended")]:
        assert time.monotonic() < deadline
    while not caplog.messages:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert caplog.messages == [f"session {numbers[0]} waits to write for session {numbers[1]}"]
    first.do("INSERT u VALUES (2) COMMIT")
    thread.join(60)
    assert ids(first) == [1, 2, 3]
    assert first.rows("SELECT id FROM u ORDER BY id") == [(1,), (2,)]
