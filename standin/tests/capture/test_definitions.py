"""Definition statements on captured tables, through the engine."""

import pytest

from mssql_standin.engine.server import Engine
from tests.capture.client import Client

TABLE = (
    "CREATE TABLE dbo.t (id int NOT NULL CONSTRAINT PK_t PRIMARY KEY, name varchar(10), n int CONSTRAINT UX_n UNIQUE)"
)
ENABLE = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL"


@pytest.fixture
def captured(client: Client) -> Client:
    client.run(TABLE)
    client.run(ENABLE)
    return client


def test_an_added_column_is_not_captured_and_a_second_instance_takes_it(captured: Client) -> None:
    captured.run("ALTER TABLE t ADD extra int")
    captured.run("INSERT INTO t VALUES (1, 'a', 1, 5)")
    captured.run(ENABLE + ", @capture_instance = N'wider'")
    captured.run("UPDATE t SET extra = 6")
    captured.run("UPDATE t SET name = 'b'")
    assert captured.run("SELECT __$operation, id, name FROM cdc.dbo_t_CT") == [(2, 1, "a"), (3, 1, "a"), (4, 1, "b")]
    found = captured.run("SELECT __$operation, __$update_mask, id, name, n, extra FROM cdc.wider_CT")
    assert found == [
        (3, b"\x08", 1, "a", 1, 5), (4, b"\x08", 1, "a", 1, 6), (3, b"\x02", 1, "a", 1, 6), (4, b"\x02", 1, "b", 1, 6),
    ]  # fmt: skip


def test_a_dropped_column_stays_as_null(captured: Client) -> None:
    captured.run("INSERT INTO t VALUES (1, 'a', 1)")
    captured.run("ALTER TABLE t DROP COLUMN name")
    captured.run("INSERT INTO t VALUES (2, 2)")
    captured.run("UPDATE t SET n = 3 WHERE id = 2")
    assert captured.run("SELECT __$operation, id, name, n FROM cdc.dbo_t_CT") == [
        (2, 1, "a", 1), (2, 2, None, 2), (1, 2, None, 2), (2, 2, None, 3),
    ]  # fmt: skip


def test_a_widened_column_widens_the_change_table_in_place(captured: Client) -> None:
    captured.run("INSERT INTO t VALUES (1, 'a', 1)")
    captured.run("ALTER TABLE t ALTER COLUMN name nvarchar(50)")
    captured.run("INSERT INTO t VALUES (2, N'later', 2)")
    assert captured.run("SELECT name FROM cdc.dbo_t_CT") == [("a",), ("later",)]
    assert captured.run(
        "SELECT system_type_id, max_length FROM sys.columns WHERE object_id = OBJECT_ID('cdc.dbo_t_CT') AND name = 'name'"
    ) == [(231, 100)]
    assert captured.run("SELECT column_type FROM cdc.captured_columns WHERE column_name = 'name'") == [("nvarchar",)]
    assert captured.run("SELECT required_column_update, ddl_command FROM cdc.ddl_history") == [
        (1, "ALTER TABLE t ALTER COLUMN name nvarchar(50)")
    ]


def test_a_type_of_another_storage_form_converts_what_was_captured(captured: Client) -> None:
    captured.run("ALTER TABLE t DROP CONSTRAINT UX_n")
    captured.run("INSERT INTO t VALUES (1, 'a', 7)")
    captured.run("ALTER TABLE t ALTER COLUMN n decimal(30, 2)")
    captured.run("INSERT INTO t VALUES (2, 'b', 8.25)")
    assert captured.run("SELECT CAST(n AS varchar(20)) FROM cdc.dbo_t_CT") == [("7.00",), ("8.25",)]


def test_what_capture_forbids_is_refused(captured: Client) -> None:
    assert captured.number("TRUNCATE TABLE t") == 4711
    assert captured.number("EXEC sp_rename 't.name', 'other', 'COLUMN'") == 4928
    captured.run("INSERT INTO t VALUES (1, 'a', 1)")
    assert captured.run("SELECT id FROM cdc.dbo_t_CT") == [(1,)]


def test_an_index_that_net_changes_need_cannot_go(client: Client) -> None:
    client.run(TABLE)
    client.run("CREATE UNIQUE INDEX UX_name ON t(name)")
    client.run(ENABLE + ", @index_name = N'UX_name', @supports_net_changes = 1")
    assert client.number("DROP INDEX UX_name ON t") == 22983
    client.run("ALTER TABLE t DROP CONSTRAINT UX_n")


def test_a_unique_index_made_later_turns_updates_of_its_column_into_delete_and_insert(captured: Client) -> None:
    captured.run("INSERT INTO t VALUES (1, 'a', 1)")
    captured.run("CREATE UNIQUE INDEX UX_name ON t(name)")
    captured.run("UPDATE t SET name = 'b'")
    captured.run("DROP INDEX UX_name ON t")
    captured.run("UPDATE t SET name = 'c'")
    assert captured.run("SELECT __$operation FROM cdc.dbo_t_CT") == [(2,), (1,), (2,), (3,), (4,)]


def test_a_renamed_table_keeps_its_instance(captured: Client) -> None:
    captured.run("EXEC sp_rename 'dbo.t', 'renamed'")
    captured.run("INSERT INTO renamed VALUES (1, 'a', 1)")
    assert captured.run("SELECT id FROM cdc.dbo_t_CT") == [(1,)]
    captured.run("EXEC sys.sp_cdc_help_change_data_capture")
    assert captured.results[-1][0][:3] == ("dbo", "renamed", "dbo_t")


def test_a_dropped_table_takes_its_instances_along(captured: Client) -> None:
    captured.run("DROP TABLE t")
    assert captured.run("SELECT * FROM cdc.change_tables") == []
    assert captured.number("SELECT * FROM cdc.dbo_t_CT") == 208
    captured.run(TABLE)
    captured.run(ENABLE)
    captured.run("INSERT INTO t VALUES (1, 'a', 1)")
    assert captured.run("SELECT id FROM cdc.dbo_t_CT") == [(1,)]


def test_definitions_that_roll_back_leave_capture_as_it_was(captured: Client) -> None:
    captured.run("BEGIN TRAN; ALTER TABLE t DROP COLUMN name; ROLLBACK")
    captured.run("BEGIN TRAN; " + ENABLE + ", @capture_instance = N'second'; ROLLBACK")
    captured.run("INSERT INTO t VALUES (1, 'a', 1)")
    assert captured.run("SELECT id, name FROM cdc.dbo_t_CT") == [(1, "a")]
    assert captured.number("SELECT * FROM cdc.second_CT") == 208
    captured.run(ENABLE + ", @capture_instance = N'second'")
    captured.run("INSERT INTO t VALUES (2, 'b', 2)")
    assert captured.run("SELECT id FROM cdc.second_CT") == [(2,)]


def test_a_savepoint_takes_back_its_changes_only(captured: Client) -> None:
    captured.run(
        "BEGIN TRAN; INSERT INTO t VALUES (1, 'a', 1); SAVE TRAN s; INSERT INTO t VALUES (2, 'b', 2); ROLLBACK TRAN s; "
        "INSERT INTO t VALUES (3, 'c', 3); COMMIT"
    )
    assert captured.run("SELECT __$command_id, id FROM cdc.dbo_t_CT ORDER BY __$command_id") == [(1, 1), (3, 3)]


def test_a_transaction_that_took_everything_back_leaves_nothing_to_the_next(captured: Client) -> None:
    captured.run("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3), (4, 'd', 4)")
    captured.run("BEGIN TRAN; SAVE TRAN s; UPDATE t SET id = id + 1; UPDATE t SET name = 'x'; ROLLBACK TRAN s; COMMIT")
    captured.run("BEGIN TRAN; UPDATE t SET id = id + 10 WHERE id < 4; UPDATE t SET id = id + 1; COMMIT")
    assert captured.run("SELECT id FROM t ORDER BY id") == [(5,), (12,), (13,), (14,)]


def test_a_failing_statement_leaves_no_change(captured: Client) -> None:
    assert captured.number("INSERT INTO t VALUES (1, 'a', 1), (1, 'b', 2)") == 2627
    assert captured.run("SELECT * FROM cdc.dbo_t_CT") == []


def test_captured_special_columns(client: Client) -> None:
    client.run("CREATE TABLE s (id int PRIMARY KEY, v rowversion, a int, double AS (a * 2), b bit NOT NULL)")
    client.run(ENABLE.replace("N't'", "N's'"))
    client.run("INSERT INTO s (id, a, b) VALUES (1, 1, 1)")
    client.run("UPDATE s SET a = 2")
    rows = client.run("SELECT __$operation, __$update_mask, v, a, double FROM cdc.dbo_s_CT")
    assert [(row[0], row[1], row[3], row[4]) for row in rows] == [
        (2, b"\x1f", 1, None),
        (3, b"\x06", 1, None),
        (4, b"\x06", 2, None),
    ]
    versions = [row[2] for row in rows]
    assert versions[0] == versions[1] < versions[2]  # type: ignore[operator]
    assert client.run(
        "SELECT system_type_id FROM sys.columns WHERE object_id = OBJECT_ID('cdc.dbo_s_CT') AND name = 'v'"
    ) == [(173,)]


def test_a_captured_database_comes_back_after_a_restart(tmp_path: object) -> None:
    from pathlib import Path

    assert isinstance(tmp_path, Path)
    first = Engine(tmp_path)
    Client(first).run("CREATE DATABASE shop")
    one = Client(first, "shop")
    one.run("EXEC sys.sp_cdc_enable_db")
    one.run(TABLE)
    one.run(ENABLE)
    one.run("INSERT INTO t VALUES (1, 'a', 1)")
    top = one.run("SELECT sys.fn_cdc_get_max_lsn()")[0][0]
    first.agent.stop()
    one.run("INSERT INTO t VALUES (2, 'b', 2)")
    first.close()
    second = Engine(tmp_path)
    two = Client(second, "shop")
    two.run("INSERT INTO t VALUES (3, 'c', 3)")
    assert two.run("SELECT id FROM cdc.dbo_t_CT ORDER BY __$start_lsn") == [(1,), (2,), (3,)]
    assert two.run("SELECT MAX(__$start_lsn) FROM cdc.dbo_t_CT")[0][0] > top  # type: ignore[operator]
    second.close()


def test_a_statement_that_sets_the_clustered_key_to_what_it_is_deletes_and_inserts(captured: Client) -> None:
    captured.run("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    captured.run("UPDATE t SET id = id, name = 'c' WHERE id = 1")
    captured.run("UPDATE t SET id = id")
    captured.run("UPDATE t SET id = (SELECT MAX(id) FROM t) WHERE id = 2")
    captured.run("UPDATE t SET n = n; UPDATE t SET name = 'd' WHERE id = 2")
    assert captured.run("SELECT __$operation, id, name FROM cdc.dbo_t_CT ORDER BY __$start_lsn, __$seqval")[2:] == [
        (1, 1, "a"), (2, 1, "c"),
        (1, 1, "c"), (1, 2, "b"), (2, 1, "c"), (2, 2, "b"),
        (1, 2, "b"), (2, 2, "b"),
        (3, 2, "b"), (4, 2, "d"),
    ]  # fmt: skip


def test_a_clean_up_tells_that_it_did_not_fail(captured: Client) -> None:
    captured.run("INSERT INTO t VALUES (1, 'a', 1)")
    text = "EXEC sys.sp_cdc_cleanup_change_table 'dbo_t', NULL, @threshold = {}, @fCleanupFailed = @failed OUTPUT"
    assert captured.run("DECLARE @failed bit; " + text.format(10) + "; SELECT @failed") == [(0,)]
    assert captured.number("DECLARE @failed bit; " + text.format(0)) == 22850


def test_captured_columns_have_the_documented_shape(captured: Client) -> None:
    captured.run("CREATE TABLE m (id int PRIMARY KEY, d decimal(9, 2), t time(3), r real, b varbinary(max))")
    captured.run("EXEC sys.sp_cdc_enable_table 'dbo', 'm', @role_name = NULL")
    rows = captured.run("EXEC sys.sp_cdc_get_captured_columns 'dbo_m'")
    assert captured.names == [
        "source_schema", "source_table", "capture_instance", "column_name", "column_id", "column_ordinal", "data_type",
        "character_maximum_length", "numeric_precision", "numeric_precision_radix", "numeric_scale", "datetime_precision",
    ]  # fmt: skip
    assert [row[3:] for row in rows] == [
        ("id", 1, 1, "int", None, 10, 10, 0, None),
        ("d", 2, 2, "decimal", None, 9, 10, 2, None),
        ("t", 3, 3, "time", None, None, None, None, 3),
        ("r", 4, 4, "real", None, 24, 2, None, None),
        ("b", 5, 5, "varbinary", -1, None, None, None, None),
    ]


def test_a_role_must_be_named_and_may_be_null(client: Client) -> None:
    client.run(TABLE)
    assert client.number("EXEC sys.sp_cdc_enable_table 'dbo', 't'") == 201
    client.run("EXEC sys.sp_cdc_enable_table 'dbo', 't', @role_name = NULL")


def test_a_job_that_runs_cannot_be_started_nor_one_stopped_that_does_not(captured: Client) -> None:
    assert captured.number("EXEC sys.sp_cdc_start_job") == 22022
    captured.run("EXEC sys.sp_cdc_stop_job")
    assert captured.number("EXEC sys.sp_cdc_stop_job") == 22022
    captured.run("EXEC sys.sp_cdc_start_job")
    assert captured.number("EXEC sys.sp_cdc_stop_job 'cleanup'") == 22022
    captured.session.engine.agent.stop()
    assert captured.number("EXEC sys.sp_cdc_start_job") == 22022


def test_what_belongs_to_capture_is_shipped(captured: Client) -> None:
    text = "SELECT name FROM sys.objects WHERE is_ms_shipped = {} AND type IN ('U', 'IF') ORDER BY name"
    assert captured.run(text.format(0)) == [("t",)]
    assert ("dbo_t_CT",) in captured.run(text.format(1))
