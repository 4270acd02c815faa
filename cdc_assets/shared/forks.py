"""Detects that a database was restored to an earlier moment (spec sqlserver-cdc §1.4 no. 23).

After a restore the server assigns LSNs again that had belonged to transactions which no longer exist. A stale position
would match nothing until new LSNs overtake it, and would then silently skip everything before. So each database's
recovery fork is recorded with its positions, and checked again: when a run begins, when a window was chosen, when its
rows or those of a snapshot were read and nothing of them is committed, and when nothing is new.

*The rule.* Let `reached` be the greatest LSN of which the lake may hold something, and `point` the LSN at which the
present fork begins. Below its point a fork has the transactions of the one it left.

- The same fork: one history. A database never returns to a former fork, so everything read since the last check belongs to it. But a whole
  server can be put back as it was (a snapshot of its machine, or of its disks), on the fork that it was on: see *the same fork* below.
- Another fork with `reached < point`: what was read lies in the part that both forks share. The new fork is recorded.
- Another fork with `reached >= point`, or without a point: the lake holds transactions that the server does not have. Until a new
  history begins, the least point of all forks that are seen counts.
- Another fork while nobody knows until where in the log rows of a snapshot were read (`ledger.readings`): it may hold them.
- The same fork, or one that the login may not see: `fn_cdc_get_max_lsn()` falls only if the database was put back, so a value below what
  windows or snapshots have passed, or those in flight are to pass, proves that. That is compared, not positions, nor the end of a window
  that reads nothing, which is one: a table that was just enabled starts above it. Nobody knows where the histories part, so
  nothing of what was read is known to be there. But what lies below the fork's point is.
- A readable replica that is captured less far than what windows have read, or shows a fork that was left: it lags. Nothing can
  be said until it has caught up; the error passes by itself. On the same fork it need not have: that is one history.
  Each answer carries whether a secondary gave it, in one query: the next question may reach another server. So may that for
  the fork and that for how far it is captured: the fork is queried once more before the second one counts.
- So of one that did not follow a forced failover nothing is taken for the log up to an LSN, however far its own log is (`leave_forks`).

*Why checking after reading is enough.* A window's end is in `reached` from its plan on. If the fork is the recorded one
after the rows were read, the rows belong to that fork. If it is another one that begins above the window's end, they
belong to the shared part, whichever fork they came from. A restore after that check is found by the next one, since the
window counts.

*What it cannot detect.* If the fork is not visible, or the whole server was put back, a new history that passed `read` before the next check;
the latter over readable replicas, where it is no other than a lag.
A secondary that does not follow, on a fork which was never recorded, and has more of the log than was read, looks like a restore.
And of several restores between two checks only the last has a point. A fork that was left once more from a backup of the one before it: SQL
Server does not say from which fork one comes.

*Continuing in the same topics* (`capture.new_history`) must be requested by a user, with a snapshot of the tables.

*Crash.* The result is one row of the manifest: tables failed and whatever was in flight given up, or nothing at all.
"""

import contextlib
import dataclasses

from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import Captured, RecoveryFork, Source
from cdc_assets.errors import CdcDisabledError, DatabaseRestoredError, IncompleteReadError
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.state import CaptureState, LogHistory
from cdc_assets.shared.instances import before


def _still_shared(
    log: LogHistory, reached: Lsn | None, fork: RecoveryFork | None, captured: Lsn | None, unsure: Lsn | None
) -> Lsn | None:
    """As `shared_until`, of this restore alone."""
    is_less = _is_put_back(log, fork, captured)
    if fork is None or not log.fork:
        if not is_less:
            return None
        return before(fork.point) if fork is not None and fork.point is not None else ZERO_LSN
    if fork.identity == log.fork:
        return ZERO_LSN if is_less else None
    if reached is None:
        return None
    if fork.point is None:
        return ZERO_LSN
    lost = [before(fork.point)] if reached >= fork.point else []
    return min([*lost, *([before(unsure)] if unsure is not None else [])], default=None)


def _is_put_back(log: LogHistory, fork: RecoveryFork | None, captured: Lsn | None) -> bool:
    """Whether how far a server is captured proves that it was put back. What lies below its fork's point it has in its log, and its
    capture job reads that again if it has just taken over."""
    if captured is None or log.read is None or captured >= log.read:
        return False
    return fork is None or fork.point is None or log.read >= fork.point


def shared_until(
    log: LogHistory,
    reached: Lsn | None,
    fork: RecoveryFork | None,
    captured: Lsn | None,
    unsure: Lsn | None = None,
) -> Lsn | None:
    """LSN up to which the server still has what was read, if it does not have all of it; None if it does.

    Args:
        log: recorded history of the database.
        reached: greatest LSN of which the lake may hold something.
        fork: present fork of the database; None if it is not visible.
        captured: `fn_cdc_get_max_lsn()`; not needed of another fork than the recorded one.
        unsure: least LSN of READs of rows that were read until nobody knows where in the log; None if there are none.
    """
    found = [log.shared, _still_shared(log, reached, fork, captured, unsure)]
    return min((lsn for lsn in found if lsn is not None), default=None)


def restore_problem(
    source: Source, state: CaptureState, database: str, known: Lsn = ZERO_LSN
) -> tuple[RecoveryFork | None, str, Lsn | None]:
    """The present fork of a database, the reason why nothing more may be read from it, and the LSN up to which the server still has
    what was read; empty and None if there is none.

    Args:
        known: LSN up to which the server that shows the fork must have captured the log.

    Raises:
        RetryableError: the server is away or busy, or a replica that lags.
    """
    log = state.log(database)
    fork = source.recovery_fork(database, known)
    is_former = fork is not None and fork.identity in log.former
    if log.restored:  # and perhaps once more since; a fork that was left says nothing of that
        present = None if is_former or (fork is not None and fork.is_of_replica) else fork
        return fork, log.restored, shared_until(log, greatest_lsn_in_lake(state, database), present, None)
    log = dataclasses.replace(log, read=captured_until(state, database))
    captured = Captured()
    if log.read is not None and (fork is None or log.fork in ("", fork.identity)):
        with contextlib.suppress(CdcDisabledError):
            captured = source.captured_by(database)
    reached = greatest_lsn_in_lake(state, database)
    shared = shared_until(log, reached, fork, captured.lsn, _unsure_from(state, database))
    decides = captured if captured.lsn is not None or fork is None else fork
    if (shared is not None or is_former) and decides.is_of_replica:
        is_same = fork is not None and fork.identity == log.fork
        if is_same and log.shared is None:  # it lags: what needs more of the log says so
            return fork, "", None
        _require_present(source, database, log, fork, captured.lsn)
    if shared is None:
        return fork, "", None
    if captured.lsn is not None:
        _require_one_server(source, database, fork)
    return fork, _reason_of(database, log, fork, captured.lsn, reached, shared), shared


def _reason_of(
    database: str,
    log: LogHistory,
    fork: RecoveryFork | None,
    captured: Lsn | None,
    reached: Lsn | None,
    shared: Lsn,
) -> str:
    """Why nothing more may be read from a restored database, and the next step."""
    was, now = log.fork or "unknown", fork.identity if fork else "invisible to this login"
    how = f"its recovery fork is now {now}; what was read is of fork {was}"
    if was == now:
        how = (
            f"it is captured up to {captured} now, and was up to {log.read} when it was read, on the same recovery fork"
        )
    return (
        f"Database {database} was restored to an earlier moment, or created again: {how}. The lake holds changes after {shared} up to "
        f"{reached} whose transactions the server no longer has. Nothing more is read from it, so that the two histories are not mixed. "
        f"Next: as soon as the server's LSNs have passed {reached}, materialize the snapshots of its tables: their old history "
        "ends with a DROP, and a new one begins after it. Or capture it at once with another topic.prefix or "
        "lake.path, and leave these topics as they are."
    )


def captured_until(state: CaptureState, database: str) -> Lsn | None:
    """How far the log was captured for sure when something was read, or perhaps is; None if nothing was."""
    window, run = state.in_flight(database), state.snapshots.get(database)
    found = [state.log(database).read, run.captured if run else None]
    if window is not None and window.kind == "stream" and window.reads:  # perhaps read, and committed
        found.append(window.until)
    return max((lsn for lsn in found if lsn is not None), default=None)


def check_recovery_fork(ledger: Ledger, source: Source, database: str, known: Lsn = ZERO_LSN) -> None:
    """Check that a database is still in the history that was read, and record its fork if it is new.

    Args:
        known: LSN up to which something is about to be read. A server that has it also has a failover before it, which a replica
            that lags does not show: recorded only later, it would look as if it had taken away what was read.

    Raises:
        DatabaseRestoredError: it is not; `endings.leave_out_database` records that.
        RetryableError: the server is away or busy.
    """
    log = ledger.state.log(database)
    source.leave_forks(database, log.former)
    fork, problem, shared = restore_problem(source, ledger.state, database, known)
    if shared != log.shared:
        ledger.manifest.record_log(ledger.clock.now(), database, dataclasses.replace(log, shared=shared))
    if problem:
        raise DatabaseRestoredError(problem)
    if fork is not None and fork.identity != log.fork:
        ledger.manifest.record_log(ledger.clock.now(), database, log.on(fork.identity))
        source.leave_forks(database, log.on(fork.identity).former)


def _require_present(
    source: Source, database: str, log: LogHistory, fork: RecoveryFork | None, captured: Lsn | None
) -> None:
    """Check that a replica does not show a time before what is known.

    Raises:
        IncompleteReadError: it does.
    """
    if fork is not None and fork.identity in log.former:
        raise lagging(database, f"it is on recovery fork {fork.identity} still")
    if captured is None and log.read is not None and source.recovery_fork(database, log.read) != fork:
        raise lagging(database, "one that is captured further shows another recovery fork")
    if captured is not None and log.read is not None and captured < log.read:
        raise lagging(database, f"it is captured up to {captured}, and changes up to {log.read} were read already")


def _require_one_server(source: Source, database: str, fork: RecoveryFork | None) -> None:
    """Check that the server which is captured so far is on the fork that was seen before.

    Raises:
        IncompleteReadError: it is not, or a secondary answers.
    """
    now = source.recovery_fork(database) if fork is not None else None
    if now != fork or (now is not None and now.is_of_replica):
        raise lagging(database, "another server answered in between")


def lagging(database: str, why: str) -> IncompleteReadError:
    """The error of a replica that shows a time before what is known."""
    return IncompleteReadError(
        f"The replica that answered for database {database} lags: {why}. The question is repeated"
    )


def _unsure_from(state: CaptureState, database: str) -> Lsn | None:
    """Least LSN of READs of a database whose rows may be of any later moment."""
    found = [one for table, own in state.readings.items() if table.database == database for one in own]
    return min((one.low for one in found if one.high is None), default=None)


def greatest_lsn_in_lake(state: CaptureState, database: str) -> Lsn | None:
    """Greatest LSN of which the lake may hold something, including a window and a snapshot in flight."""
    found = [entry.position for entry in state.tables.values() if entry.table.database == database]
    if (window := state.in_flight(database)) is not None:
        found.append(window.until)
    found += [reads.low for table, reads in state.early.items() if table.database == database]
    readings = [one for table, own in state.readings.items() if table.database == database for one in own]
    found += [one.high or one.low for one in readings]  # rows are of that moment, whatever the LSN of their READs
    if database in state.snapshots:
        found += [table.low for table in state.snapshots[database].tables]
    log = state.log(database)
    return max((lsn for lsn in [*found, log.read, log.reads] if lsn is not None), default=None)
