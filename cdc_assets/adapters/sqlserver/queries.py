"""T-SQL texts about the server, its catalogue and its capture instances, each with its name and its vendor page.

Those over change tables are in `change_queries`, those over captured tables in `table_queries`. Each begins with a
comment that names cdc-assets, so that a DBA can identify it in a trace. `of_database` replaces `{db}` by the quoted
database; other names are quoted by `core.identifiers.quote`; values are parameters.
"""

from collections.abc import Sequence

from cdc_assets.core.identifiers import quote

TAG = "/* cdc-assets: {name} */ "


def query(name: str, text: str) -> str:
    """A statement with its comment, in one line."""
    return TAG.format(name=name) + " ".join(text.split())


def of_database(template: str, database: str) -> str:
    """The statement for one database."""
    return template.replace("{db}", quote(database))


PING = query("ping", "SELECT 1")

VERSION = query("version", "SELECT @@VERSION")
"""https://learn.microsoft.com/en-us/sql/t-sql/functions/version-transact-sql-configuration-functions"""

EDITION = query("edition", "SELECT CAST(SERVERPROPERTY('EngineEdition') AS int)")
"""5 means Azure SQL Database, which has no Agent.
https://learn.microsoft.com/en-us/sql/t-sql/functions/serverproperty-transact-sql"""

SERVER_TIME = query("server_time", "SELECT CONVERT(nvarchar(34), SYSDATETIMEOFFSET(), 126)")
"""Read as text, because pyodbc has no type for datetimeoffset.
https://learn.microsoft.com/en-us/sql/t-sql/functions/sysdatetimeoffset-transact-sql"""

DATABASE = query(
    "database", "SELECT name, is_cdc_enabled, snapshot_isolation_state, state_desc FROM sys.databases WHERE name = ?"
)
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-catalog-views/sys-databases-transact-sql"""

DATABASE_ACCESS = query("database_access", "SELECT HAS_DBACCESS(?)")
"""https://learn.microsoft.com/en-us/sql/t-sql/functions/has-dbaccess-transact-sql"""

LOGIN = query("login", "SELECT SUSER_SNAME()")
"""https://learn.microsoft.com/en-us/sql/t-sql/functions/suser-sname-transact-sql"""

OWN_USER = query("own_user", "SELECT name FROM {db}.sys.database_principals WHERE sid = SUSER_SID()")
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-catalog-views/sys-database-principals-transact-sql"""

PERMISSION = query("permission", "SELECT HAS_PERMS_BY_NAME(?, ?, ?)")
"""https://learn.microsoft.com/en-us/sql/t-sql/functions/has-perms-by-name-transact-sql"""

UNSEEN_SOURCES = query(
    "unseen_sources",
    """SELECT ct.capture_instance, ct.source_object_id FROM {db}.cdc.change_tables AS ct
    WHERE OBJECT_NAME(ct.source_object_id, DB_ID(?)) IS NULL ORDER BY ct.capture_instance""",
)
"""The catalogue hides tables on which the login has no permission.
https://learn.microsoft.com/en-us/sql/relational-databases/security/metadata-visibility-configuration"""

UNSEEN_DEFAULTS = query(
    "unseen_defaults",
    """SELECT DISTINCT s.name, t.name FROM {db}.sys.default_constraints AS d
    JOIN {db}.sys.tables AS t ON t.object_id = d.parent_object_id
    JOIN {db}.sys.schemas AS s ON s.schema_id = t.schema_id
    JOIN {db}.cdc.change_tables AS ct ON ct.source_object_id = t.object_id WHERE d.definition IS NULL""",
)
"""Definitions are visible only with VIEW DEFINITION.
https://learn.microsoft.com/en-us/sql/relational-databases/security/metadata-visibility-configuration"""

MIN_LSN = query("min_lsn", "SELECT {db}.sys.fn_cdc_get_min_lsn(?)")
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-functions/sys-fn-cdc-get-min-lsn-transact-sql"""

RECOVERY_FORK = query(
    "recovery_fork",
    """SELECT CONVERT(nvarchar(36), recovery_fork_guid), fork_point_lsn,
        CONVERT(nvarchar(20), DATABASEPROPERTYEX(DB_NAME(database_id), N'Updateability'))
    FROM sys.database_recovery_status WHERE database_id = DB_ID(?)""",
)
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-catalog-views/sys-database-recovery-status-transact-sql"""

USER_TABLES = query(
    "user_tables",
    """SELECT s.name, t.name FROM {db}.sys.tables AS t JOIN {db}.sys.schemas AS s ON s.schema_id = t.schema_id
    WHERE t.is_ms_shipped = 0 AND s.name NOT IN (N'cdc', N'sys') ORDER BY s.name, t.name""",
)
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-catalog-views/sys-tables-transact-sql"""


TABLE_NUMBERS = query(
    "table_numbers",
    "SELECT s.name, t.name, t.object_id FROM {db}.sys.tables AS t JOIN {db}.sys.schemas AS s ON s.schema_id = t.schema_id",
)
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-catalog-views/sys-tables-transact-sql"""


def columns(database: str, count: int, *, by_number: bool = False) -> str:
    """Columns of `count` tables, each given by schema and name, or by its object id; the first columns of the result are
    the table's actual schema and name.

    An alias type's row in sys.types has its own user_type_id; the base type is the row whose user_type_id is the
    column's system_type_id. CLR types have no such row and keep their own name.
    https://learn.microsoft.com/en-us/sql/relational-databases/system-catalog-views/sys-columns-transact-sql
    """
    names = " OR ".join(["(s.name = ? AND t.name = ?)"] * count)
    chosen = f"t.object_id IN ({', '.join('?' * count)})" if by_number else names
    return of_database(
        query(
            "columns",
            f"""SELECT s.name, t.name, t.object_id, c.column_id, c.name, COALESCE(b.name, y.name), y.name, c.max_length,
            c.precision, c.scale, c.is_nullable, c.is_identity, c.is_computed, d.definition, c.collation_name
            FROM {{db}}.sys.tables AS t
            JOIN {{db}}.sys.schemas AS s ON s.schema_id = t.schema_id
            JOIN {{db}}.sys.columns AS c ON c.object_id = t.object_id
            JOIN {{db}}.sys.types AS y ON y.user_type_id = c.user_type_id
            LEFT JOIN {{db}}.sys.types AS b ON b.user_type_id = c.system_type_id
            LEFT JOIN {{db}}.sys.default_constraints AS d ON d.object_id = c.default_object_id
            WHERE {chosen} ORDER BY t.object_id, c.column_id""",
        ),
        database,
    )


def keys(database: str, count: int) -> str:
    """Columns of the unique indexes of `count` tables, each given by its object id.

    The first index of a table is its key: the primary key, else the first unique index, clustered before others, then
    by name (spec debezium-sqlserver §1.4). A filtered or disabled index does not make every row unique.
    https://learn.microsoft.com/en-us/sql/relational-databases/system-catalog-views/sys-indexes-transact-sql
    """
    marks = ", ".join("?" * count)
    return of_database(
        query(
            "keys",
            f"""SELECT i.object_id, i.index_id, c.name FROM {{db}}.sys.indexes AS i
            JOIN {{db}}.sys.index_columns AS ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
            JOIN {{db}}.sys.columns AS c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
            WHERE i.object_id IN ({marks}) AND i.is_unique = 1 AND i.is_disabled = 0 AND i.has_filter = 0
            AND ic.key_ordinal > 0
            ORDER BY i.object_id, i.is_primary_key DESC, i.type, i.name, ic.key_ordinal""",
        ),
        database,
    )


CHANGE_TABLES = query(
    "change_tables",
    """SELECT ct.object_id, ct.source_object_id, OBJECT_SCHEMA_NAME(ct.source_object_id, DB_ID(?)),
    OBJECT_NAME(ct.source_object_id, DB_ID(?)), ct.capture_instance, ct.start_lsn, ct.create_date,
    (SELECT MAX(h.ddl_lsn) FROM {db}.cdc.ddl_history AS h WHERE h.object_id = ct.object_id)
    FROM {db}.cdc.change_tables AS ct""",
)
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-change-tables-transact-sql"""

INSTANCE_OPTIONS = query(
    "instance_options",
    """SELECT ct.capture_instance, ct.role_name, ct.supports_net_changes,
    CASE WHEN i.is_primary_key = 1 THEN NULL ELSE ct.index_name END, ct.filegroup_name,
    CASE WHEN ct.partition_switch = 1 OR NOT EXISTS (SELECT 1 FROM {db}.sys.partitions AS p
    WHERE p.object_id = ct.source_object_id AND p.partition_number > 1) THEN 1 ELSE 0 END
    FROM {db}.cdc.change_tables AS ct
    LEFT JOIN {db}.sys.indexes AS i ON i.object_id = ct.source_object_id AND i.name = ct.index_name""",
)
"""Arguments of `sp_cdc_enable_table`. The primary key's index is its default; for a table without partitions, where
nothing can be switched, partition_switch is 0.
https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-change-tables-transact-sql"""

CAPTURED_COLUMNS = query(
    "captured_columns",
    "SELECT object_id, column_name, column_id FROM {db}.cdc.captured_columns ORDER BY object_id, column_ordinal",
)
"""The ordinal is the column's bit in the update mask.
https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-captured-columns-transact-sql"""

SWITCHABLE_TABLES = query(
    "switchable_tables",
    """SELECT DISTINCT s.name, t.name FROM {db}.cdc.change_tables AS ct
    JOIN {db}.sys.tables AS t ON t.object_id = ct.source_object_id
    JOIN {db}.sys.schemas AS s ON s.schema_id = t.schema_id
    WHERE ct.partition_switch = 1
    AND EXISTS (SELECT 1 FROM {db}.sys.partitions AS p WHERE p.object_id = t.object_id AND p.partition_number > 1)""",
)
"""Tables whose partitions may be switched in and out without a change row.
https://learn.microsoft.com/en-us/sql/relational-databases/system-stored-procedures/sys-sp-cdc-enable-table-transact-sql"""

OTHER_COLLATIONS = query(
    "other_collations",
    """SELECT DISTINCT s.name, t.name, c.name, c.collation_name, CAST(DATABASEPROPERTYEX(?, 'Collation') AS nvarchar(128))
    FROM {db}.cdc.captured_columns AS cc
    JOIN {db}.cdc.change_tables AS ct ON ct.object_id = cc.object_id
    JOIN {db}.sys.tables AS t ON t.object_id = ct.source_object_id
    JOIN {db}.sys.schemas AS s ON s.schema_id = t.schema_id
    JOIN {db}.sys.columns AS c ON c.object_id = t.object_id AND c.name = cc.column_name
    WHERE cc.column_type IN ('char', 'varchar', 'text')
    AND c.collation_name <> CAST(DATABASEPROPERTYEX(?, 'Collation') AS nvarchar(128))""",
)
"""Captured text columns whose code page may differ from the database's.
https://learn.microsoft.com/en-us/sql/relational-databases/track-changes/known-issues-and-errors-change-data-capture"""

DDL_HISTORY = query(
    "ddl_history",
    """SELECT ct.capture_instance, h.ddl_command FROM {db}.cdc.ddl_history AS h
    JOIN {db}.cdc.change_tables AS ct ON ct.object_id = h.object_id
    ORDER BY ct.capture_instance, h.ddl_lsn""",
)
"""Joined, because rows of a dropped instance can stay behind (spec sqlserver-cdc §1.4 no. 35).
https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-ddl-history-transact-sql"""

LOW_WATER_MARKS = query("low_water_marks", "SELECT capture_instance, start_lsn FROM {db}.cdc.change_tables")
"""The clean-up job moves start_lsn. `fn_cdc_get_min_lsn` gives zero for an unknown instance or a missing permission
and can lag early on (spec sqlserver-cdc §1.4 no. 3), so it is not used.
https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-change-tables-transact-sql"""

MAX_LSN = query("max_lsn", "SELECT {db}.sys.fn_cdc_get_max_lsn()")
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-functions/sys-fn-cdc-get-max-lsn-transact-sql"""

NEWEST_START = query("newest_start", "SELECT MAX(start_lsn) FROM {db}.cdc.change_tables")
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-change-tables-transact-sql"""

CAPTURED_BY = query(
    "captured_by",
    "SELECT {db}.sys.fn_cdc_get_max_lsn(), CONVERT(nvarchar(20), DATABASEPROPERTYEX(?, N'Updateability'))",
)
"""Both by one server.
https://learn.microsoft.com/en-us/sql/relational-databases/system-functions/sys-fn-cdc-get-max-lsn-transact-sql
https://learn.microsoft.com/en-us/sql/t-sql/functions/databasepropertyex-transact-sql"""

UPDATEABILITY = query("updateability", "SELECT CONVERT(nvarchar(20), DATABASEPROPERTYEX(?, N'Updateability'))")
"""READ_ONLY on a readable secondary replica.
https://learn.microsoft.com/en-us/sql/t-sql/functions/databasepropertyex-transact-sql"""

MAX_TRANSACTION = query(
    "max_transaction", "SELECT MAX(start_lsn) FROM {db}.cdc.lsn_time_mapping WHERE start_lsn > ? AND tran_id <> 0x00"
)
"""Rows with tran_id 0x00 are the capture job's own (spec sqlserver-cdc §1.4 no. 1).
https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-lsn-time-mapping-transact-sql"""

NTH_TRANSACTION = query(
    "nth_transaction",
    """SELECT MAX(start_lsn) FROM (SELECT TOP (?) start_lsn FROM {db}.cdc.lsn_time_mapping
    WHERE start_lsn > ? AND tran_id <> 0x00 ORDER BY start_lsn) AS next_lsns""",
)
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-lsn-time-mapping-transact-sql"""

TRANSACTIONS = query(
    "transactions",
    "SELECT COUNT_BIG(*) FROM {db}.cdc.lsn_time_mapping WHERE start_lsn > ? AND start_lsn <= ? AND tran_id <> 0x00",
)
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-lsn-time-mapping-transact-sql"""

AGENT = query(
    "agent",
    """SELECT CASE WHEN status = 4 THEN 1 ELSE 0 END FROM sys.dm_server_services
    WHERE servicename LIKE N'SQL Server Agent (%'""",
)
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-dynamic-management-views/sys-dm-server-services-transact-sql"""

CAPTURE_QUIET = query(
    "capture_quiet",
    """SELECT TOP (1) DATEDIFF(second, tran_end_time, SYSDATETIME()) FROM {db}.cdc.lsn_time_mapping
    WHERE tran_end_time IS NOT NULL ORDER BY start_lsn DESC""",
)
"""Both are server time without zone. After a clock was put forward, the job seems quiet until its next entry; after one was put
back, the newest entry lies in the future until then, and older ones for longer: so the newest by LSN is requested.
https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-lsn-time-mapping-transact-sql"""

CAPTURE_ERROR = query(
    "capture_error",
    """SELECT TOP (1) e.error_number, e.error_message FROM {db}.sys.dm_cdc_errors AS e
    JOIN (SELECT MAX(session_id) AS session_id FROM {db}.sys.dm_cdc_log_scan_sessions) AS s
    ON s.session_id = e.session_id ORDER BY e.entry_time DESC""",
)
"""Only of the newest scan: a failure of an older one was recovered.
https://learn.microsoft.com/en-us/sql/relational-databases/system-dynamic-management-views/change-data-capture-sys-dm-cdc-errors"""

EMPTY_SCANS = query(
    "empty_scans",
    """SELECT TOP (1) @@SERVERNAME, session_id, empty_scan_count FROM {db}.sys.dm_cdc_log_scan_sessions
    WHERE session_id > 0 AND DATABASEPROPERTYEX(?, N'Updateability') = N'READ_WRITE' ORDER BY session_id DESC""",
)
"""Session 0 sums up. A scan that finds nothing is counted in the session of the one before, if that found nothing either. A secondary
that was the primary once still shows the scans of that time, which say nothing of now. Each server counts sessions of its own from one.
https://learn.microsoft.com/en-us/sql/relational-databases/system-dynamic-management-views/change-data-capture-sys-dm-cdc-log-scan-sessions"""

JOBS = "/* cdc-assets: jobs */ EXEC {db}.sys.sp_cdc_help_jobs"
"""Capture job with its polling interval, clean-up job with its retention in minutes.
https://learn.microsoft.com/en-us/sql/relational-databases/system-stored-procedures/sys-sp-cdc-help-jobs-transact-sql"""


def row_counts(database: str, count: int) -> str:
    """Row counts of `count` tables, each given by its object id, from the server's metadata.

    sys.partitions needs only a permission on the table; sys.dm_db_partition_stats needs VIEW DATABASE STATE.
    https://learn.microsoft.com/en-us/sql/relational-databases/system-catalog-views/sys-partitions-transact-sql
    """
    marks = ", ".join("?" * count)
    text = f"""SELECT object_id, SUM(rows) FROM {{db}}.sys.partitions
    WHERE object_id IN ({marks}) AND index_id IN (0, 1) GROUP BY object_id"""
    return of_database(query("row_counts", text), database)


def descriptions(database: str, count: int) -> str:
    """Descriptions of `count` tables, each given by its object id, and of their columns; the table itself has the id 0.

    The catalogue shows those of tables on which the login has any permission. Values are sql_variant; whatever is no text
    that can be shown is NULL here.
    https://learn.microsoft.com/en-us/sql/relational-databases/system-catalog-views/extended-properties-catalog-views-sys-extended-properties
    """
    marks = ", ".join("?" * count)
    text = f"""SELECT major_id, minor_id, TRY_CONVERT(nvarchar(1000), value) FROM {{db}}.sys.extended_properties
    WHERE class = 1 AND name = N'MS_Description' AND major_id IN ({marks})"""
    return of_database(query("descriptions", text), database)


def commit_times(database: str, count: int) -> str:
    """End times of `count` commits, in server time without zone, and the server's current offset in minutes.

    https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-lsn-time-mapping-transact-sql
    """
    marks = ", ".join("?" * count)
    text = f"""SELECT start_lsn, tran_end_time, DATEPART(TZOFFSET, SYSDATETIMEOFFSET())
    FROM {{db}}.cdc.lsn_time_mapping WHERE start_lsn IN ({marks})"""
    return of_database(query("commit_times", text), database)


def times_before(database: str, count: int) -> str:
    """End times of the newest commits up to each of `count` LSNs, as `commit_times`.

    https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-lsn-time-mapping-transact-sql
    """
    part = """SELECT place.lsn, (SELECT TOP (1) tran_end_time FROM {db}.cdc.lsn_time_mapping
    WHERE start_lsn <= place.lsn ORDER BY start_lsn DESC), DATEPART(TZOFFSET, SYSDATETIMEOFFSET())
    FROM (VALUES """
    marks = ", ".join(["(CONVERT(binary(10), ?))"] * count)
    return of_database(query("times_before", f"{part}{marks}) AS place (lsn)"), database)


SET_BACK = query(
    "set_back",
    """SELECT TOP (1) 1 FROM {db}.cdc.lsn_time_mapping
    WHERE start_lsn > ? AND (tran_end_time < DATEADD(second, ?, (SELECT tran_end_time FROM {db}.cdc.lsn_time_mapping WHERE start_lsn = ?))
    OR tran_end_time > DATEADD(second, ?, GETDATE()))""",
)
"""Whether a later commit has an earlier time, or one that is still to come; by more than some seconds, the first of them negative.

https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-lsn-time-mapping-transact-sql
"""

COMMIT_TIME = query(
    "commit_time",
    """SELECT TOP (1) CONVERT(nvarchar(30), tran_end_time, 126) FROM {db}.cdc.lsn_time_mapping
    WHERE start_lsn <= ? ORDER BY start_lsn DESC""",
)
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-lsn-time-mapping-transact-sql"""

LSN_OF_TIME = query(
    "lsn_of_time", "SELECT {db}.sys.fn_cdc_map_time_to_lsn(N'largest less than or equal', CONVERT(datetime, ?, 126))"
)
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-functions/sys-fn-cdc-map-time-to-lsn-transact-sql"""


def union_all(parts: Sequence[str]) -> str:
    """The parts in order, bracketed as a balanced tree: parsers nest a plain chain as deep as it is long."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return f"({union_all(parts[:middle])}) UNION ALL ({union_all(parts[middle:])})"
