"""Checks what a capture needs from the server: expected value, actual value, and the exact T-SQL to fix it.

Nothing here changes the server. `inspect` never raises for a failed check, so that one call reports everything;
`ensure` raises for failed checks that would make a capture fail.
"""

from collections.abc import Iterable, Iterator, Sequence

from cdc_assets.adapters.sqlserver import change_queries, queries
from cdc_assets.adapters.sqlserver.rights import Rights, closed_database
from cdc_assets.adapters.sqlserver.rows import integer
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.config.filters import TableFilter
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.check_result import CheckResult
from cdc_assets.core.identifiers import TableId, quote
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.errors import CdcDisabledError, ConfigurationError, PreflightError, QueryError

MIN_RETENTION_MINUTES = 1440
"""One day; with a shorter retention an outage or a long snapshot may outlast the change tables."""
_AZURE_SQL_DATABASE = 5


def inspect(source: SqlServerSource, config: CaptureConfig) -> list[CheckResult]:
    """Check everything a capture needs.

    Raises:
        ConnectionLostError, LoginError: the server cannot be queried.
    """
    results = [CheckResult("server", config.connection.host, True, _version(source), "a server that answers")]
    for database in source.databases():
        results += _database(source, config, database)
    return results


def ensure(results: Iterable[CheckResult]) -> None:
    """Raise an error if a capture cannot work.

    Raises:
        PreflightError: names every blocking failed check with its remedy.
    """
    wrong = [str(result) for result in results if result.blocking and not result.ok]
    if wrong:
        raise PreflightError("The server is not ready:\n" + "\n".join(wrong))


def _version(source: SqlServerSource) -> str:
    return str(source.session.value(queries.VERSION)).splitlines()[0].strip()


def _database(source: SqlServerSource, config: CaptureConfig, database: str) -> Iterator[CheckResult]:
    problem = source.trouble(database)
    if problem is not None and not isinstance(problem, CdcDisabledError):
        remedy = str(problem).rpartition("Next: ")[2]
        yield CheckResult("database", database, False, str(problem), "online, and visible to the login", remedy)
        return
    closed = closed_database(source, database)
    if closed is not None:
        yield closed
        return
    [(_, cdc, snapshot_isolation, _)] = source.session.rows(queries.DATABASE, database)
    yield CheckResult(
        "change data capture",
        database,
        bool(cdc),
        _on(cdc),
        "on",
        "" if cdc else f"USE {quote(database)}; EXEC sys.sp_cdc_enable_db;",
        blocking=config.snapshot.mode != "initial_only",
    )
    if config.snapshot.isolation == "snapshot":
        allowed = integer(snapshot_isolation) == 1
        remedy = "" if allowed else f"ALTER DATABASE {quote(database)} SET ALLOW_SNAPSHOT_ISOLATION ON;"
        yield CheckResult("snapshot isolation", database, allowed, _on(allowed), "on", remedy)
    rights = Rights(source, database)
    instances: Sequence[CaptureInstance] = ()
    if cdc:
        yield from _agent(source, rights)
        yield from _jobs(source, database)
        if (unreadable := rights.unreadable_metadata()) is not None:
            yield unreadable
        else:
            yield from _progress(source, database)
            yield from rights.found(config)
            instances = source.capture_instances(database)
    yield from _tables(source, config, rights, instances)


def _on(value: object) -> str:
    return "on" if value else "off"


def _agent(source: SqlServerSource, rights: Rights) -> Iterator[CheckResult]:
    database = rights.database
    if integer(source.session.value(queries.EDITION) or 0) != _AZURE_SQL_DATABASE:
        running = source.agent_running(database)
        actual = {True: "running", False: "stopped", None: "not visible to this login"}[running]
        remedy = {
            True: "",
            False: "start the service SQL Server Agent; without it nothing is captured",
            None: f"{rights.grant_on_server('VIEW SERVER STATE')} or set database.sqlserver.agent.status.query",
        }[running]
        yield CheckResult("SQL Server Agent", database, running is True, actual, "running", remedy, blocking=False)


def _progress(source: SqlServerSource, database: str) -> Iterator[CheckResult]:
    scanned = source.max_captured_lsn(database)
    yield CheckResult(
        "capture progress",
        database,
        scanned is not None,
        str(scanned) if scanned else "none yet",
        "a maximum LSN",
        "" if scanned else f"USE {quote(database)}; EXEC sys.sp_cdc_start_job @job_type = N'capture';",
        blocking=False,
    )
    trouble = source.capture_job(database).trouble if scanned else ""
    said, _, remedy = trouble.partition(" Next: ")
    yield CheckResult("capture job", database, not trouble, said or "at work", "at work", remedy, blocking=False)


def _jobs(source: SqlServerSource, database: str) -> Iterator[CheckResult]:
    try:
        jobs = source.session.named_rows(queries.of_database(queries.JOBS, database))
    except (PreflightError, QueryError):
        yield CheckResult(
            "jobs",
            database,
            False,
            "not visible to the login",
            "visible",
            "seeing their settings needs db_owner; a capture does not need it",
            False,
        )
        return
    retention = next((integer(job["retention"]) for job in jobs if job["job_type"] == "cleanup"), None)
    if retention is None:
        remedy = f"USE {quote(database)}; EXEC sys.sp_cdc_add_job @job_type = N'cleanup';"
        yield CheckResult("clean-up job", database, False, "missing", "a job", remedy, blocking=False)
        return
    enough = retention >= MIN_RETENTION_MINUTES
    remedy = f"USE {quote(database)}; EXEC sys.sp_cdc_change_job @job_type = N'cleanup', @retention = 4320;"
    yield CheckResult(
        "retention",
        database,
        enough,
        f"{retention} minutes",
        f"at least {MIN_RETENTION_MINUTES} minutes",
        "" if enough else remedy,
        blocking=False,
    )


def _tables(
    source: SqlServerSource, config: CaptureConfig, rights: Rights, instances: Sequence[CaptureInstance]
) -> Iterator[CheckResult]:
    database = rights.database
    found, filters = source.user_tables(database), TableFilter(config.filters)
    try:
        tables = filters.require(found, guard_all=not config.history.only_captured_tables)
    except ConfigurationError as error:
        none = filters.is_empty(filters.select(found))
        may_come = none and not (instances and len(source.databases()) == 1)
        enable = f"create a table, if there is none, and enable it: {_enable(TableId(database, 'dbo', '<table>'))}"
        remedy = f"{error.hint.partition(';')[0]}; or {enable}" if none else error.hint
        yield CheckResult("table filters", database, False, error.expected, "matching", remedy, blocking=not may_come)
        return
    names = {instance.table: instance.name for instance in instances}
    for table in tables:
        captured = names.get(table)
        yield CheckResult(
            "capture instance",
            str(table),
            captured is not None,
            captured or "none",
            "one",
            "" if captured else _enable(table),
            blocking=False,
        )
        yield rights.reading(table.quoted)
        if captured:
            yield rights.reading(change_queries.change_table(database, captured))
    if instances:
        yield from _hazards(source, database, frozenset(tables))


def _hazards(source: SqlServerSource, database: str, tables: frozenset[TableId]) -> Iterator[CheckResult]:
    """Changes that change tables do not record, or record wrongly (spec sqlserver-cdc §1.4 no. 19 and 21); nothing if
    there are none."""
    session = source.session
    try:
        switchable = session.rows(queries.of_database(queries.SWITCHABLE_TABLES, database))
        collated = session.rows(queries.of_database(queries.OTHER_COLLATIONS, database), database, database)
    except (PreflightError, QueryError):
        return  # a login with minimal rights
    for schema, name in switchable:
        table = TableId(database, str(schema), str(name))
        if table in tables:
            remedy = "materialize its snapshot after each SWITCH, or enable the table with @allow_partition_switch = 0"
            expected = "refused, because switched partitions have no change rows"
            yield CheckResult("partition switch", str(table), False, "allowed", expected, remedy, blocking=False)
    for schema, name, column, collation, common in collated:
        table = TableId(database, str(schema), str(name))
        if table in tables:
            yield CheckResult(
                "collation",
                f"{table}.{column}",
                False,
                str(collation),
                f"the database's, {common}",
                "compare non-ASCII values with the table's, or make the column nvarchar",
                blocking=False,
            )


def _enable(table: TableId) -> str:
    return (
        f"USE {quote(table.database)}; EXEC sys.sp_cdc_enable_table @source_schema = {_literal(table.schema)}, "
        f"@source_name = {_literal(table.table)}, @role_name = NULL;"
    )


def _literal(text: str) -> str:
    return "N'" + text.replace("'", "''") + "'"
