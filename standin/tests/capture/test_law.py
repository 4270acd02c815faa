"""The law of change data capture: the change table replayed over the first state gives the final state."""

import random
import threading
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from mssql_standin.engine.server import Engine
from mssql_standin.errors import SqlError
from mssql_standin.sqltypes import Value
from tests.capture.client import Client

KEYS = st.integers(1, 5)
STATEMENTS = st.one_of(
    st.builds("INSERT INTO t VALUES ({0}, {1}, 'i')".format, KEYS, KEYS),
    st.builds("UPDATE t SET n = n + 1 WHERE id = {0}".format, KEYS),
    st.builds("UPDATE t SET v = v + 'x' WHERE id <= {0}".format, KEYS),
    st.builds("UPDATE t SET id = {1} WHERE id = {0}".format, KEYS, KEYS),
    st.just("UPDATE t SET id = id + 1"),
    st.just("UPDATE t SET id = 6 - id"),
    st.builds("DELETE FROM t WHERE id = {0}".format, KEYS),
    st.just("DELETE FROM t WHERE n > 3"),
    st.builds("UPDATE t SET n = (SELECT MAX(n) FROM t) WHERE id = {0}".format, KEYS),
    st.just("SAVE TRAN s"),
    st.just("ROLLBACK TRAN s"),
)
TRANSACTIONS = st.lists(
    st.tuples(st.integers(0, 2), st.lists(STATEMENTS, min_size=1, max_size=6), st.booleans(), st.booleans()), max_size=8
)

Row = tuple[Value, ...]


def replay(first: Sequence[Row], changes: Sequence[Row]) -> dict[Value, Row]:
    """Apply `(operation, id, n, v)` rows one after the other."""
    state: dict[Value, Row] = {row[0]: row for row in first}
    for operation, *row in changes:
        if operation == 1:
            assert state.pop(row[0]) == tuple(row), "a delete shows the row as it was"
        elif operation == 3:
            assert state[row[0]] == tuple(row), "a before image shows the row as it was"
        elif operation == 2:
            assert row[0] not in state, "an insert adds a new key"
            state[row[0]] = tuple(row)
        else:
            state[row[0]] = tuple(row)
    return state


def start(engine: Engine) -> list[Client]:
    clients = [Client(engine, "master")]
    clients[0].run("CREATE DATABASE shop")
    clients = [Client(engine, "shop") for _ in range(3)]
    clients[0].run("EXEC sys.sp_cdc_enable_db")
    clients[0].run("CREATE TABLE t (id int PRIMARY KEY, n int, v varchar(50))")
    clients[0].run("INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')")
    clients[0].run("EXEC sys.sp_cdc_enable_table 'dbo', 't', @role_name = NULL")
    return clients


def attempt(client: Client, statement: str) -> None:
    """Run a statement that may break a key or name no savepoint."""
    try:
        client.run(statement)
    except SqlError as error:
        if error.number not in (2627, 6401):
            raise


ORDER = "__$start_lsn, __$command_id, __$seqval, __$operation"


@settings(max_examples=40, deadline=None)
@given(TRANSACTIONS, st.sampled_from([ORDER, ORDER.replace("__$command_id, ", "")]))
def test_replaying_the_change_table_gives_the_final_state(
    transactions: list[tuple[int, list[str], bool, bool]], order: str
) -> None:
    engine = Engine()
    try:
        clients = start(engine)
        first = clients[0].run("SELECT id, n, v FROM t")
        for session, statements, commits, paused in transactions:
            (engine.agent.pause if paused else engine.agent.resume)()
            client = clients[session]
            client.run("BEGIN TRAN")
            for statement in statements:
                attempt(client, statement)
            client.run("IF @@TRANCOUNT > 0 " + ("COMMIT" if commits else "ROLLBACK"))
        engine.agent.resume()
        engine.agent.drain()
        changes = clients[0].run(f"SELECT __$operation, id, n, v FROM cdc.dbo_t_CT ORDER BY {order}")
        final = clients[0].run("SELECT id, n, v FROM t")
        assert replay(first, changes) == {row[0]: row for row in final}
        lsns = clients[0].run("SELECT start_lsn, tran_id FROM cdc.lsn_time_mapping WHERE tran_id <> 0x00")
        changed = {row[0] for row in clients[0].run("SELECT __$start_lsn FROM cdc.dbo_t_CT")}
        assert {row[0] for row in lsns} == changed
        assert [row[1] for row in sorted(lsns)] == sorted(row[1] for row in lsns)  # type: ignore[type-var]
        assert clients[0].session.connection.execute("SELECT count(*) FROM capture_log").fetchone() == (0,)
    finally:
        engine.close()


def test_threads_that_write_at_once_commit_in_lsn_order(engine: Engine) -> None:
    setup = Client(engine, "shop")
    setup.run("CREATE TABLE t (id int PRIMARY KEY, n int, v varchar(50))")
    setup.run("EXEC sys.sp_cdc_enable_table 'dbo', 't', @role_name = NULL")
    setup.run("INSERT INTO t VALUES (1, 0, ''), (2, 0, ''), (3, 0, '')")
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        dice = random.Random(seed)  # noqa: S311
        client = Client(engine, "shop")
        try:
            for _ in range(40):
                rolled = dice.random() < 0.2
                client.run(
                    f"BEGIN TRAN; UPDATE t SET n = n + 1 WHERE id = {dice.randint(1, 3)}; "
                    f"UPDATE t SET n = n + 1, v = '{seed}' WHERE id = {dice.randint(1, 3)}; {'ROLLBACK' if rolled else 'COMMIT'}"
                )
        except BaseException as failure:
            failures.append(failure)
            raise

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    engine.agent.latency_s = 0.01
    for thread in threads:
        thread.join()
    assert failures == []
    engine.agent.drain()
    changes = setup.run(f"SELECT __$operation, id, n, v FROM cdc.dbo_t_CT ORDER BY {ORDER}")
    final = setup.run("SELECT id, n, v FROM t")
    assert replay([], changes) == {row[0]: row for row in final}
    counts = setup.run("SELECT COUNT(*), COUNT(DISTINCT start_lsn) FROM cdc.lsn_time_mapping")
    assert counts[0][0] == counts[0][1]
