"""Tables that are no longer those that their positions belong to: their changes end.

*A table without a capture instance* is gone, but in three cases. An instance was made again that has no start LSN yet: then the
database waits for the capture job, which also has nothing new until it comes there. A replica says so that has not got
the log up to the table's position: it may show a time before the table. Or the catalogue does not show the table to this login, whose rights
were taken away: change tables name it by its object id then, and a DROP would be wrong. Such a table fails, as one that may
not be read, and is tried again (`retries`): its changes are kept as long as those of any table. A table that is being dropped looks the same for a
moment, and is gone when it is tried again. One that has a gap, or has failed for good, stays so: nothing heals it when it is seen again.

*Each case is excluded before another look.* Between two queries an instance may get its start, or the login its rights, and then neither shows
why the table was missing. So a table is gone if it still is after these cases were asked for.

*Crash between any two steps.* Each state is one row of the manifest, and the next check finds the same (`capture.endings` for DROPs).
"""

from collections.abc import Sequence

from cdc_assets.capture.endings import retire
from cdc_assets.capture.lake import Lake
from cdc_assets.capture.server import Server
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import CaptureNotReadyError
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.state import TableState
from cdc_assets.streaming.gaps import Instances, hidden_reason, identity_problem, require_present


class GoneTables:
    """Finds them, and records their end."""

    def __init__(self, server: Server, lake: Lake, ledger: Ledger) -> None:
        self._server, self._lake, self._ledger = server, lake, ledger

    def retire(self, database: str) -> Instances:
        """Record the end of the tables of a database that are gone.

        Returns:
            Capture instances of the database; every table that still streams has one.

        Raises:
            CaptureNotReadyError: one of them is captured again, and the capture job has not come there.
            IncompleteReadError: a replica that lags has answered.
            FencedError: another writer has taken over.
        """
        hidden, suspected = frozenset[int](), set[TableId]()
        instances = self._server.instances(database)
        while (gone := self._gone(database, instances)) and not suspected.issuperset(state.table for state in gone):
            suspected.update(state.table for state in gone)
            if self._server.source.is_replica(database):
                require_present(self._server.source, database, gone)
            nameless = [state.table for state in gone if state.table not in instances]
            self._require_starts(database, nameless)
            hidden = self._server.source.hidden_sources(database) if nameless else hidden
            instances = self._server.instances(database)
        known = self._ledger.state.tables
        unseen = [known[state.table] for state in gone if state.table not in instances and state.object_id in hidden]
        changed = [state.stopped(hidden_reason(state), again=True) for state in unseen if state.goes_on]
        now, tables = self._ledger.clock.now(), {state.table for state in unseen}
        self._ledger.manifest.mark(now, database, [state for state in changed if state != known[state.table]])
        retire(self._ledger, self._lake, database, [state for state in gone if state.table not in tables])
        return instances

    def _gone(self, database: str, instances: Instances) -> list[TableState]:
        """States of tables that are no longer those that their positions belong to."""
        gone = []
        for state in self._ledger.state.tables.values():
            if state.status == "excluded":
                continue
            known = state.streams or (state.position is not None and self._lake.history.latest(state.table))
            if state.table.database == database and known:
                problem = identity_problem(state, instances.get(state.table, []), instances)
                gone += [state.stopped(problem)] if problem else []
        return gone

    def _require_starts(self, database: str, tables: Sequence[TableId]) -> None:
        """Check that none of the tables without a capture instance has one that begins only now: it is not gone.

        Raises:
            CaptureNotReadyError: one has. The capture job learns its start when it next polls, and until then finds nothing new.
        """
        beginning = self._server.source.beginning_tables(database) if tables else frozenset()
        if found := next((table for table in tables if table in beginning), None):
            raise CaptureNotReadyError(
                f"{found} was enabled again, and the capture job of {database} has not reached the start of its capture instance. "
                "Next: nothing; if that lasts, see that the job runs"
            )
