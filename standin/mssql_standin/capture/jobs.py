"""Capture and clean-up jobs: `msdb.dbo.cdc_jobs` and its procedures.

The table exists while some database is enabled, as on a real server. Stopping the capture
job stops the Agent's work for that database; intervals are kept and reported, while the pace
of capture is the Agent's `latency_s`.
"""

import uuid
from typing import Final

from mssql_standin.capture import tables
from mssql_standin.capture.arguments import Arguments
from mssql_standin.capture.cleanup import clean_by_age
from mssql_standin.capture.hooks import agent
from mssql_standin.capture.messages import error
from mssql_standin.capture.times import to_stored
from mssql_standin.catalog import Database, Table
from mssql_standin.contract import Parameter, ProcedureContext, ResultColumn
from mssql_standin.errors import SqlError
from mssql_standin.sqltypes import SYSNAME, Value, guid_to_stored, parse_type

_OPTIONS: Final = ("maxtrans", "maxscans", "continuous", "pollinginterval", "retention", "threshold")
_CAPTURE: Final[dict[str, Value]] = {
    "maxtrans": 500,
    "maxscans": 10,
    "continuous": 1,
    "pollinginterval": 5,
    "retention": 0,
    "threshold": 0,
}
_CLEANUP: Final[dict[str, Value]] = {
    "maxtrans": 0,
    "maxscans": 0,
    "continuous": 0,
    "pollinginterval": 0,
    "retention": 4320,
    "threshold": 5000,
}
_LONGEST_RETENTION: Final = 52_594_800


def create_missing(context: ProcedureContext, database: Database) -> None:
    """The first captured table of a database brings both jobs."""
    table = _table(context, create=True)
    if table is None:
        return
    for kind, values in (("capture", _CAPTURE), ("cleanup", _CLEANUP)):
        if not tables.select(
            context.connection, table, ("job_id",), "{database_id} = ? AND {job_type} = ?", (database.database_id, kind)
        ):
            _add(context, table, database, kind, values, start=True)
            context.sink.message(SqlError(0, _started(context, database, kind), 0))


def _started(context: ProcedureContext, database: Database, kind: str) -> str:
    if agent(context).running:
        return f"Job 'cdc.{database.name}_{kind}' started successfully."
    return "SQLServerAgent is not currently running so it cannot be notified of this action."


def drop_all(context: ProcedureContext, database: Database) -> None:
    """The database's jobs go; with the last one the table."""
    table = _table(context)
    if table is None:
        return
    tables.change(context.connection, table, "DELETE FROM {table} WHERE {database_id} = ?", (database.database_id,))
    if not tables.select(context.connection, table, ("job_id",)):
        context.drop_table(table)


def _table(context: ProcedureContext, create: bool = False) -> Table | None:
    msdb = context.catalog.database("msdb")
    if msdb is None:
        return None
    table = msdb.table("dbo", "cdc_jobs")
    if table is None and create:
        table = tables.jobs_table(context.catalog, msdb, context.clock.local())
        context.create_table(table)
    return table


def _add(
    context: ProcedureContext, table: Table, database: Database, kind: str, values: dict[str, Value], start: bool
) -> None:
    job = guid_to_stored(uuid.uuid4().bytes_le)
    tables.insert(context.connection, table, [(database.database_id, kind, job, *(values[name] for name in _OPTIONS))])
    if kind == "capture":
        agent(context).add_job(database.database_id)
        if start:
            agent(context).start_job(database.database_id)


_HELP: Final = (
    ResultColumn("job_id", parse_type("uniqueidentifier")),
    ResultColumn("job_type", parse_type("nvarchar(20)")),
    ResultColumn("job_name", SYSNAME),
    *(
        ResultColumn(name, parse_type(kind))
        for name, kind in zip(_OPTIONS, ("int", "int", "bit", "bigint", "bigint", "bigint"), strict=True)
    ),
)


def help_jobs(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """`sys.sp_cdc_help_jobs`: one row per job of the database."""
    Arguments("sp_cdc_help_jobs", (), given)
    database = tables.require_database(context.catalog, context.procedure_database)
    table = _table(context)
    rows = [] if table is None else tables.select(
        context.connection, table, ("job_id", "job_type", *_OPTIONS), "{database_id} = ? ORDER BY {job_type}", (database.database_id,)
    )  # fmt: skip
    context.send(_HELP, [(job, kind, f"cdc.{database.name}_{kind!s}", *rest) for job, kind, *rest in rows])
    return 0


def add_job(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """`sys.sp_cdc_add_job`.

    Raises:
        SqlError: 22992, 22995, 22996 and range errors; 14261 when the job exists.
    """
    names = (
        "job_type",
        "start_job",
        "maxtrans",
        "maxscans",
        "continuous",
        "pollinginterval",
        "retention",
        "threshold",
        "check_for_logreader",
    )
    arguments = Arguments("sp_cdc_add_job", names, given)
    database = tables.require_database(context.catalog, context.procedure_database)
    kind = _kind(arguments, None)
    changes = _changes(arguments, kind)
    context.edit()
    table = _table(context, create=True)
    if table is None:
        raise SqlError(
            22993,
            f"The Change Data Capture job table containing job information for database '{database.name}' cannot be found in the msdb system database. Run the stored procedure 'sys.sp_cdc_add_job' to create the appropriate CDC capture or cleanup job. The stored procedure will create the required job table.",
        )
    if _exists(context, table, database, kind):
        raise error(14261, "@job_name", f"cdc.{database.name}_{kind}")
    values = {**(_CAPTURE if kind == "capture" else _CLEANUP), **changes}
    _add(context, table, database, kind, values, start=bool(arguments.number("start_job", 1)))
    return 0


def drop_job(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """`sys.sp_cdc_drop_job`: without its job a database is not captured."""
    arguments = Arguments("sp_cdc_drop_job", ("job_type",), given)
    database, table, kind = _job(context, arguments, None)
    context.edit()
    tables.change(
        context.connection,
        table,
        "DELETE FROM {table} WHERE {database_id} = ? AND {job_type} = ?",
        (database.database_id, kind),
    )
    if kind == "capture":
        agent(context).drop_job(database.database_id)
    return 0


def change_job(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """`sys.sp_cdc_change_job`."""
    arguments = Arguments("sp_cdc_change_job", ("job_type", *_OPTIONS), given)
    database, table, kind = _job(context, arguments, "capture")
    changes = _changes(arguments, kind)
    context.edit()
    for name, value in changes.items():
        statement = f"UPDATE {{table}} SET {{{name}}} = ? WHERE {{database_id}} = ? AND {{job_type}} = ?"
        tables.change(context.connection, table, statement, (value, database.database_id, kind))
    return 0


def start_job(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """`sys.sp_cdc_start_job`."""
    arguments = Arguments("sp_cdc_start_job", ("job_type",), given)
    database, _, kind = _job(context, arguments, "capture")
    if kind == "capture":
        if not agent(context).running:
            raise SqlError(22022, _started(context, database, kind))
        if agent(context).job_runs(database.database_id):
            raise _refused(context, f"cdc.{database.name}_{kind}", "run", "already running from a request by User sa")
        agent(context).start_job(database.database_id)
    else:
        _clean(context, database)
    context.sink.message(SqlError(0, f"Job 'cdc.{database.name}_{kind}' started successfully.", 0))
    return 0


def _refused(context: ProcedureContext, job: str, what: str, why: str) -> SqlError:
    """The Agent's refusal to start or stop a job."""
    user = getattr(getattr(context, "login", None), "user", "sa")
    return error(22022, what, job, user, why)


def _clean(context: ProcedureContext, database: Database) -> None:
    """One run of the clean-up job."""
    table = _table(context)
    if table is None:
        return
    values = (database.database_id, "cleanup")
    rows = tables.select(context.connection, table, ("retention",), "{database_id} = ? AND {job_type} = ?", values)
    minutes = tables.integer(rows[0][0])
    catalog = context.edit()
    before = to_stored(context.clock.local()) - minutes * 60 * 300
    clean_by_age(context.connection, catalog, database.name, before)


def stop_job(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """`sys.sp_cdc_stop_job`."""
    arguments = Arguments("sp_cdc_stop_job", ("job_type",), given)
    database, _, kind = _job(context, arguments, "capture")
    if kind == "cleanup" or not agent(context).job_runs(database.database_id):  # a clean-up is over when it is seen
        raise _refused(context, f"cdc.{database.name}_{kind}", "stop", "not currently running")
    agent(context).stop_job(database.database_id)
    context.sink.message(SqlError(0, f"Job 'cdc.{database.name}_{kind}' stopped successfully.", 0))
    return 0


def _job(context: ProcedureContext, arguments: Arguments, default: str | None) -> tuple[Database, Table, str]:
    database = tables.require_database(context.catalog, context.procedure_database)
    kind, table = _kind(arguments, default), _table(context)
    if table is None or not _exists(context, table, database, kind):
        raise error(22997, kind)
    return database, table, kind


def _exists(context: ProcedureContext, table: Table, database: Database, kind: str) -> bool:
    values = (database.database_id, kind)
    return bool(tables.select(context.connection, table, ("job_id",), "{database_id} = ? AND {job_type} = ?", values))


def _kind(arguments: Arguments, default: str | None) -> str:
    kind = (arguments.text("job_type") or default or "").lower()
    if kind not in ("capture", "cleanup"):
        raise error(22992, kind)
    return kind


def _changes(arguments: Arguments, kind: str) -> dict[str, Value]:
    """Given options, checked against the kind of job and their ranges."""
    found = {name: arguments.number(name) for name in _OPTIONS if arguments.number(name) is not None}
    if kind == "capture" and ("retention" in found or "threshold" in found):
        raise error(22995)
    if kind == "cleanup" and found.keys() & {"maxtrans", "maxscans", "continuous", "pollinginterval"}:
        raise error(22996)
    limits = {"maxtrans": (22991, 1, 2**31), "maxscans": (22970, 1, 2**31), "continuous": (22998, 0, 1),
              "pollinginterval": (22990, 0, 86_399), "retention": (22994, 1, _LONGEST_RETENTION), "threshold": (22850, 1, 2**63)}  # fmt: skip
    for name, (number, low, high) in limits.items():
        value = found.get(name)
        if value is not None and not low <= value <= high:
            raise error(number)
    return dict(found)
