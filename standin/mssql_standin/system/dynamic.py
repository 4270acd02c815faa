"""Dynamic management views: capture, transactions, sessions, availability groups."""

import time
from datetime import timedelta
from typing import Final

from mssql_standin.capture import lsn
from mssql_standin.capture.hooks import agent
from mssql_standin.capture.sessions import EMPTY_LSN, ScanSession
from mssql_standin.catalog import Database
from mssql_standin.contract import ISOLATION, SessionContext
from mssql_standin.sqltypes import SqlType, Value, decimal_to_stored
from mssql_standin.system.describe import stored_datetime
from mssql_standin.system.view import Rows, view


@view(
    "sys.dm_cdc_log_scan_sessions",
    "session_id int!, start_time datetime, end_time datetime, duration int, scan_phase nvarchar(200), error_count int, "
    "start_lsn nvarchar(23), current_lsn nvarchar(23), end_lsn nvarchar(23), tran_count bigint, last_commit_lsn nvarchar(23), "
    "last_commit_time datetime, log_record_count bigint, schema_change_count bigint, command_count bigint, "
    "first_begin_cdc_lsn nvarchar(23), last_commit_cdc_lsn nvarchar(23), last_commit_cdc_time datetime, latency int, "
    "empty_scan_count int, failed_sessions_count int",
)
def log_scan_sessions(context: SessionContext, database: Database) -> Rows:
    """Session 0 sums up, then the newest scans; a running, synchronous job has always just scanned and found nothing."""
    if not database.cdc_enabled:
        return
    agent(context).look(context.connection, database.database_id)
    sessions = agent(context).history(database.database_id).sessions()
    if sessions:
        yield _sum(sessions)
    for session in sessions:
        yield _session(session)


def _session(session: ScanSession) -> tuple[Value, ...]:
    last, when = session.end_lsn, session.last_commit_time
    seconds = (session.ended - session.started) // 300
    latency = max(session.ended - when, 0) // 300 if when is not None else 0
    phase = "Error" if session.errors else "Done"
    return (
        session.session_id, session.started, session.ended, seconds, phase, session.errors, session.start_lsn,
        last, last, session.transactions, last, when, session.changes + 2 * session.transactions, 0, session.changes,
        session.start_lsn, last, when, latency, session.empty, 0,
    )  # fmt: skip


def _sum(sessions: list[ScanSession]) -> tuple[Value, ...]:
    total = ScanSession(0, sessions[0].started, sessions[-1].ended)
    for session in sessions:
        total.first, total.last = total.first or session.first, session.last or total.last
        total.last_commit_time = session.last_commit_time or total.last_commit_time
        total.transactions += session.transactions
        total.changes += session.changes
        total.empty += session.empty
        total.errors += session.errors
    failed = sum(1 for session in sessions if session.errors)
    return (*_session(total)[:-1], failed)


@view(
    "sys.dm_cdc_errors",
    "session_id int!, phase_number int, entry_time datetime, error_number int, error_severity int, error_state int, "
    "error_message nvarchar(1024), start_lsn nvarchar(23), begin_lsn nvarchar(23), sequence_value nvarchar(23)",
)
def cdc_errors(context: SessionContext, database: Database) -> Rows:
    """Failed scans."""
    for found in agent(context).history(database.database_id).errors():
        error = found.error
        yield (
            found.session_id, 7, found.entered, error.number, error.severity, error.state, error.message[:1024],
            EMPTY_LSN[:22], EMPTY_LSN[:22], EMPTY_LSN[:22],
        )  # fmt: skip


_TRANSACTION: Final = (
    "transaction_id bigint!, database_id int!, database_transaction_begin_time datetime, database_transaction_type int!, "
    "database_transaction_state int!, database_transaction_status int!, database_transaction_status2 int!, "
    "database_transaction_log_record_count bigint!, database_transaction_replicate_record_count int!, "
    "database_transaction_log_bytes_used bigint!, database_transaction_log_bytes_reserved bigint!, "
    "database_transaction_log_bytes_used_system int!, database_transaction_log_bytes_reserved_system int!, "
    "database_transaction_begin_lsn numeric(25,0), database_transaction_last_lsn numeric(25,0), "
    "database_transaction_most_recent_savepoint_lsn numeric(25,0), database_transaction_commit_lsn numeric(25,0), "
    "database_transaction_last_rollback_lsn numeric(25,0), database_transaction_next_undo_lsn numeric(25,0)"
)


def sessions_of(context: SessionContext) -> list[SessionContext]:
    """The server's open sessions; the asking one where the server keeps no list."""
    engine = getattr(context, "engine", None)
    return sorted(engine.sessions(), key=lambda found: found.session_id) if engine is not None else [context]


@view("sys.dm_tran_database_transactions", _TRANSACTION)
def database_transactions(context: SessionContext, _: Database) -> Rows:
    """Open transactions, each in its session's database; LSNs in `numeric(25,0)` form."""
    for session in sessions_of(context):
        if session.transaction_count:
            point = session.savepoint_lsn
            found = None if point is None else decimal_to_stored(lsn.number(point.to_bytes(10, "big")), _NUMERIC)
            yield (
                transaction_id(session), _database_id(session), _began(session), 1, 4 if found is not None else 3,
                0, 0, 1, 0, 0, 0, 0, 0, found, found, found, None, None, None,
            )  # fmt: skip


_NUMERIC: Final = SqlType("numeric", precision=25)


def transaction_id(session: SessionContext) -> int:
    """A number of the session's transaction, the same as long as it is open."""
    transaction = getattr(session, "transaction", None)
    return int(getattr(transaction, "descriptor", 0) or session.session_id) & 0x7FFFFFFFFFFFFFFF


def _began(session: SessionContext) -> int:
    """When the session's transaction began, by the server's clock."""
    began = getattr(getattr(session, "transaction", None), "began", 0.0) or time.time()
    return stored_datetime(session.clock.local() - timedelta(seconds=time.time() - began))


def _database_id(session: SessionContext) -> int:
    found = session.catalog.database(session.database)
    return found.database_id if found else 0


def _isolation(session: SessionContext) -> str:
    return str(getattr(getattr(session, "transaction", None), "isolation", "READ COMMITTED"))


@view(
    "sys.dm_tran_current_transaction",
    "transaction_id bigint!, transaction_sequence_num bigint!, transaction_is_snapshot bit, first_snapshot_sequence_num bigint, "
    "last_transaction_sequence_num bigint, first_useful_sequence_num bigint!",
)
def current_transaction(context: SessionContext, _: Database) -> Rows:
    """The asking session's transaction."""
    key, snapshot = transaction_id(context), _isolation(context) == "SNAPSHOT"
    return [(key, key, int(snapshot), key if snapshot else None, key, 0)]


@view(
    "sys.dm_tran_session_transactions",
    "session_id int!, transaction_id bigint!, transaction_descriptor binary(8)!, enlist_count int!, is_user_transaction bit!, "
    "is_local bit!, is_enlisted bit!, is_bound bit!, open_transaction_count int!",
)
def session_transactions(context: SessionContext, _: Database) -> Rows:
    """Open transactions by session."""
    for session in sessions_of(context):
        if session.transaction_count:
            key = transaction_id(session)
            yield (session.session_id, key, key.to_bytes(8, "little"), 1, 1, 1, 0, 0, session.transaction_count)


@view(
    "sys.dm_exec_sessions",
    "session_id smallint!, login_time datetime!, host_name nvarchar(128), program_name nvarchar(128), login_name nvarchar(128)!, "
    "status nvarchar(30)!, database_id smallint!, is_user_process bit!, open_transaction_count int!, "
    "transaction_isolation_level smallint!, lock_timeout int!, deadlock_priority int!, row_count bigint!, "
    "client_interface_name nvarchar(32), original_login_name nvarchar(128)!",
)
def exec_sessions(context: SessionContext, _: Database) -> Rows:
    """Every session of a client."""
    for session in sessions_of(context):
        login, options = getattr(session, "login", None), getattr(session, "options", None)
        user = getattr(login, "user", "") or "sa"
        yield (
            session.session_id, _since(session), getattr(login, "host", ""), getattr(login, "application", ""), user,
            "running" if session is context else "sleeping", _database_id(session), 1, session.transaction_count,
            ISOLATION[_isolation(session)], getattr(options, "lock_timeout_ms", -1),
            getattr(options, "deadlock_priority", 0), session.rowcount, "TDS", user,
        )  # fmt: skip


@view(
    "sys.dm_exec_requests",
    "session_id smallint!, request_id int!, start_time datetime!, status nvarchar(30)!, command nvarchar(32)!, database_id smallint!, "
    "blocking_session_id smallint, wait_type nvarchar(60), wait_time int!, wait_resource nvarchar(256)!, "
    "open_transaction_count int!, transaction_isolation_level smallint!, row_count bigint!",
)
def exec_requests(context: SessionContext, _: Database) -> Rows:
    """Sessions that wait for a lock, with the session in the way, and the asking one."""
    locks = getattr(getattr(getattr(context, "engine", None), "storage", None), "locks", None)
    waits = {id(one.owner): one for one in (locks.waiting() if locks is not None else ())}
    for session in sessions_of(context):
        found = waits.get(id(session))
        if found is None and session is not context:
            continue
        blocker, kind, resource, seconds = 0, None, "", 0.0
        if found is not None:
            blocker = next((getattr(one, "session_id", 0) for one in found.blockers), 0)
            resource = f"OBJECT: {_database_id(session)}:{found.resource}" if found.resource else "STANDIN: writer"
            kind, seconds = f"LCK_M_{found.mode.value}", found.seconds
        started = stored_datetime(session.clock.local() - timedelta(seconds=seconds))
        yield (
            session.session_id, 0, started, "suspended" if found else "running", "LOCK" if found else "SELECT",
            _database_id(session), blocker, kind, int(seconds * 1000), resource, session.transaction_count,
            ISOLATION[_isolation(session)], session.rowcount,
        )  # fmt: skip


def _since(session: SessionContext) -> int:
    return stored_datetime(getattr(session, "started", None) or session.clock.local())


@view(
    "sys.dm_hadr_database_replica_states",
    "database_id int!, group_id uniqueidentifier!, replica_id uniqueidentifier!, group_database_id uniqueidentifier!, is_local bit, "
    "is_primary_replica bit, synchronization_state tinyint, synchronization_state_desc nvarchar(60), is_commit_participant bit, "
    "synchronization_health tinyint, synchronization_health_desc nvarchar(60), database_state tinyint, "
    "database_state_desc nvarchar(60), is_suspended bit, last_sent_lsn numeric(25,0), last_received_lsn numeric(25,0), "
    "last_hardened_lsn numeric(25,0), last_redone_lsn numeric(25,0), last_commit_lsn numeric(25,0), last_commit_time datetime, "
    "secondary_lag_seconds bigint",
)
def nothing(_: SessionContext, __: Database) -> Rows:
    """Features that the stand-in does not have, so there are no rows."""
    return ()
