"""All T-SQL texts of the control plane, each with its name and its page of Microsoft's documentation.

Each begins with a comment that names cdc-assets, so that a DBA can identify it in a trace. `of_database` replaces
`{db}` by the quoted database; other names are quoted by `core.identifiers.quote`; values are parameters.
"""

from collections.abc import Sequence

from cdc_assets.core.identifiers import quote

_TAG = "/* cdc-assets: {name} */ "


def _query(name: str, text: str) -> str:
    return _TAG.format(name=name) + " ".join(text.split())


def of_database(template: str, database: str) -> str:
    """The statement for one database."""
    return template.replace("{db}", quote(database))


PING = _query("ping", "SELECT 1")

VERSION = _query("version", "SELECT @@VERSION")
"""https://learn.microsoft.com/en-us/sql/t-sql/functions/version-transact-sql-configuration-functions"""

EDITION = _query("edition", "SELECT CAST(SERVERPROPERTY('EngineEdition') AS int)")
"""5 means Azure SQL Database, which has no Agent.
https://learn.microsoft.com/en-us/sql/t-sql/functions/serverproperty-transact-sql"""

SERVER_TIME = _query("server_time", "SELECT CONVERT(nvarchar(34), SYSDATETIMEOFFSET(), 126)")
"""Read as text, because pyodbc has no type for datetimeoffset.
https://learn.microsoft.com/en-us/sql/t-sql/functions/sysdatetimeoffset-transact-sql"""

DATABASE = _query(
    "database", "SELECT name, is_cdc_enabled, snapshot_isolation_state, state_desc FROM sys.databases WHERE name = ?"
)
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-catalog-views/sys-databases-transact-sql"""

DATABASE_ACCESS = _query("database_access", "SELECT HAS_DBACCESS(?)")
"""https://learn.microsoft.com/en-us/sql/t-sql/functions/has-dbaccess-transact-sql"""

LOGIN = _query("login", "SELECT SUSER_SNAME()")
"""https://learn.microsoft.com/en-us/sql/t-sql/functions/suser-sname-transact-sql"""

OWN_USER = _query("own_user", "SELECT name FROM {db}.sys.database_principals WHERE sid = SUSER_SID()")
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-catalog-views/sys-database-principals-transact-sql"""

PERMISSION = _query("permission", "SELECT HAS_PERMS_BY_NAME(?, ?, ?)")
"""https://learn.microsoft.com/en-us/sql/t-sql/functions/has-perms-by-name-transact-sql"""

UNSEEN_SOURCES = _query(
    "unseen_sources",
    """SELECT ct.capture_instance FROM {db}.cdc.change_tables AS ct
    WHERE OBJECT_NAME(ct.source_object_id, DB_ID(?)) IS NULL ORDER BY ct.capture_instance""",
)
"""The catalogue hides tables on which the login has no permission.
https://learn.microsoft.com/en-us/sql/relational-databases/security/metadata-visibility-configuration"""

UNSEEN_DEFAULTS = _query(
    "unseen_defaults",
    """SELECT DISTINCT s.name, t.name FROM {db}.sys.default_constraints AS d
    JOIN {db}.sys.tables AS t ON t.object_id = d.parent_object_id
    JOIN {db}.sys.schemas AS s ON s.schema_id = t.schema_id
    JOIN {db}.cdc.change_tables AS ct ON ct.source_object_id = t.object_id WHERE d.definition IS NULL""",
)
"""Definitions are visible only with VIEW DEFINITION.
https://learn.microsoft.com/en-us/sql/relational-databases/security/metadata-visibility-configuration"""

MIN_LSN = _query("min_lsn", "SELECT {db}.sys.fn_cdc_get_min_lsn(?)")
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-functions/sys-fn-cdc-get-min-lsn-transact-sql"""

RECOVERY_FORK = _query(
    "recovery_fork",
    """SELECT CONVERT(nvarchar(36), recovery_fork_guid), fork_point_lsn FROM sys.database_recovery_status
    WHERE database_id = DB_ID(?)""",
)
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-catalog-views/sys-database-recovery-status-transact-sql"""

USER_TABLES = _query(
    "user_tables",
    """SELECT s.name, t.name FROM {db}.sys.tables AS t JOIN {db}.sys.schemas AS s ON s.schema_id = t.schema_id
    WHERE t.is_ms_shipped = 0 AND s.name NOT IN (N'cdc', N'sys') ORDER BY s.name, t.name""",
)
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-catalog-views/sys-tables-transact-sql"""


def columns(database: str, count: int) -> str:
    """Columns of `count` tables, each given by schema and name; the first columns of the result are the table's actual
    schema and name.

    An alias type's row in sys.types has its own user_type_id; the base type is the row whose user_type_id is the
    column's system_type_id. CLR types have no such row and keep their own name.
    https://learn.microsoft.com/en-us/sql/relational-databases/system-catalog-views/sys-columns-transact-sql
    """
    chosen = " OR ".join(["(s.name = ? AND t.name = ?)"] * count)
    return of_database(
        _query(
            "columns",
            f"""SELECT s.name, t.name, t.object_id, c.column_id, c.name, COALESCE(b.name, y.name), y.name, c.max_length,
            c.precision, c.scale, c.is_nullable, c.is_identity, c.is_computed, d.definition, c.collation_name
            FROM {{db}}.sys.tables AS t
            JOIN {{db}}.sys.schemas AS s ON s.schema_id = t.schema_id
            JOIN {{db}}.sys.columns AS c ON c.object_id = t.object_id
            JOIN {{db}}.sys.types AS y ON y.user_type_id = c.user_type_id
            LEFT JOIN {{db}}.sys.types AS b ON b.user_type_id = c.system_type_id
            LEFT JOIN {{db}}.sys.default_constraints AS d ON d.object_id = c.default_object_id
            WHERE {chosen} ORDER BY t.object_id, c.column_id""",  # noqa: S608 - marks only
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
        _query(
            "keys",
            f"""SELECT i.object_id, i.index_id, c.name FROM {{db}}.sys.indexes AS i
            JOIN {{db}}.sys.index_columns AS ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
            JOIN {{db}}.sys.columns AS c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
            WHERE i.object_id IN ({marks}) AND i.is_unique = 1 AND i.is_disabled = 0 AND i.has_filter = 0
            AND ic.key_ordinal > 0
            ORDER BY i.object_id, i.is_primary_key DESC, i.type, i.name, ic.key_ordinal""",  # noqa: S608 - marks only
        ),
        database,
    )


CHANGE_TABLES = _query(
    "change_tables",
    """SELECT ct.object_id, ct.source_object_id, OBJECT_SCHEMA_NAME(ct.source_object_id, DB_ID(?)),
    OBJECT_NAME(ct.source_object_id, DB_ID(?)), ct.capture_instance, ct.start_lsn, ct.create_date,
    (SELECT MAX(h.ddl_lsn) FROM {db}.cdc.ddl_history AS h WHERE h.object_id = ct.object_id)
    FROM {db}.cdc.change_tables AS ct""",
)
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-change-tables-transact-sql"""

INSTANCE_OPTIONS = _query(
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

CAPTURED_COLUMNS = _query(
    "captured_columns",
    "SELECT object_id, column_name, column_id FROM {db}.cdc.captured_columns ORDER BY object_id, column_ordinal",
)
"""The ordinal is the column's bit in the update mask.
https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-captured-columns-transact-sql"""

SWITCHABLE_TABLES = _query(
    "switchable_tables",
    """SELECT DISTINCT s.name, t.name FROM {db}.cdc.change_tables AS ct
    JOIN {db}.sys.tables AS t ON t.object_id = ct.source_object_id
    JOIN {db}.sys.schemas AS s ON s.schema_id = t.schema_id
    WHERE ct.partition_switch = 1
    AND EXISTS (SELECT 1 FROM {db}.sys.partitions AS p WHERE p.object_id = t.object_id AND p.partition_number > 1)""",
)
"""Tables whose partitions may be switched in and out without a change row.
https://learn.microsoft.com/en-us/sql/relational-databases/system-stored-procedures/sys-sp-cdc-enable-table-transact-sql"""

OTHER_COLLATIONS = _query(
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

DDL_HISTORY = _query(
    "ddl_history",
    """SELECT ct.capture_instance, h.ddl_command FROM {db}.cdc.ddl_history AS h
    JOIN {db}.cdc.change_tables AS ct ON ct.object_id = h.object_id
    ORDER BY ct.capture_instance, h.ddl_lsn""",
)
"""Joined, because rows of a dropped instance can stay behind (spec sqlserver-cdc §1.4 no. 35).
https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-ddl-history-transact-sql"""

LOW_WATER_MARKS = _query("low_water_marks", "SELECT capture_instance, start_lsn FROM {db}.cdc.change_tables")
"""The clean-up job moves start_lsn. `fn_cdc_get_min_lsn` gives zero for an unknown instance or a missing permission
and can lag early on (spec sqlserver-cdc §1.4 no. 3), so it is not used.
https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-change-tables-transact-sql"""

MAX_LSN = _query("max_lsn", "SELECT {db}.sys.fn_cdc_get_max_lsn()")
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-functions/sys-fn-cdc-get-max-lsn-transact-sql"""

MAX_TRANSACTION = _query(
    "max_transaction", "SELECT MAX(start_lsn) FROM {db}.cdc.lsn_time_mapping WHERE start_lsn > ? AND tran_id <> 0x00"
)
"""Rows with tran_id 0x00 are the capture job's own (spec sqlserver-cdc §1.4 no. 1).
https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-lsn-time-mapping-transact-sql"""

NTH_TRANSACTION = _query(
    "nth_transaction",
    """SELECT MAX(start_lsn) FROM (SELECT TOP (?) start_lsn FROM {db}.cdc.lsn_time_mapping
    WHERE start_lsn > ? AND tran_id <> 0x00 ORDER BY start_lsn) AS next_lsns""",
)
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-lsn-time-mapping-transact-sql"""

AGENT = _query(
    "agent",
    """SELECT CASE WHEN status = 4 THEN 1 ELSE 0 END FROM sys.dm_server_services
    WHERE servicename LIKE N'SQL Server Agent (%'""",
)
"""https://learn.microsoft.com/en-us/sql/relational-databases/system-dynamic-management-views/sys-dm-server-services-transact-sql"""

CAPTURE_QUIET = _query(
    "capture_quiet", "SELECT DATEDIFF(second, MAX(tran_end_time), SYSDATETIME()) FROM {db}.cdc.lsn_time_mapping"
)
"""Both are server time without zone. After a clock was put forward, the job seems quiet until its next entry.
https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-lsn-time-mapping-transact-sql"""

CAPTURE_ERROR = _query(
    "capture_error",
    """SELECT TOP (1) e.error_number, e.error_message FROM {db}.sys.dm_cdc_errors AS e
    JOIN (SELECT MAX(session_id) AS session_id FROM {db}.sys.dm_cdc_log_scan_sessions) AS s
    ON s.session_id = e.session_id ORDER BY e.entry_time DESC""",
)
"""Only of the newest scan: a failure of an older one was recovered.
https://learn.microsoft.com/en-us/sql/relational-databases/system-dynamic-management-views/change-data-capture-sys-dm-cdc-errors"""

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
    WHERE object_id IN ({marks}) AND index_id IN (0, 1) GROUP BY object_id"""  # noqa: S608 - question marks only
    return of_database(_query("row_counts", text), database)


def commit_times(database: str, count: int) -> str:
    """End times of `count` commits, in server time without zone, and the server's current offset in minutes.

    https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-lsn-time-mapping-transact-sql
    """
    marks = ", ".join("?" * count)
    text = f"""SELECT start_lsn, tran_end_time, DATEPART(TZOFFSET, SYSDATETIMEOFFSET())
    FROM {{db}}.cdc.lsn_time_mapping WHERE start_lsn IN ({marks})"""  # noqa: S608 - question marks only
    return of_database(_query("commit_times", text), database)


def change_table(database: str, instance: str) -> str:
    """Quoted name of an instance's change table.

    https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-capture-instance-ct-transact-sql
    """
    return f"{quote(database)}.cdc.{quote(f'{instance}_CT')}"


def probes(database: str, instances: Sequence[str]) -> str:
    """Indexes, from 0, of the instances that have change rows in (?, ?]; two parameters each, in order."""
    parts = [
        f"SELECT {index} AS place WHERE EXISTS (SELECT 1 FROM {change_table(database, instance)} "  # noqa: S608
        "WHERE [__$start_lsn] > ? AND [__$start_lsn] <= ?)"
        for index, instance in enumerate(instances)
    ]
    return f"{_TAG.format(name='probes')}SELECT place FROM ({_union_all(parts)}) AS u"  # noqa: S608


def null_probes(database: str, instance: str, columns: Sequence[str]) -> str:
    """Indexes, from 0, of the captured columns that are NULL in a change row after (?); one parameter each, in
    order."""
    table = change_table(database, instance)
    parts = [
        f"SELECT {index} AS place WHERE EXISTS (SELECT 1 FROM {table} WHERE [__$start_lsn] > ? AND {quote(column)} IS NULL)"  # noqa: S608
        for index, column in enumerate(columns)
    ]
    return f"{_TAG.format(name='null_probes')}SELECT place FROM ({_union_all(parts)}) AS u"  # noqa: S608


def rows_per_commit(database: str, instances: Sequence[str]) -> str:
    """Change rows of all instances per commit LSN in (?, ?]; two parameters each, in order."""
    parts = [
        f"SELECT [__$start_lsn] AS lsn, COUNT_BIG(*) AS n FROM {change_table(database, instance)} "  # noqa: S608
        "WHERE [__$start_lsn] > ? AND [__$start_lsn] <= ? GROUP BY [__$start_lsn]"
        for instance in instances
    ]
    union = _union_all(parts)
    return f"{_TAG.format(name='rows_per_commit')}SELECT lsn, SUM(n) FROM ({union}) AS u GROUP BY lsn ORDER BY lsn"  # noqa: S608


def rows_in_commit(database: str, instances: Sequence[str]) -> str:
    """Indexes, from 0, of the instances, with the number of their change rows of commit LSN ?; one parameter each, in
    order."""
    parts = [
        f"SELECT {index} AS place, COUNT_BIG(*) AS n FROM {change_table(database, instance)} WHERE [__$start_lsn] = ?"  # noqa: S608
        for index, instance in enumerate(instances)
    ]
    return f"{_TAG.format(name='rows_in_commit')}SELECT place, n FROM ({_union_all(parts)}) AS u"  # noqa: S608


def position_in_commit(database: str, instance: str, condition: str) -> str:
    """Command id and change LSN of the change row that follows a given number of rows (last parameter) in a commit.

    One seek in the clustered index and a scan from there, without sorting. Parameters: the commit LSN, those of the
    condition, and the number of rows to skip.
    https://learn.microsoft.com/en-us/sql/t-sql/queries/select-order-by-clause-transact-sql
    """
    return (
        f"{_TAG.format(name='position_in_commit')}SELECT [__$command_id], [__$seqval] "  # noqa: S608
        f"FROM {change_table(database, instance)} WHERE [__$start_lsn] = ?{condition} "
        "ORDER BY [__$start_lsn], [__$command_id], [__$seqval], [__$operation] OFFSET ? ROWS FETCH NEXT 1 ROWS ONLY"
    )


def rows_behind(database: str, instance: str) -> str:
    """Number of change rows of a commit LSN and command id after a change LSN; three parameters."""
    return (
        f"{_TAG.format(name='rows_behind')}SELECT COUNT_BIG(*) FROM {change_table(database, instance)} "  # noqa: S608
        "WHERE [__$start_lsn] = ? AND [__$command_id] = ? AND [__$seqval] > ?"
    )


def _union_all(parts: Sequence[str]) -> str:
    """The parts in order, bracketed as a balanced tree: parsers nest a plain chain as deep as it is long."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return f"({_union_all(parts[:middle])}) UNION ALL ({_union_all(parts[middle:])})"


_UNLOCKED = "WITH (NOLOCK)"
"""Hint of statements that look for range bounds: any value is good, even one that is rolled back later, and no row lock
is needed. https://learn.microsoft.com/en-us/sql/t-sql/queries/hints-transact-sql-table"""


def extremes(keys: Sequence[tuple[str, str]]) -> str:
    """Index, least and greatest value of integer columns, each given by quoted table and column."""
    parts = [
        f"SELECT {index} AS i, CAST(MIN({column}) AS bigint) AS low, CAST(MAX({column}) AS bigint) AS high "  # noqa: S608
        f"FROM {table} {_UNLOCKED}"
        for index, (table, column) in enumerate(keys)
    ]
    return f"{_TAG.format(name='extremes')}{_union_all(parts)}"


def key_at(table: str, column: str, shown: str, low: str | None) -> str:
    """The key a given number of rows (last parameter) after a bound (first parameter, if there is one), as text.

    One index seek and a short scan.
    https://learn.microsoft.com/en-us/sql/t-sql/queries/select-order-by-clause-transact-sql
    """
    condition = f"{column} >= {low}" if low else f"{column} IS NOT NULL"
    inner = (
        f"SELECT {column} AS k FROM {table} {_UNLOCKED} WHERE {condition} "  # noqa: S608
        f"ORDER BY {column} OFFSET ? ROWS FETCH NEXT 1 ROWS ONLY"
    )
    return f"{_TAG.format(name='key_at')}SELECT {shown} FROM ({inner}) AS s"  # noqa: S608


def key_after(table: str, column: str, shown: str, low: str) -> str:
    """The least key greater than a bound (parameter), as text."""
    inner = f"SELECT MIN({column}) AS k FROM {table} {_UNLOCKED} WHERE {column} > {low}"  # noqa: S608
    return f"{_TAG.format(name='key_after')}SELECT {shown} FROM ({inner}) AS s"  # noqa: S608


_LEVELS = {
    "read_uncommitted": "READ UNCOMMITTED",
    "read_committed": "READ COMMITTED",
    "repeatable_read": "REPEATABLE READ",
    "exclusive": "READ COMMITTED",  # another session holds the lock against writers
    "snapshot": "SNAPSHOT",
}


def isolation_level(mode: str) -> str:
    """Sets the session's isolation level.

    https://learn.microsoft.com/en-us/sql/t-sql/statements/set-transaction-isolation-level-transact-sql
    """
    return f"SET TRANSACTION ISOLATION LEVEL {_LEVELS[mode]}"


YIELD_IN_DEADLOCK = _query("yield_in_deadlock", "SET DEADLOCK_PRIORITY LOW")
"""https://learn.microsoft.com/en-us/sql/t-sql/statements/set-deadlock-priority-transact-sql"""


def lock_timeout(milliseconds: int) -> str:
    """Sets the maximum wait of a session's statements for a lock; 0 not at all, -1 for ever.

    https://learn.microsoft.com/en-us/sql/t-sql/statements/set-lock-timeout-transact-sql
    """
    return f"SET LOCK_TIMEOUT {milliseconds:d}"


def shared_lock(table: str) -> str:
    """Locks a quoted table against writers until the transaction ends.

    https://learn.microsoft.com/en-us/sql/t-sql/queries/hints-transact-sql-table
    """
    return f"{_TAG.format(name='shared_lock')}SELECT TOP (1) 1 AS one FROM {table} WITH (TABLOCK, HOLDLOCK)"  # noqa: S608


def one_of(table: str) -> str:
    """Reads a row of a quoted table, which fixes the moment of a SNAPSHOT transaction.

    https://learn.microsoft.com/en-us/sql/t-sql/statements/set-transaction-isolation-level-transact-sql
    """
    return f"{_TAG.format(name='one_of')}SELECT TOP (1) 1 AS one FROM {table}"  # noqa: S608


def access_check_query(table: str) -> str:
    """Checks that a quoted table may be read, without reading a row."""
    return f"{_TAG.format(name='access_check_query')}SELECT TOP (0) 1 AS one FROM {table}"  # noqa: S608
