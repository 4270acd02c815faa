"""What a login may do that is no sysadmin, with SQL Server's numbers for what it may not."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mssql_standin.contract import Login
from mssql_standin.engine.server import Engine
from mssql_standin.errors import SqlError
from tests.capture.client import Client

SETUP = """
CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v int)
CREATE TABLE dbo.hidden (id int NOT NULL PRIMARY KEY)
EXEC sys.sp_cdc_enable_db
EXEC sys.sp_cdc_enable_table 'dbo', 't', @role_name = 'gate'
EXEC sys.sp_cdc_enable_table 'dbo', 'hidden', @role_name = NULL
CREATE USER reader FOR LOGIN reader
"""
CHANGES = (
    "SELECT * FROM cdc.fn_cdc_get_all_changes_dbo_t(sys.fn_cdc_get_min_lsn('dbo_t'), sys.fn_cdc_get_max_lsn(), 'all')"
)


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    Client(made).run(
        "CREATE DATABASE shop; CREATE DATABASE other; CREATE LOGIN reader WITH PASSWORD = 'p', CHECK_POLICY = OFF"
    )
    Client(made, "shop").run(SETUP)
    Client(made, "shop").run("CREATE PROCEDURE dbo.p AS SELECT id FROM dbo.hidden")
    Client(made, "shop").run("CREATE PROCEDURE dbo.q AS EXEC sp_executesql N'SELECT id FROM dbo.hidden'")
    Client(made, "shop").run("INSERT INTO dbo.t VALUES (1, 1); INSERT INTO dbo.hidden VALUES (2)")
    yield made
    made.close()


@pytest.fixture
def sa(engine: Engine) -> Client:
    return Client(engine, "shop")


@pytest.fixture
def reader(engine: Engine) -> Client:
    return Client(engine, "shop", "reader", "p")


def refused(open_: Callable[[], object]) -> int:
    with pytest.raises(SqlError) as caught:
        open_()
    return caught.value.number


def test_who_may_log_in(engine: Engine, sa: Client) -> None:
    assert refused(lambda: engine.open(Login("reader", "wrong", ""))) == 18456
    assert refused(lambda: engine.open(Login("nobody", "p", ""))) == 18456
    assert refused(lambda: engine.open(Login("reader", "p", "other"))) == 4060
    sa.run("CREATE LOGIN home WITH PASSWORD = 'new', DEFAULT_DATABASE = shop; CREATE USER home")
    assert engine.open(Login("HOME", "new", "")).database == "shop"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("SELECT * FROM dbo.t", 229),
        ("SELECT * FROM cdc.dbo_t_CT", 229),
        ("INSERT INTO t VALUES (2, 2)", 229),
        ("UPDATE t SET v = 2", 229),
        ("DELETE FROM t", 229),
        ("EXEC dbo.p", 229),
        (CHANGES, 229),
        ("SELECT * FROM missing", 208),
        ("USE other", 916),
        ("SELECT * FROM other.sys.tables", 916),
        ("EXEC other.sys.sp_cdc_help_jobs", 916),
        ("SELECT * FROM msdb.dbo.cdc_jobs", 229),
        ("SELECT * FROM sys.dm_server_services", 300),
        ("SELECT * FROM sys.dm_cdc_errors", 262),
        ("EXEC sys.sp_cdc_enable_db", 22902),
        ("EXEC sys.sp_cdc_enable_table 'dbo', 't', 'x', @role_name = NULL", 22904),
        ("EXEC sys.sp_cdc_help_jobs", 22904),
        ("EXEC sys.sp_cdc_get_captured_columns 'dbo_t'", 22981),
        ("EXEC sys.sp_cdc_get_ddl_history 'dbo_t'", 22981),
        ("EXEC sys.sp_cdc_help_change_data_capture 'dbo', 't'", 22981),
        ("CREATE TABLE mine (id int)", 262),
        ("SELECT 1 AS x INTO mine", 262),
        ("CREATE DATABASE mine", 262),
        ("ALTER TABLE t ADD x int", 1088),
        ("DROP TABLE t", 3701),
        ("CREATE INDEX i ON t (v)", 1088),
        ("TRUNCATE TABLE t", 1088),
        ("EXEC sp_rename 't', 'u'", 1088),
        ("ALTER DATABASE shop SET AUTO_CLOSE ON", 5011),
        ("GRANT SELECT ON t TO reader", 15247),
        ("CREATE LOGIN x WITH PASSWORD = 'x'", 15247),
        ("ALTER ROLE db_owner ADD MEMBER reader", 15247),
    ],
)
def test_what_a_user_without_rights_is_reported(reader: Client, text: str, number: int) -> None:
    assert reader.number(text) == number


@pytest.mark.parametrize(
    "grant",
    [
        "GRANT SELECT ON dbo.t TO reader",
        "GRANT SELECT ON OBJECT::dbo.t TO public",
        "GRANT SELECT ON SCHEMA::dbo TO reader",
        "GRANT SELECT ON DATABASE::shop TO reader",
        "GRANT SELECT TO reader",
        "GRANT CONTROL ON dbo.t TO reader",
        "GRANT SELECT ON dbo.t TO gate; ALTER ROLE gate ADD MEMBER reader",
        "ALTER ROLE db_datareader ADD MEMBER reader",
        "ALTER ROLE db_owner ADD MEMBER reader",
        "USE master; GRANT SELECT ALL USER SECURABLES TO reader",
        "ALTER SERVER ROLE sysadmin ADD MEMBER reader",
    ],
)
def test_ways_to_read_a_table(sa: Client, reader: Client, grant: str) -> None:
    assert reader.number("SELECT v FROM t") == 229
    sa.run(grant)
    assert reader.run("SELECT v FROM t") == [(1,)]


def test_one_denial_outweighs_every_grant(sa: Client, reader: Client) -> None:
    sa.run(
        "ALTER ROLE db_datareader ADD MEMBER reader; GRANT SELECT ON dbo.t TO reader; DENY SELECT ON SCHEMA::dbo TO public"
    )
    assert reader.number("SELECT v FROM t") == 229
    sa.run("REVOKE SELECT ON SCHEMA::dbo FROM public")
    assert reader.run("SELECT v FROM t") == [(1,)]
    sa.run("ALTER ROLE db_denydatareader ADD MEMBER reader")
    assert reader.number("SELECT v FROM t") == 229


def test_a_right_is_for_one_action_on_one_object(sa: Client, reader: Client) -> None:
    sa.run("GRANT INSERT, UPDATE ON dbo.t TO reader")
    reader.run("INSERT INTO t VALUES (2, 2); UPDATE t SET v = 3")
    assert reader.number("UPDATE t SET v = 4 WHERE id = 1") == 229  # it reads
    assert reader.number("DELETE FROM t") == 229
    assert reader.number("SELECT * FROM hidden") == 229
    sa.run("REVOKE INSERT ON dbo.t FROM reader")
    assert reader.number("INSERT INTO t VALUES (3, 2)") == 229


def test_who_may_use_a_procedure_need_not_read_what_it_reads(sa: Client, reader: Client) -> None:
    sa.run("GRANT EXECUTE ON dbo.p TO reader; GRANT EXEC ON dbo.q TO reader")
    assert reader.run("EXEC dbo.p") == [(2,)]
    assert reader.number("EXEC dbo.q") == 229  # a text is nobody's


def test_changes_are_for_who_reads_the_table_and_is_in_the_gating_role(sa: Client, reader: Client) -> None:
    zero = "SELECT sys.fn_cdc_get_min_lsn('dbo_t')"
    assert reader.run(zero) == [(bytes(10),)]
    sa.run("GRANT SELECT ON dbo.t TO reader")
    assert (reader.number(CHANGES), reader.run(zero)) == (229, [(bytes(10),)])
    sa.run("ALTER ROLE gate ADD MEMBER reader")
    assert len(reader.run(CHANGES)) == 1
    assert reader.run(zero) != [(bytes(10),)]
    assert [row[1] for row in reader.run("EXEC sys.sp_cdc_help_change_data_capture")] == ["t"]
    assert len(reader.run("EXEC sys.sp_cdc_get_captured_columns 'dbo_t'")) == 2
    assert reader.number("SELECT * FROM cdc.dbo_t_CT") == 229  # the role gates the functions
    sa.run("GRANT SELECT ON SCHEMA::cdc TO reader")
    assert len(reader.run("SELECT * FROM cdc.dbo_t_CT")) == 1


def test_the_catalogue_shows_what_one_has_a_right_on(sa: Client, reader: Client) -> None:
    names = "SELECT name FROM sys.tables"
    assert reader.run(names) == []
    assert reader.run("SELECT OBJECT_ID('dbo.t'), COUNT(*) FROM sys.columns") == [(None, 0)]
    sa.run("GRANT SELECT ON dbo.t TO reader")
    assert reader.run(names) == [("t",)]
    assert reader.run("SELECT COUNT(*) FROM sys.columns") == [(2,)]
    assert [row[2] for row in reader.run("EXEC sp_tables @table_type = \"'TABLE'\"")] == ["t"]
    assert ("other",) in reader.run("SELECT name FROM sys.databases")
    sa.run("USE master; DENY VIEW ANY DATABASE TO public")
    assert ("other",) not in reader.run("SELECT name FROM sys.databases")


def test_a_definition_is_shown_to_who_may_view_it(sa: Client, reader: Client) -> None:
    sa.run("ALTER TABLE t ADD d int CONSTRAINT own DEFAULT 7; GRANT SELECT ON dbo.t TO reader")
    text = "SELECT name, definition FROM sys.default_constraints"
    assert reader.run(text) == [("own", None)]
    sa.run("GRANT VIEW DEFINITION ON dbo.t TO reader")
    assert reader.run(text) == [("own", "((7))")]


def test_management_views_take_a_state_permission(sa: Client, reader: Client) -> None:
    own = "SELECT COUNT(*) FROM sys.dm_exec_sessions"
    assert reader.run(own) == [(1,)]
    sa.run("GRANT VIEW DATABASE STATE TO reader")
    assert reader.run("SELECT * FROM sys.dm_cdc_errors") == []
    assert reader.number("SELECT * FROM sys.dm_server_services") == 300
    assert sa.number("GRANT VIEW SERVER STATE TO reader") == 4621
    sa.run("USE master; GRANT VIEW SERVER STATE TO reader")
    assert len(reader.run("SELECT * FROM sys.dm_server_services")) == 2
    assert reader.run(own) > [(1,)]


@pytest.mark.parametrize(
    ("question", "sa_is_told", "reader_is_told"),
    [
        ("HAS_PERMS_BY_NAME('dbo.t', 'OBJECT', 'SELECT')", 1, 1),
        ("HAS_PERMS_BY_NAME('dbo.t', 'OBJECT', 'DELETE')", 1, 0),
        ("HAS_PERMS_BY_NAME('dbo.missing', 'OBJECT', 'SELECT')", None, None),
        ("HAS_PERMS_BY_NAME('dbo.t', 'OBJECT', 'FLY')", None, None),
        ("HAS_PERMS_BY_NAME('nowhere', 'DATABASE', 'ANY')", None, None),
        ("HAS_PERMS_BY_NAME('cdc', 'SCHEMA', 'SELECT')", 1, 0),
        ("HAS_PERMS_BY_NAME(NULL, NULL, 'VIEW SERVER STATE')", 1, 0),
        ("HAS_PERMS_BY_NAME(NULL, 'DATABASE', 'CONNECT')", None, None),
        ("HAS_DBACCESS('shop')", 1, 1),
        ("HAS_DBACCESS('other')", 1, 0),
        ("HAS_DBACCESS('missing')", None, None),
        ("CURRENT_USER", "dbo", "reader"),
        ("SUSER_SNAME()", "sa", "reader"),
        ("SUSER_SNAME(SUSER_SID('reader'))", "reader", "reader"),
    ],
)  # fmt: skip
def test_questions(sa: Client, reader: Client, question: str, sa_is_told: object, reader_is_told: object) -> None:
    sa.run("GRANT SELECT ON dbo.t TO reader; ALTER ROLE gate ADD MEMBER reader")
    assert sa.run(f"SELECT {question}") == [(sa_is_told,)]
    assert reader.run(f"SELECT {question}") == [(reader_is_told,)]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("CREATE LOGIN reader WITH PASSWORD = 'x'", 15025),
        ("CREATE LOGIN sa WITH PASSWORD = 'x'", 15025),
        ("CREATE LOGIN [D\\u] FROM WINDOWS", 40510),
        ("ALTER LOGIN reader DISABLE", 40510),
        ("DROP LOGIN reader", 40510),
        ("CREATE ROLE mine", 40510),
        ("CREATE USER reader FOR LOGIN reader", 15023),
        ("CREATE USER again FOR LOGIN reader", 15063),
        ("CREATE USER x FOR LOGIN missing", 15007),
        ("CREATE USER x WITHOUT LOGIN WITH DEFAULT_SCHEMA = cdc", 40510),
        ("DROP USER missing", 15151),
        ("ALTER ROLE gate ADD MEMBER reader; DROP ROLE gate", 15144),
        ("ALTER ROLE missing ADD MEMBER reader", 15151),
        ("ALTER ROLE gate ADD MEMBER missing", 15151),
        ("ALTER ROLE gate ADD MEMBER gate", 15413),
        ("ALTER ROLE public ADD MEMBER reader", 15081),
        ("GRANT SELECT ON dbo.missing TO reader", 15151),
        ("GRANT SELECT ON SCHEMA::missing TO reader", 15151),
        ("GRANT SELECT ON dbo.t TO missing", 15151),
        ("GRANT SELECT ON dbo.t TO dbo", 4624),
        ("GRANT SELECT ON dbo.t (id) TO reader", 40510),
        ("GRANT IMPERSONATE ON dbo.t TO reader", 40510),
        ("GRANT SELECT ON dbo.t TO reader WITH GRANT OPTION", 40510),
        ("EXECUTE AS USER = 'reader'", 40510),
    ],
)
def test_mistakes_about_principals(sa: Client, text: str, number: int) -> None:
    assert sa.number(text) == number


def test_what_was_granted_goes_with_its_principal(sa: Client, reader: Client) -> None:
    sa.run("GRANT SELECT ON dbo.t TO reader; DROP USER reader; CREATE USER reader FOR LOGIN reader")
    assert reader.number("SELECT v FROM t") == 229
    sa.run("DROP USER reader; DROP ROLE gate")
    assert sa.run("SELECT COUNT(*) FROM sys.database_principals WHERE name IN ('reader', 'gate')") == [(0,)]


def test_a_grant_that_is_rolled_back_never_was(sa: Client, reader: Client) -> None:
    sa.run("BEGIN TRANSACTION; GRANT SELECT ON dbo.t TO reader; ROLLBACK")
    assert reader.number("SELECT v FROM t") == 229


def test_logins_and_rights_are_found_again(tmp_path: Path) -> None:
    made = Engine(tmp_path)
    Client(made).run("CREATE LOGIN reader WITH PASSWORD = 'p'; CREATE DATABASE shop; GRANT VIEW SERVER STATE TO reader")
    Client(made, "shop").run("CREATE TABLE t (id int); CREATE USER reader; GRANT SELECT ON t TO reader")
    made.close()
    made = Engine(tmp_path)
    reader = Client(made, "shop", "reader", "p")
    assert reader.run("SELECT * FROM t") == []
    assert len(reader.run("SELECT * FROM sys.dm_server_services")) == 2
    assert reader.number("INSERT INTO t VALUES (1)") == 229
    made.close()
