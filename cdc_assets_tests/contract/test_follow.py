"""What a capture that follows the log waits for, and what ends it at once."""

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.adapters.sqlserver import retry as sqlserver_retry
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.cli.capture import CaptureRun
from cdc_assets.cli.follow import Retries
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import ConfigurationError, ConnectionLostError, CredentialsError
from cdc_assets.shared.progress import StreamSummary
from cdc_assets_tests.patience import wait_until
from cdc_assets_tests.unit.streaming.child import config_of
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from mssql_standin.control import StandIn

LOCKED, OTHER = TableId("Sales", "dbo", "orders"), TableId("Sales", "dbo", "items")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlserver_retry, "FIRST_WAIT_S", 0.0)


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=("Sales",)) as started:
        for table in (LOCKED, OTHER):
            started.execute(f"CREATE TABLE dbo.{table.table} (id int NOT NULL PRIMARY KEY)", database="Sales")
            started.execute(f"INSERT INTO dbo.{table.table} VALUES (1)", database="Sales")
            started.execute(
                f"EXEC sys.sp_cdc_enable_table @source_schema=N'dbo', @source_name=N'{table.table}', @role_name=NULL",
                database="Sales",
            )
        started.agent.drain()
        yield started


def settings(server: StandIn, path: Path, retries: int = 200) -> CaptureConfig:
    config = config_of(server.port, server.password, str(path / "lake"))
    return replace(
        config,
        connection=replace(config.connection, databases=("Sales",), login_timeout_s=2),
        snapshot=replace(config.snapshot, lock_timeout_ms=200),
        streaming=replace(config.streaming, retry_wait_s=0.1, max_retries=retries),
    )


def follow(config: CaptureConfig, *tables: str) -> StreamSummary | None:
    """Until it is idle, which a capture that follows never is otherwise."""
    run = CaptureRun(list(tables), snapshot_only=False, follow=True)
    run.retries = Retries(lambda: config, lambda found: found.streaming, lambda found: found.connection, lambda: False)
    return run.retries.run(lambda now: run.attempt(now, LocalRunner(2)))


def insert(server: StandIn, table: TableId, key: int) -> None:
    server.execute(f"INSERT INTO dbo.{table.table} VALUES ({key})", database="Sales")
    server.agent.drain()


def keys(config: CaptureConfig, table: TableId) -> list[int]:
    return [event.key for event in events_of(config, table)]


@pytest.mark.parametrize("number", [1205, 9002, 40613])
def test_a_server_that_is_busy_full_or_away_for_a_while(server: StandIn, tmp_path: Path, number: int) -> None:
    server.faults.error(number, matching="cdc-assets: rows", times=8)
    config = settings(server, tmp_path)
    assert follow(config) is not None
    assert keys(config, LOCKED) == keys(config, OTHER) == [1]
    assert len(server.faults.struck) == 8


def test_a_full_file_group(server: StandIn, tmp_path: Path) -> None:
    text = "Could not allocate space for object 'dbo.x' in database 'tempdb' because the 'PRIMARY' filegroup is full."
    server.faults.error(1105, text, matching="[dbo_orders_CT]", times=8)
    config = settings(server, tmp_path)
    insert(server, LOCKED, 2)
    summary = follow(config)
    assert summary is not None
    assert not summary.troubled
    assert set(keys(config, LOCKED)) == {1, 2}


def test_a_table_that_is_locked_is_read_when_it_is_free_and_the_other_streams(server: StandIn, tmp_path: Path) -> None:
    config = settings(server, tmp_path)
    holder = server.connect("Sales")
    holder.execute("BEGIN TRANSACTION; SELECT id FROM dbo.orders WITH (TABLOCKX, HOLDLOCK)")
    streamed: list[int] = []

    def look() -> list[int]:
        streamed[:] = keys(config, OTHER) if (tmp_path / "lake" / f"shop.{OTHER}").exists() else []
        return streamed

    def work_and_release() -> None:
        try:
            wait_until(look, 60, lambda: "the other table is not read")
            insert(server, OTHER, 2)
            wait_until(lambda: 2 in look(), 60, lambda: "the other table does not stream")
        finally:
            holder.close()

    beside = threading.Thread(target=work_and_release)
    beside.start()
    try:
        assert follow(config) is not None
    finally:
        beside.join()
    assert streamed == [1, 2], "the other table streams meanwhile"
    assert keys(config, LOCKED) == [1]


@pytest.mark.parametrize("follows", [True, False])
def test_a_table_that_is_read_first_does_not_leave_the_others_out(
    server: StandIn, tmp_path: Path, follows: bool
) -> None:
    config = settings(server, tmp_path)
    if follows:
        summary = follow(config, "dbo.items")
    else:
        summary = CaptureRun(["dbo.items"], snapshot_only=False, follow=False).attempt(config, LocalRunner(2))
    assert summary is not None
    assert not summary.waiting
    assert keys(config, LOCKED) == keys(config, OTHER) == [1]


def test_with_snapshot_only_no_other_table_is_read(server: StandIn, tmp_path: Path) -> None:
    config = settings(server, tmp_path)
    assert CaptureRun(["dbo.items"], snapshot_only=True, follow=False).attempt(config, LocalRunner(2)) is None
    assert keys(config, OTHER) == [1]
    assert not (tmp_path / "lake" / f"shop.{LOCKED}").exists()


def test_a_name_in_two_databases_is_read_first_in_both(tmp_path: Path) -> None:
    tables = [TableId(database, "dbo", "orders") for database in ("Sales", "Store")]
    with StandIn(databases=("Sales", "Store")) as server:
        for database in ("Sales", "Store"):
            server.execute("CREATE TABLE dbo.orders (id int NOT NULL PRIMARY KEY)", database=database)
            server.execute("INSERT INTO dbo.orders VALUES (1)", database=database)
            enable = "EXEC sys.sp_cdc_enable_table @source_schema=N'dbo', @source_name=N'orders', @role_name=NULL"
            server.execute(enable, database=database)
        server.agent.drain()
        config = settings(server, tmp_path)
        config = replace(config, connection=replace(config.connection, databases=("Sales", "Store")))
        assert follow(config) is not None
        holder = server.connect("Store")
        holder.execute("BEGIN TRANSACTION; SELECT id FROM dbo.orders WITH (TABLOCKX, HOLDLOCK)")

        def release() -> None:
            try:
                wait_until(lambda: len(keys(config, tables[0])) == 2, 60, lambda: "the free table is not read again")
                insert(server, tables[0], 2)
                wait_until(lambda: 2 in keys(config, tables[0]), 60, lambda: "it does not stream")
            finally:
                holder.close()

        beside = threading.Thread(target=release)
        beside.start()
        try:
            assert follow(config, "dbo.orders") is not None
        finally:
            beside.join()
        assert [keys(config, table) for table in tables] == [[1, 1, 2], [1, 1]]


@pytest.mark.parametrize("transactions", [False, True])
def test_a_change_table_that_is_locked_is_read_when_it_is_free_and_the_other_streams(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transactions: bool
) -> None:
    monkeypatch.setattr("cdc_assets.adapters.sqlserver.table_queries.LOCK_WAIT_MS", 50)
    config = settings(server, tmp_path)
    config = replace(config, events=replace(config.events, transaction_metadata=transactions))
    follow(config)
    server.execute("INSERT INTO dbo.orders VALUES (2)", database="Sales")
    insert(server, OTHER, 2)
    holder = server.connect("Sales")
    holder.execute("BEGIN TRANSACTION; SELECT TOP (1) [__$seqval] FROM cdc.dbo_orders_CT WITH (TABLOCKX, HOLDLOCK)")
    try:
        summary = follow(config)
    finally:
        holder.close()
    assert summary is not None
    [trouble] = summary.troubled
    assert (trouble.table, trouble.status) == (LOCKED, "failed")
    assert "gave up waiting for a lock that another session holds" in trouble.reason
    assert keys(config, OTHER) == [1, 2]
    summary = follow(config)
    assert summary is not None
    assert not summary.troubled
    assert keys(config, LOCKED) == [1, 2]


def test_so_it_is_where_no_statement_may_take_as_long_as_locks_are_waited_for(server: StandIn, tmp_path: Path) -> None:
    config = settings(server, tmp_path, retries=2)
    config = replace(config, connection=replace(config.connection, query_timeout_s=2))
    follow(config)
    server.execute("INSERT INTO dbo.orders VALUES (2)", database="Sales")
    insert(server, OTHER, 2)
    with server.connect("Sales") as holder:
        holder.execute("BEGIN TRANSACTION; SELECT TOP (1) [__$seqval] FROM cdc.dbo_orders_CT WITH (TABLOCKX, HOLDLOCK)")
        summary = follow(config)
    assert summary is not None
    assert [trouble.table for trouble in summary.troubled] == [LOCKED]
    assert keys(config, OTHER) == [1, 2]


def test_a_database_whose_log_was_not_read_yet(tmp_path: Path) -> None:
    with StandIn(databases=("Sales",)) as young:
        young.agent.pause()
        young.execute("CREATE TABLE dbo.orders (id int NOT NULL PRIMARY KEY)", database="Sales")
        young.execute(
            "EXEC sys.sp_cdc_enable_table @source_schema=N'dbo', @source_name=N'orders', @role_name=NULL",
            database="Sales",
        )
        config = settings(young, tmp_path)
        later = threading.Timer(1.0, young.agent.resume)
        later.start()
        assert follow(config) is not None
        later.join()
    assert keys(config, LOCKED) == []


def test_a_server_that_is_away_at_the_start(server: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = settings(server, tmp_path)
    port = server.port
    server._tds.stop()
    later = threading.Timer(1.0, server._listen, (port,))
    later.start()
    with caplog.at_level(logging.WARNING, "cdc_assets.cli.follow"):
        assert follow(config) is not None
    later.join()
    assert keys(config, LOCKED) == [1]
    assert [record.message.count("Cannot reach") for record in caplog.records] == [1], "told once, not at each attempt"


def test_retries_are_limited_if_somebody_wants_it(server: StandIn, tmp_path: Path) -> None:
    config = settings(server, tmp_path, retries=2)
    server._tds.stop()
    with pytest.raises(ConnectionLostError):
        follow(config)


class Wallet:
    """Settings whose password stands in a file."""

    def __init__(self, config: CaptureConfig, passwords: list[str | None]) -> None:
        self.config, self.passwords, self.offered = config, passwords, list[str]()

    def read(self) -> CaptureConfig:
        password = self.passwords[0] if len(self.passwords) == 1 else self.passwords.pop(0)
        if password is None:
            raise ConfigurationError("database.password", "${file:x}", "a readable file", "check x")
        return replace(self.config, connection=replace(self.config.connection, password=password))

    def follow(self, *, in_file: bool) -> StreamSummary | None:
        run = CaptureRun([], snapshot_only=False, follow=True)

        def attempt(now: CaptureConfig) -> StreamSummary | None:
            self.offered.append(now.connection.password)
            return run.attempt(now, LocalRunner(2))

        return Retries(self.read, lambda found: found.streaming, lambda found: found.connection, lambda: in_file).run(
            attempt
        )


def test_a_password_that_was_changed_is_found_in_its_file(server: StandIn, tmp_path: Path) -> None:
    wallet = Wallet(settings(server, tmp_path), ["old", "old", None, "old", server.password])
    assert wallet.follow(in_file=True) is not None
    assert wallet.offered == ["old", server.password], "a refused password is not offered twice"


def test_a_password_that_is_changed_while_it_streams(server: StandIn, tmp_path: Path) -> None:
    config = settings(server, tmp_path)
    config = replace(config, streaming=replace(config.streaming, idle_timeout_s=3.0))
    wallet = Wallet(config, [server.password])

    def rotate() -> None:
        new = server.rotate_password()
        server.drop_connections()
        insert(server, LOCKED, 2)
        wallet.passwords = [new]

    later = threading.Timer(2.0, rotate)
    later.start()
    summary = wallet.follow(in_file=True)
    later.join()
    assert summary is not None
    assert not summary.troubled, "it is no matter of a table"
    assert keys(config, LOCKED) == [1, 2]


def test_a_wrong_password_that_cannot_change_ends_at_once(server: StandIn, tmp_path: Path) -> None:
    wallet = Wallet(settings(server, tmp_path), ["old"])
    with pytest.raises(CredentialsError):
        wallet.follow(in_file=False)
    assert wallet.offered == ["old"]
