"""Databases, the server's configuration and its services."""

import hashlib
import sys
from collections.abc import Iterable
from typing import Final

from mssql_standin.capture import lsn
from mssql_standin.capture.hooks import agent
from mssql_standin.catalog import DATABASE_STATES, OPTIONS, Database
from mssql_standin.contract import SessionContext
from mssql_standin.sqltypes import DEFAULT_COLLATION, SqlType, Value, decimal_to_stored, guid_to_stored
from mssql_standin.system.describe import stored_datetime
from mssql_standin.system.view import Rows, view

_SA: Final = b"\1"


@view(
    "sys.databases",
    "name sysname!, database_id int!, source_database_id int, owner_sid varbinary(85), create_date datetime!, "
    "compatibility_level tinyint!, collation_name sysname, user_access tinyint, user_access_desc nvarchar(60), is_read_only bit, "
    "is_auto_close_on bit!, is_auto_shrink_on bit, state tinyint, state_desc nvarchar(60), is_in_standby bit, "
    "is_cleanly_shutdown bit, is_supplemental_logging_enabled bit, snapshot_isolation_state tinyint, "
    "snapshot_isolation_state_desc nvarchar(60), is_read_committed_snapshot_on bit, recovery_model tinyint, "
    "recovery_model_desc nvarchar(60), page_verify_option tinyint, page_verify_option_desc nvarchar(60), "
    "is_auto_create_stats_on bit, is_auto_create_stats_incremental_on bit, is_auto_update_stats_on bit, "
    "is_auto_update_stats_async_on bit, is_ansi_null_default_on bit, is_ansi_nulls_on bit, is_ansi_padding_on bit, "
    "is_ansi_warnings_on bit, is_arithabort_on bit, is_concat_null_yields_null_on bit, is_numeric_roundabort_on bit, "
    "is_quoted_identifier_on bit, is_recursive_triggers_on bit, is_cursor_close_on_commit_on bit, is_local_cursor_default bit, "
    "is_fulltext_enabled bit, is_trustworthy_on bit, is_db_chaining_on bit, is_parameterization_forced bit, "
    "is_master_key_encrypted_by_server bit!, is_query_store_on bit, is_published bit!, is_subscribed bit!, "
    "is_merge_published bit!, is_distributor bit!, is_sync_with_backup bit!, service_broker_guid uniqueidentifier!, "
    "is_broker_enabled bit!, log_reuse_wait tinyint, log_reuse_wait_desc nvarchar(60), is_date_correlation_on bit!, "
    "is_cdc_enabled bit!, is_encrypted bit, is_honor_broker_priority_on bit, replica_id uniqueidentifier, "
    "group_database_id uniqueidentifier, resource_pool_id int, default_language_lcid smallint, default_language_name nvarchar(128), "
    "default_fulltext_language_lcid int, default_fulltext_language_name nvarchar(128), is_nested_triggers_on bit, "
    "is_transform_noise_words_on bit, two_digit_year_cutoff smallint, containment tinyint, containment_desc nvarchar(60), "
    "target_recovery_time_in_seconds int, delayed_durability int, delayed_durability_desc nvarchar(60), "
    "is_memory_optimized_elevate_to_snapshot_on bit, is_federation_member bit, is_remote_data_archive_enabled bit, "
    "is_mixed_page_allocation_on bit, is_temporal_history_retention_enabled bit, catalog_collation_type int!, "
    "catalog_collation_type_desc nvarchar(60), physical_database_name nvarchar(128), is_result_set_caching_on bit, "
    "is_accelerated_database_recovery_on bit, is_tempdb_spill_to_remote_store bit, is_stale_page_detection_on bit, "
    "is_memory_optimized_enabled bit, is_data_retention_enabled bit, is_ledger_on bit, is_change_feed_enabled bit",
)
def databases(context: SessionContext, _: Database) -> Rows:
    """Every database of the server."""
    for database in sorted(_listed(context), key=lambda found: found.database_id):
        waits = _log_wait(context, database)
        has = {name: int(database.option(name) == "ON") for name in OPTIONS}
        snapshot = has["ALLOW_SNAPSHOT_ISOLATION"], database.option("ALLOW_SNAPSHOT_ISOLATION")
        yield (
            database.name, database.database_id, None, _SA, stored_datetime(database.created),
            int(database.option("COMPATIBILITY_LEVEL")), database.collation or DEFAULT_COLLATION,
            0, "MULTI_USER", 0, has["AUTO_CLOSE"], has["AUTO_SHRINK"],
            DATABASE_STATES[database.state], database.state, 0, 0, 0, *snapshot, has["READ_COMMITTED_SNAPSHOT"],
            *_told(database, "RECOVERY", 1), *_told(database, "PAGE_VERIFY", 2, -1), has["AUTO_CREATE_STATISTICS"], 0,
            has["AUTO_UPDATE_STATISTICS"], has["AUTO_UPDATE_STATISTICS_ASYNC"], 0, has["ANSI_NULLS"], 0, 0, 0, 0, 0,
            has["QUOTED_IDENTIFIER"], 0, 0, 0, 0, has["TRUSTWORTHY"], 0, 0, 0, has["QUERY_STORE"], 0, 0, 0, 0, 0,
            guid_to_stored(_guid(database, 1)), 0, *waits, 0, int(database.cdc_enabled), 0, 0, None, None, None, 1033,
            "us_english", 1033, "English", 1, 0, 2049, 0, "NONE", 60, *_told(database, "DELAYED_DURABILITY"),
            0, 0, 0, 0, 1, 0, "DATABASE_DEFAULT", database.name, 0, has["ACCELERATED_DATABASE_RECOVERY"], 0, 0, 1, 0, 0, 0,
        )  # fmt: skip


def _listed(context: SessionContext) -> Iterable[Database]:
    every = context.catalog.databases.values()
    return every if context.rights is None else context.rights.listed(every)


def _told(database: Database, option: str, first: int = 0, step: int = 1) -> tuple[int, str]:
    """Number and name of an option's value; `first` is the default's number."""
    value = database.option(option)
    return first + step * OPTIONS[option].index(value), value


def _log_wait(context: SessionContext, database: Database) -> tuple[int, str]:
    """REPLICATION while committed changes wait for the capture job."""
    if not database.cdc_enabled:
        return 0, "NOTHING"
    query = "SELECT 1 FROM capture_log WHERE database_id = ? LIMIT 1"
    waits = context.connection.execute(query, (database.database_id,)).fetchone()
    return (6, "REPLICATION") if waits else (0, "NOTHING")


def _guid(database: Database, salt: int) -> bytes:
    """A stable identifier of a database, from its name and date of creation."""
    text = f"{salt}:{database.name}:{database.created.isoformat()}"
    return hashlib.sha256(text.encode()).digest()[:16]


@view(
    "sys.database_recovery_status",
    "database_id int!, database_guid uniqueidentifier, family_guid uniqueidentifier, last_log_backup_lsn numeric(25,0), "
    "recovery_fork_guid uniqueidentifier, first_recovery_fork_guid uniqueidentifier, fork_point_lsn numeric(25,0)",
)
def recovery_status(context: SessionContext, _: Database) -> Rows:
    """The recovery fork of each database: a restore begins a new one."""
    for database in _listed(context):
        first = guid_to_stored(_guid(database, 2))
        forks = database.recovery_forks
        if not forks:
            yield (database.database_id, first, first, None, first, None, None)
            continue
        point = decimal_to_stored(lsn.number(bytes.fromhex(forks[-1].point)), SqlType("numeric", precision=25))
        yield (database.database_id, first, first, None, bytes.fromhex(forks[-1].guid), first, point)


@view(
    "sys.dm_server_services",
    "servicename nvarchar(256)!, startup_type int, startup_type_desc nvarchar(256)!, status int, status_desc nvarchar(256)!, "
    "process_id int, last_startup_time datetimeoffset(7), service_account nvarchar(256)!, filename nvarchar(256)!, "
    "is_clustered nvarchar(1)!, cluster_nodename nvarchar(256), instant_file_initialization_enabled nvarchar(1)!",
)
def services(context: SessionContext, _: Database) -> Rows:
    """The engine, and SQL Server Agent as the capture Agent stands."""
    running, stopped = (4, "Running"), (1, "Stopped")
    rows: list[tuple[str, tuple[int, str], Value]] = [
        ("SQL Server (MSSQLSERVER)", running, None),
        ("SQL Server Agent (MSSQLSERVER)", running if agent(context).running else stopped, None),
    ]
    return [
        (name, 2, "Automatic", *state, None, started, "NT Service", sys.executable[:256], "N", None, "N")
        for name, state, started in rows
    ]
