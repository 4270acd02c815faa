"""Catalogue views through queries, as programs ask them."""

import pytest

from tests.capture.client import Client

QUERIES: list[tuple[str, object]] = [
    ("SELECT name FROM sys.tables WHERE is_ms_shipped = 0 ORDER BY name", ["customers", "heap", "orders"]),
    ("SELECT SCHEMA_NAME(schema_id) + '.' + name FROM sys.objects WHERE type = 'PK' ORDER BY name", ["dbo.PK_customers", "dbo.PK_orders"]),
    ("SELECT name FROM SYS.COLUMNS WHERE object_id = OBJECT_ID('dbo.customers') AND is_computed = 1", ["twice"]),
    ("SELECT definition FROM sys.default_constraints WHERE name = 'df_NAME'", ["(N'new')"]),
    ("SELECT definition FROM sys.computed_columns", ["([credit]*(2))"]),
    ("SELECT type_desc FROM sys.indexes WHERE object_id = OBJECT_ID('heap')", ["HEAP"]),
    (
        "SELECT c.name FROM sys.indexes i JOIN sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id "
        "JOIN sys.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id "
        "WHERE i.name = 'IX_customer' AND ic.is_included_column = 0",
        ["customer"],
    ),
    ("SELECT t.name FROM sys.columns c JOIN sys.types t ON t.user_type_id = c.user_type_id WHERE c.name = 'version'", ["timestamp"]),
    ("SELECT COLUMN_NAME FROM INFORMATION_SCHEMA.KEY_COLUMN_USAGE WHERE CONSTRAINT_NAME = 'PK_orders' ORDER BY ORDINAL_POSITION", ["id", "line"]),
    ("SELECT DELETE_RULE FROM INFORMATION_SCHEMA.REFERENTIAL_CONSTRAINTS", ["CASCADE"]),
    ("SELECT name FROM sys.databases WHERE database_id > 4", ["shop"]),
    ("SELECT is_cdc_enabled FROM master.sys.databases WHERE name = 'SHOP'", [0]),
    ("SELECT COUNT(*) FROM sys.schemas WHERE name IN ('dbo', 'sys', 'INFORMATION_SCHEMA', 'guest')", [4]),
    ("SELECT is_identity FROM sys.columns WHERE object_id = OBJECT_ID('customers') AND column_id = 1", [1]),
    ("SELECT SUM(rows) FROM sys.partitions WHERE object_id = OBJECT_ID('heap') AND index_id IN (0, 1)", [2]),
    ("SELECT COUNT(*) FROM sys.dm_hadr_database_replica_states", [0]),
    ("SELECT name FROM sys.system_views WHERE name IN ('dm_exec_sessions', 'dm_pdw_nodes_exec_sessions')", ["dm_exec_sessions"]),
    ("SELECT transaction_isolation_level FROM sys.dm_exec_sessions WHERE session_id = @@SPID", [2]),
]  # fmt: skip


@pytest.mark.parametrize(("query", "expected"), QUERIES, ids=[query for query, _ in QUERIES])
def test_queries_over_the_catalogue(client: Client, query: str, expected: list[object]) -> None:
    client.run("INSERT INTO heap VALUES (1, 1), (2, 2)")
    assert [row[0] for row in client.run(query)] == expected


def test_a_view_of_another_database_by_three_parts(client: Client) -> None:
    client.run("CREATE DATABASE other")
    client.run("USE other; CREATE TABLE only_here (id int)")
    client.run("USE shop")
    assert client.run("SELECT name FROM other.sys.tables") == [("only_here",)]
    assert client.run("SELECT COUNT(*) FROM sys.tables WHERE name = 'only_here'") == [(0,)]


def test_a_view_that_is_left_out_is_refused(client: Client) -> None:
    assert client.number("SELECT * FROM sys.foreign_keys") == 40510
    assert client.number("SELECT * FROM INFORMATION_SCHEMA.TABLES") == 40510
    assert client.number("SELECT no_such_column FROM sys.tables") == 207


def test_the_exact_point_of_a_snapshot_is_a_numeric_lsn(client: Client) -> None:
    client.run("ALTER DATABASE shop SET ALLOW_SNAPSHOT_ISOLATION ON")
    assert client.run("SELECT snapshot_isolation_state FROM sys.databases WHERE name = 'shop'") == [(1,)]
    client.run("SET TRANSACTION ISOLATION LEVEL SNAPSHOT")
    rows = client.run(
        "BEGIN TRAN; SELECT COUNT(*) FROM heap; SAVE TRANSACTION here; "
        "SELECT CAST(t.database_transaction_most_recent_savepoint_lsn AS varchar(25)) FROM sys.dm_tran_database_transactions t "
        "JOIN sys.dm_tran_current_transaction c ON c.transaction_id = t.transaction_id WHERE t.database_id = DB_ID(); COMMIT"
    )
    value = int(str(rows[0][0]))
    assert (value // 10**15, value % 10**5) == (0x2C, 2)


def test_sessions_and_their_transactions(client: Client) -> None:
    other = Client(client.session.engine, "master")
    other.run("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; BEGIN TRAN; SELECT 1")
    found = client.run(
        "SELECT session_id, DB_NAME(database_id), open_transaction_count, transaction_isolation_level FROM sys.dm_exec_sessions WHERE session_id <> @@SPID AND open_transaction_count > 0"
    )
    assert found == [(other.session.session_id, "master", 1, 4)]
    assert client.run("SELECT session_id FROM sys.dm_tran_session_transactions") == [(other.session.session_id,)]
    assert client.run("SELECT DB_NAME(database_id) FROM sys.dm_tran_database_transactions") == [("master",)]
    other.run("COMMIT")
    assert client.run("SELECT COUNT(*) FROM sys.dm_tran_database_transactions") == [(0,)]


def test_a_database_can_be_dropped_and_made_again_with_capture(client: Client) -> None:
    for _ in range(2):
        client.run("CREATE DATABASE again")
        client.run("EXEC again.sys.sp_cdc_enable_db; CREATE TABLE again.dbo.t (id int PRIMARY KEY)")
        client.run("EXEC again.sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL")
        client.run("INSERT INTO again.dbo.t VALUES (1)")
        assert client.run("SELECT id FROM again.cdc.dbo_t_CT") == [(1,)]
        client.run("DROP DATABASE again")
        assert client.number("SELECT * FROM msdb.dbo.cdc_jobs") == 208


@pytest.mark.parametrize(
    ("option", "column", "value"),
    [
        ("RECOVERY SIMPLE", "recovery_model_desc", "SIMPLE"),
        ("RECOVERY SIMPLE", "recovery_model", 3),
        ("RECOVERY BULK_LOGGED", "recovery_model", 2),
        ("COMPATIBILITY_LEVEL = 150", "compatibility_level", 150),
        ("AUTO_CLOSE ON", "is_auto_close_on", 1),
        ("AUTO_SHRINK ON", "is_auto_shrink_on", 1),
        ("TRUSTWORTHY ON", "is_trustworthy_on", 1),
        ("PAGE_VERIFY NONE", "page_verify_option", 0),
        ("PAGE_VERIFY TORN_PAGE_DETECTION", "page_verify_option_desc", "TORN_PAGE_DETECTION"),
        ("AUTO_CREATE_STATISTICS OFF", "is_auto_create_stats_on", 0),
        ("AUTO_UPDATE_STATISTICS OFF", "is_auto_update_stats_on", 0),
        ("AUTO_UPDATE_STATISTICS_ASYNC ON", "is_auto_update_stats_async_on", 1),
        ("ANSI_NULLS ON", "is_ansi_nulls_on", 1),
        ("QUOTED_IDENTIFIER ON", "is_quoted_identifier_on", 1),
        ("DELAYED_DURABILITY = FORCED", "delayed_durability_desc", "FORCED"),
        ("QUERY_STORE = ON", "is_query_store_on", 1),
        ("ACCELERATED_DATABASE_RECOVERY = ON", "is_accelerated_database_recovery_on", 1),
        ("ALLOW_SNAPSHOT_ISOLATION ON", "snapshot_isolation_state_desc", "ON"),
        ("READ_COMMITTED_SNAPSHOT ON", "is_read_committed_snapshot_on", 1),
    ],
)
def test_an_option_of_a_database_is_reported(client: Client, option: str, column: str, value: object) -> None:
    text = f"SELECT {column} FROM sys.databases WHERE name = 'shop'"
    assert client.run(text) != [(value,)]
    client.run(f"ALTER DATABASE shop SET {option}")
    assert client.run(text) == [(value,)]


@pytest.mark.parametrize(
    ("option", "number"),
    [
        ("COMPATIBILITY_LEVEL = 90", 15048), ("RECOVERY NONE", 102), ("AUTO_CLOSE MAYBE", 102),
        ("QUERY_STORE = ON (QUERY_CAPTURE_MODE = AUTO)", 40510), ("READ_ONLY", 40510), ("PARAMETERIZATION FORCED", 40510),
    ],
)  # fmt: skip
def test_an_option_that_is_not_done_is_refused(client: Client, option: str, number: int) -> None:
    assert client.number(f"ALTER DATABASE shop SET {option}") == number
