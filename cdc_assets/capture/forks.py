"""Notices that a database was restored to an earlier moment (spec sqlserver-cdc §1.4 no. 23).

After a restore the server hands out LSNs again that it had given to transactions which are gone now. A stale position
would match nothing until new LSNs overtake it, and would then silently skip everything before. So each database's
recovery fork is recorded with its positions, and checked again: when a run begins, when a window was chosen, when its
rows or those of a snapshot were read and nothing of them is committed, and when nothing is new.

*The rule.* Let `reached` be the greatest LSN of which the lake may hold something, and `point` the LSN at which the
present fork begins. Below its point a fork has the transactions of the one it left.

- The same fork: one history. Forks are never returned to, so all that was asked since the last look is of it too.
- Another fork with `reached < point`: what was read lies in the part that both share. The new fork is recorded.
- Another fork with `reached >= point`, or with no point to compare with: the lake holds what the server does not have.
- A fork that the login may not see: `fn_cdc_get_max_lsn()` never falls but by a restore, so a value below what windows
  read tells one. What was read is compared, not positions: a table that was just enabled starts above it.

*Why looking after reading is enough.* A window's end is in `reached` from its plan on. If the fork is the recorded one
after the rows were read, they are of that fork. If it is another one that begins above the window's end, they are of the
shared part, whichever of the two answered. A restore after that look is found by the next one, since the window counts.

*What it cannot see.* Without sight of the fork, a restore whose new history had passed `read` before anybody looked. And
of several restores between two looks only the last has a point. Rows of a snapshot are newer than its watermark: until
the stream has passed the moment at which they were read, a restore to between the two counts as harmless.

*Going on in the same topics* (`capture.new_history`) is for people to ask for, by a snapshot of its tables.

*Crash.* The finding is one row of the manifest: tables failed, whatever was in flight given up, or nothing of it.
"""

import contextlib
import dataclasses

from cdc_assets.capture.instances import before
from cdc_assets.capture.ledger import Ledger
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import RecoveryFork, Source
from cdc_assets.errors import CdcDisabledError, DatabaseRestoredError
from cdc_assets.ledger.state import CaptureState, LogHistory


def shared_until(log: LogHistory, reached: Lsn | None, fork: RecoveryFork | None, captured: Lsn | None) -> Lsn | None:
    """Up to where the server still has what was read, if that is not all of it; None if it is.

    Args:
        log: what is recorded.
        reached: greatest LSN of which the lake may hold something.
        fork: that the database is on now; None if it cannot be seen.
        captured: `fn_cdc_get_max_lsn()`; needed only if one of the two forks is not known.
    """
    if fork is None or not log.fork:
        return captured if captured is not None and log.read is not None and captured < log.read else None
    if fork.identity == log.fork or reached is None or (fork.point is not None and reached < fork.point):
        return None
    return before(fork.point) if fork.point is not None else ZERO_LSN


def restore_problem(source: Source, state: CaptureState, database: str) -> tuple[RecoveryFork | None, str]:
    """The fork that a database is on, and why nothing more may be read from it, or nothing.

    Raises:
        RetryableError: the server is away or busy.
    """
    log = state.log(database)
    fork = source.recovery_fork(database)
    if log.restored:
        return fork, log.restored
    captured = None
    if log.read is not None and (fork is None or not log.fork):
        with contextlib.suppress(CdcDisabledError):
            captured = source.max_captured_lsn(database)
    reached = greatest_lsn_in_lake(state, database)
    shared = shared_until(log, reached, fork, captured)
    if shared is None:
        return fork, ""
    was, now = log.fork or "unknown", fork.identity if fork else "that this login may not see"
    return fork, (
        f"Database {database} was restored to an earlier moment, or made anew: it is on recovery fork {now} now, what was "
        f"read is of fork {was}. The lake holds changes after {shared} up to {reached} whose transactions the server no "
        "longer has. Nothing more is read from it, so that the two histories are not mixed. "
        f"Next: as soon as the server's LSNs have passed {reached}, materialize the snapshots of its tables: their old history "
        "ends with a DROP, and a new one begins behind it. Or capture it at once under another topic.prefix or into another "
        "lake.path, and leave these topics as they are."
    )


def check_recovery_fork(ledger: Ledger, source: Source, database: str) -> None:
    """See that a database is still in the history that was read, and record a new fork of it.

    Raises:
        DatabaseRestoredError: it is not; `retire.leave_out_database` records that.
        RetryableError: the server is away or busy.
    """
    log = ledger.state.log(database)
    fork, problem = restore_problem(source, ledger.state, database)
    if problem:
        raise DatabaseRestoredError(problem)
    if fork is not None and fork.identity != log.fork:
        ledger.manifest.record_log(ledger.clock.now(), database, dataclasses.replace(log, fork=fork.identity))


def greatest_lsn_in_lake(state: CaptureState, database: str) -> Lsn | None:
    """Greatest LSN of which the lake may hold something; a window and a snapshot in flight count."""
    found = [entry.position for entry in state.tables.values() if entry.table.database == database]
    if state.pending is not None and state.pending.database == database:
        found.append(state.pending.until)
    if database in state.snapshots:
        found += [table.low for table in state.snapshots[database].tables]
    return max((lsn for lsn in [*found, state.log(database).read] if lsn is not None), default=None)
