"""Enabling, disabling, describing, jobs and clean-up."""

from datetime import timedelta

import pytest

from mssql_standin.errors import SqlError
from tests.capture.harness import Server, Session


def failing(session: Session, procedure: str, **arguments: object) -> int:
    with pytest.raises(SqlError) as caught:
        session.call(procedure, **arguments)  # type: ignore[arg-type]
    return caught.value.number


def enabling(session: Session, **arguments: object) -> int:
    return failing(
        session, "sp_cdc_enable_table", **{"source_schema": "dbo", "source_name": "t", "role_name": None, **arguments}
    )


@pytest.fixture
def table(session: Session) -> Session:
    session.make("t", "id int;code int;name varchar(20)", unique=("code",))
    session.make("heap", "id int;n int", key="")
    session.call("sp_cdc_enable_db")
    return session


def test_a_database_must_be_enabled_first(session: Session) -> None:
    assert failing(session, "sp_cdc_enable_table", source_schema="dbo", source_name="t", role_name=None) == 22901
    assert failing(session, "sp_cdc_help_change_data_capture") == 22901
    assert failing(session, "sp_cdc_help_jobs") == 22901


def test_system_databases_cannot_be_enabled(session: Session) -> None:
    session.procedure_database = "msdb"
    assert failing(session, "sp_cdc_enable_db") == 22989


def test_a_schema_cdc_is_in_the_way(session: Session) -> None:
    session.server.storage.catalog.databases["shop"].schemas["cdc"] = 9
    assert failing(session, "sp_cdc_enable_db") == 22906


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        ({"source_name": "missing"}, 22931),
        ({"source_schema": "cdc", "source_name": "change_tables"}, 22974),
        ({"capture_instance": "x" * 101}, 22927),
        ({"capture_instance": ""}, 22932),
        ({"role_name": ""}, 22907),
        ({"role_name": "r" * 129}, 22938),
        ({"index_name": "nope"}, 22928),
        ({"source_name": "heap", "supports_net_changes": 1}, 22939),
        ({"supports_net_changes": 1, "captured_column_list": "name"}, 22943),
        ({"captured_column_list": "id, nope"}, 22930),
        ({"captured_column_list": "id, name, [ID]"}, 22942),
        ({"captured_column_list": "id, [name"}, 22965),
        ({"filegroup_name": "FAST"}, 22973),
        ({"nonsense": 1}, 8145),
    ],
)
def test_arguments_are_refused_with_the_vendors_number(
    table: Session, arguments: dict[str, object], number: int
) -> None:
    assert enabling(table, **arguments) == number


def test_two_instances_at_most_with_names_of_their_own(table: Session) -> None:
    table.enable()
    assert enabling(table) == 22926
    table.enable(capture_instance="second")
    assert enabling(table, capture_instance="third") == 22962
    assert enabling(table) == 22962


def test_a_failed_enabling_leaves_nothing(table: Session) -> None:
    enabling(table, filegroup_name="FAST")
    assert table.cdc("change_tables") == []
    assert not table.catalog.databases["shop"].tables["dbo", "t"].tracked_by_cdc


def test_what_change_tables_and_captured_columns_say(table: Session) -> None:
    table.enable(index_name="UX_code", supports_net_changes=1, role_name="reader", captured_column_list="[code], name")
    source = table.catalog.databases["shop"].tables["dbo", "t"]
    change = table.catalog.databases["shop"].tables["cdc", "dbo_t_ct"]
    (row,) = table.cdc("change_tables")
    assert row[:4] == (change.object_id, 0, source.object_id, "dbo_t")
    assert row[5:11] == (None, 1, None, "reader", "UX_code", None)
    assert [found[1:] for found in table.cdc("captured_columns")] == [
        ("code", 2, "int", 1, 0, None),
        ("name", 3, "varchar", 2, 0, None),
    ]
    assert table.cdc("index_columns") == [(change.object_id, "code", 1, 2)]
    assert [(c.name, str(c.type), c.nullable) for c in change.columns] == [
        ("__$start_lsn", "binary(10)", False),
        ("__$end_lsn", "binary(10)", True),
        ("__$seqval", "binary(10)", False),
        ("__$operation", "int", False),
        ("__$update_mask", "varbinary(128)", True),
        ("code", "int", True),
        ("name", "varchar(20)", True),
        ("__$command_id", "int", True),
    ]


def test_help_has_fifteen_columns_and_both_lists(table: Session) -> None:
    table.enable()
    (row,) = table.call("sp_cdc_help_change_data_capture")
    assert len(row) == 15
    assert row["index_column_list"] == "[id]"
    assert row["captured_column_list"] == "[id], [code], [name]"
    assert table.call("sp_cdc_help_change_data_capture", source_schema="dbo", source_name="t") == [row]
    assert failing(table, "sp_cdc_help_change_data_capture", source_schema="dbo") == 22972
    assert failing(table, "sp_cdc_help_change_data_capture", source_schema="dbo", source_name="heap") == 22985


def test_an_instance_starts_above_every_earlier_commit(table: Session) -> None:
    table.enable()
    source = table.catalog.databases["shop"].tables["dbo", "t"]
    table.execute(f"INSERT INTO {source.sqlite} VALUES (1, 1, 'a')")
    table.enable(capture_instance="second")
    table.execute(f"INSERT INTO {source.sqlite} VALUES (2, 2, 'b')")
    start = table.cdc("change_tables")[1][4]
    first, second = table.cdc("dbo_t_CT"), table.cdc("second_CT")
    assert first[0][0] < start < second[0][0] == first[1][0]  # type: ignore[operator]
    assert len(second) == 1


def test_disabling_one_instance_keeps_the_other(table: Session) -> None:
    table.enable()
    table.enable(capture_instance="second")
    source = table.catalog.databases["shop"].tables["dbo", "t"]
    table.call("sp_cdc_disable_table", source_schema="dbo", source_name="t", capture_instance="dbo_t")
    table.execute(f"INSERT INTO {source.sqlite} VALUES (1, 1, 'a')")
    assert len(table.cdc("second_CT")) == 1
    assert ("cdc", "dbo_t_ct") not in table.catalog.databases["shop"].tables
    assert [row[3] for row in table.cdc("change_tables")] == ["second"]
    assert (
        failing(table, "sp_cdc_disable_table", source_schema="dbo", source_name="t", capture_instance="gone") == 22960
    )
    table.call("sp_cdc_disable_table", source_schema="dbo", source_name="t", capture_instance="all")
    assert not table.catalog.databases["shop"].tables["dbo", "t"].tracked_by_cdc
    table.execute(f"DELETE FROM {source.sqlite}")
    assert failing(table, "sp_cdc_disable_table", source_schema="dbo", source_name="t", capture_instance="all") == 22985


def test_disabling_the_database_removes_everything_and_it_can_come_back(table: Session) -> None:
    table.enable()
    source = table.catalog.databases["shop"].tables["dbo", "t"]
    table.execute(f"INSERT INTO {source.sqlite} VALUES (1, 1, 'a')")
    last = table.cdc("dbo_t_CT")[-1][0]
    table.call("sp_cdc_disable_db")
    shop = table.catalog.databases["shop"]
    assert [name for name in shop.tables if name[0] == "cdc" or name[1] == "systranschemas"] == []
    assert ("dbo", "cdc_jobs") not in table.catalog.databases["msdb"].tables
    left = [
        row[0]
        for row in table.connection.execute(
            "SELECT name FROM sqlite_master WHERE name GLOB 's[0-9]*' OR type = 'trigger'"
        )
    ]
    assert left == []
    table.enable()
    table.execute(f"INSERT INTO {source.sqlite} VALUES (2, 2, 'b')")
    assert table.cdc("dbo_t_CT")[-1][0] > last  # type: ignore[operator]


def test_jobs_are_created_with_the_first_table(table: Session) -> None:
    assert table.call("sp_cdc_help_jobs") == []
    table.enable()
    capture, cleanup = table.call("sp_cdc_help_jobs")
    assert (capture["job_type"], capture["pollinginterval"], capture["maxtrans"], capture["continuous"]) == (
        "capture",
        5,
        500,
        1,
    )
    assert (cleanup["job_type"], cleanup["retention"], cleanup["threshold"]) == ("cleanup", 4320, 5000)
    table.call("sp_cdc_change_job", job_type="cleanup", retention=60)
    assert table.call("sp_cdc_help_jobs")[1]["retention"] == 60
    table.call("sp_cdc_drop_job", job_type="cleanup")
    assert failing(table, "sp_cdc_change_job", job_type="cleanup", retention=60) == 22997
    table.call("sp_cdc_add_job", job_type="cleanup", retention=61)
    assert table.call("sp_cdc_help_jobs")[1]["retention"] == 61
    assert failing(table, "sp_cdc_add_job", job_type="cleanup") == 14261


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        ({"job_type": "other"}, 22992),
        ({"retention": 5}, 22995),
        ({"job_type": "cleanup", "maxtrans": 5}, 22996),
        ({"job_type": "cleanup", "retention": 0}, 22994),
        ({"maxtrans": 0}, 22991),
        ({"maxscans": 0}, 22970),
        ({"continuous": 2}, 22998),
        ({"pollinginterval": 86400}, 22990),
    ],
)
def test_job_options_are_checked(table: Session, arguments: dict[str, object], number: int) -> None:
    table.enable()
    assert failing(table, "sp_cdc_change_job", **arguments) == number


def test_cleanup_moves_the_low_end_and_deletes_below(table: Session) -> None:
    table.enable()
    source = table.catalog.databases["shop"].tables["dbo", "t"]
    for key in range(4):
        table.execute(f"INSERT INTO {source.sqlite} VALUES ({key}, {key}, 'a')")
    mark = table.cdc("dbo_t_CT")[2][0]
    table.call("sp_cdc_cleanup_change_table", capture_instance="dbo_t", low_water_mark=mark)
    assert table.cdc("dbo_t_CT")[0][0] == mark
    assert len(table.cdc("dbo_t_CT")) == 2
    assert table.cdc("change_tables")[0][4] == mark
    assert table.cdc("lsn_time_mapping")[0][0] == mark
    assert failing(table, "sp_cdc_cleanup_change_table", capture_instance="dbo_t", low_water_mark=b"\0" * 10) == 22964
    assert failing(table, "sp_cdc_cleanup_change_table", capture_instance="gone", low_water_mark=mark) == 22981
    table.call("sp_cdc_cleanup_change_table", capture_instance="dbo_t", low_water_mark=None)
    assert len(table.cdc("dbo_t_CT")) == 2


def test_cleanup_keeps_times_that_another_instance_needs(table: Session) -> None:
    table.enable("heap")
    table.enable()
    source = table.catalog.databases["shop"].tables["dbo", "t"]
    for key in range(3):
        table.execute(f"INSERT INTO {source.sqlite} VALUES ({key}, {key}, 'a')")
    known = len(table.cdc("lsn_time_mapping"))
    table.agent.cleanup("shop", "dbo_t", table.cdc("dbo_t_CT")[2][0])  # type: ignore[arg-type]
    assert len(table.cdc("lsn_time_mapping")) == known
    assert (
        failing(
            table,
            "sp_cdc_cleanup_change_table",
            capture_instance="dbo_t",
            low_water_mark=table.cdc("lsn_time_mapping")[1][0],
        )
        == 22957
    )


def test_ddl_history_and_captured_columns_can_be_asked_for(table: Session) -> None:
    table.enable()
    assert [row["column_name"] for row in table.call("sp_cdc_get_captured_columns", capture_instance="dbo_t")] == [
        "id",
        "code",
        "name",
    ]
    assert table.call("sp_cdc_get_ddl_history", capture_instance="dbo_t") == []
    assert failing(table, "sp_cdc_get_ddl_history", capture_instance="gone") == 22981


def test_enabling_says_that_the_jobs_started(server: Server) -> None:
    session = server.session()
    session.make("t", "id int")
    session.enable()
    assert session.sink.messages == [
        "Job 'cdc.shop_capture' started successfully.",
        "Job 'cdc.shop_cleanup' started successfully.",
    ]


def test_enabling_with_a_stopped_agent_says_so(server: Server) -> None:
    session = server.session()
    session.make("t", "id int")
    server.agent.stop()
    session.enable()
    assert (
        session.sink.messages
        == ["SQLServerAgent is not currently running so it cannot be notified of this action."] * 2
    )


def test_the_cleanup_job_deletes_what_outlived_its_retention(table: Session) -> None:
    table.enable()
    source = table.catalog.databases["shop"].tables["dbo", "t"]
    for key in range(3):
        table.execute(f"INSERT INTO {source.sqlite} VALUES ({key}, {key}, 'a')")
    table.call("sp_cdc_change_job", job_type="cleanup", retention=10)
    table.call("sp_cdc_start_job", job_type="cleanup")
    assert len(table.cdc("dbo_t_CT")) == 3
    table.server.clock.now += timedelta(minutes=11)
    table.execute(f"INSERT INTO {source.sqlite} VALUES (9, 9, 'a')")
    table.call("sp_cdc_start_job", job_type="cleanup")
    left = [row[5] for row in table.cdc("dbo_t_CT")]
    assert left == [2, 9]
    assert table.cdc("change_tables")[0][4] == table.cdc("dbo_t_CT")[0][0]
