"""Random transactions of several sessions equal a serial order; what is rolled back leaves nothing."""

import threading
from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mssql_standin.engine.server import Engine
from tests.engine.collect import Client, open_client


@dataclass(frozen=True)
class Change:
    """One statement and what it does to a model of the table."""

    verb: str
    key: int
    value: int

    def sql(self) -> str:
        if self.verb == "insert":
            return f"INSERT t VALUES ({self.key}, {self.value})"
        if self.verb == "delete":
            return f"DELETE t WHERE id = {self.key}"
        if self.verb == "shift":
            return f"UPDATE t SET id = id + 1 WHERE id >= {self.key}"
        return f"UPDATE t SET v = {self.value} WHERE id = {self.key}"

    def apply(self, rows: dict[int, int]) -> None:
        if self.verb == "insert":
            rows.setdefault(self.key, self.value)
        elif self.verb == "delete":
            rows.pop(self.key, None)
        elif self.verb == "shift":
            moved = {key + 1 if key >= self.key else key: value for key, value in rows.items()}
            rows.clear()
            rows.update(moved)
        elif self.key in rows:
            rows[self.key] = self.value


changes = st.builds(
    Change, st.sampled_from(["insert", "insert", "delete", "update", "shift"]), st.integers(0, 6), st.integers(0, 99)
)
steps = st.one_of(changes, st.sampled_from(["save a", "save b", "rollback a", "rollback b"]))
transactions = st.lists(st.tuples(st.lists(steps, max_size=8), st.booleans()), max_size=8)


def expected(rows: dict[int, int], body: "list[Change | str]", commit: bool) -> dict[int, int]:
    """The model after a transaction."""
    present = dict(rows)
    saved: list[tuple[str, dict[int, int]]] = []
    for step in body:
        if isinstance(step, Change):
            step.apply(present)
            continue
        verb, name = step.split()
        if verb == "save":
            saved.append((name, dict(present)))
        else:
            places = [place for place, (known, _) in enumerate(saved) if known == name]
            if places:
                present = dict(saved[places[-1]][1])
                del saved[places[-1] + 1 :]
    return present if commit else rows


def script(body: "list[Change | str]", commit: bool) -> str:
    texts = ["BEGIN TRAN"]
    for step in body:
        if isinstance(step, Change):
            texts.append(step.sql())
        else:
            verb, name = step.split()
            texts.append(f"{'SAVE' if verb == 'save' else 'ROLLBACK'} TRAN {name}")
    return "\n".join([*texts, "COMMIT" if commit else "ROLLBACK"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.lists(steps, max_size=8), st.booleans()), max_size=8))
def test_transactions_savepoints_and_failed_statements_follow_the_model(
    engine: Engine, work: "list[tuple[list[Change | str], bool]]"
) -> None:
    client = open_client(engine)
    client.do("DROP TABLE IF EXISTS t CREATE TABLE t (id int PRIMARY KEY, v int)")
    rows: dict[int, int] = {}
    for body, commit in work:
        found = {error.number for error in client.run(script(body, commit)).errors}
        assert found <= {2627, 6401}
        rows = expected(rows, body, commit)
        assert dict(client.rows("SELECT id, v FROM t")) == rows
    assert client.value("SELECT @@TRANCOUNT") == 0
    client.session.close()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(transactions, min_size=2, max_size=3))
def test_concurrent_transactions_equal_a_serial_order(
    engine: Engine, plans: "list[list[tuple[list[Change | str], bool]]]"
) -> None:
    """Every transaction notes its place in a log table: replaying the log in that order gives the table."""
    setup = open_client(engine)
    setup.do(
        "DROP TABLE IF EXISTS t, log CREATE TABLE t (id int PRIMARY KEY, v int) CREATE TABLE log (n int IDENTITY, session int, place int)"
    )
    clients = [open_client(engine) for _ in plans]

    def run(session: int, client: Client) -> None:
        for place, (body, commit) in enumerate(plans[session]):
            text = script(body, commit).replace("BEGIN TRAN", f"BEGIN TRAN INSERT log VALUES ({session}, {place})", 1)
            client.run(text)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    rows: dict[int, int] = {}
    logged = setup.rows("SELECT session, place FROM log ORDER BY n")
    for session, place in logged:
        rows = expected(rows, *plans[session][place])
    assert dict(setup.rows("SELECT id, v FROM t")) == rows
    assert len(logged) == sum(commit for plan in plans for _, commit in plan)
    for client in [*clients, setup]:
        client.session.close()
