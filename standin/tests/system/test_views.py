"""Every view computes rows that fit its columns."""

from pathlib import Path

import pytest

from mssql_standin.errors import SqlError
from mssql_standin.sqltypes import BINARY
from mssql_standin.system import views
from mssql_standin.system.view import VIEWS
from tests.capture.harness import Server, Session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    server = Server(tmp_path)
    session = server.session()
    table = session.make("t", "id int;name varchar(20);amount decimal(30,2)", unique=("name",))
    session.make("heap", "id int", key="")
    session.enable(supports_net_changes=1)
    session.execute(f"INSERT INTO {table.sqlite} VALUES (1, 'a', NULL)")
    server.agent.stop()
    return session


def rows(session: Session, name: str) -> list[dict[str, object]]:
    schema, _, view = name.partition(".")
    relation = views.view_relation(session, "shop", schema, view)  # type: ignore[arg-type]
    assert relation is not None
    assert relation.refresh is not None
    relation.refresh()
    names = [column.name for column in relation.columns]
    return [dict(zip(names, row, strict=True)) for row in session.connection.execute(f"SELECT * FROM {relation.sql}")]


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_every_view_fills_its_columns(session: Session, name: str) -> None:
    found = rows(session, name)
    for place, (column, kind, nullable) in enumerate(VIEWS[name].columns):
        for row in found:
            value = list(row.values())[place]
            assert nullable or value is not None, f"{column} is NULL"
            if value is not None:
                as_bytes = kind.name in {*BINARY, "uniqueidentifier", "datetimeoffset"} or kind.is_wide_decimal
                expected = bytes if as_bytes else str if kind.name in ("char", "varchar", "nvarchar") else int
                assert isinstance(value, expected), f"{column}: {value!r}"


def test_tables_show_what_is_captured(session: Session) -> None:
    found = {row["name"]: row for row in rows(session, "sys.tables")}
    assert found["t"]["is_tracked_by_cdc"] == 1
    assert found["heap"]["is_tracked_by_cdc"] == 0
    assert found["dbo_t_CT"]["is_ms_shipped"] == 1


def test_columns_describe_their_types(session: Session) -> None:
    found = {row["name"]: row for row in rows(session, "sys.columns") if row["object_id"] == _id(session)}
    assert [
        (c["column_id"], c["system_type_id"], c["max_length"], c["precision"], c["scale"]) for c in found.values()
    ] == [
        (1, 56, 4, 10, 0),
        (2, 167, 20, 0, 0),
        (3, 106, 17, 30, 2),
    ]
    assert found["name"]["collation_name"] == "SQL_Latin1_General_CP1_CI_AS"
    assert found["id"]["collation_name"] is None


def _id(session: Session) -> object:
    return next(row["object_id"] for row in rows(session, "sys.tables") if row["name"] == "t")


def test_a_view_is_filled_anew_before_each_execution(session: Session) -> None:
    before = len(rows(session, "sys.tables"))
    session.make("later", "id int")
    assert len(rows(session, "sys.tables")) == before + 1


def test_unknown_views_are_not_relations(session: Session) -> None:
    assert views.view_relation(session, "shop", "dbo", "tables") is None  # type: ignore[arg-type]
    with pytest.raises(SqlError, match=r"^40510: The stand-in does not support the view sys\.foreign_keys\.$"):
        views.view_relation(session, "shop", "sys", "foreign_keys")  # type: ignore[arg-type]


def test_databases_show_capture_and_its_backlog(session: Session) -> None:
    found = {row["name"]: row for row in rows(session, "sys.databases")}
    assert found["shop"]["is_cdc_enabled"] == 1
    assert found["other"]["is_cdc_enabled"] == 0
    assert found["shop"]["log_reuse_wait_desc"] == "NOTHING"
    table = session.catalog.databases["shop"].tables["dbo", "t"]
    session.execute(f"INSERT INTO {table.sqlite} VALUES (2, 'b', NULL)")
    found = {row["name"]: row for row in rows(session, "sys.databases")}
    assert found["shop"]["log_reuse_wait_desc"] == "REPLICATION"


def test_services_tell_of_a_stopped_agent(session: Session) -> None:
    found = {row["servicename"]: row["status"] for row in rows(session, "sys.dm_server_services")}
    assert found["SQL Server Agent (MSSQLSERVER)"] == 1
    session.server.agent.start()
    found = {row["servicename"]: row["status"] for row in rows(session, "sys.dm_server_services")}
    assert found["SQL Server Agent (MSSQLSERVER)"] == 4
    session.server.agent.stop()


def test_an_idle_job_ends_its_sessions_with_the_empty_scan_marker(session: Session) -> None:
    session.server.agent.start()
    table = session.catalog.databases["shop"].tables["dbo", "t"]
    session.execute(f"INSERT INTO {table.sqlite} VALUES (3, 'c', NULL)")
    found = rows(session, "sys.dm_cdc_log_scan_sessions")
    newest = max(found, key=lambda row: int(str(row["session_id"])))
    assert newest["start_lsn"] == "00000000:00000000:0000\0"
    assert found[0]["session_id"] == 0
    assert any(row["tran_count"] == 1 and row["session_id"] for row in found)
    session.server.agent.stop()
