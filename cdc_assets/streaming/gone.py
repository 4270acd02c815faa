"""Tables that are no longer those that their positions belong to: their changes end.

*A table without a capture instance* is gone, but in three cases. An instance was made again that has no start LSN yet: then the
database waits for the capture job, which also has nothing new until it comes there. A replica says so that has not got
the log up to the table's position: it may show a time before the table. Or the catalogue does not show the table to this login, whose rights
were taken away: change tables name it by its object id then, and a DROP would be wrong. Such a table fails, as one that may
not be read, and is tried again (`retries`): its changes are kept as long as those of any table. A table that is being dropped looks the same for a
moment, and is gone when it is tried again. One that has a gap, or has failed for good, stays so: nothing heals it when it is seen again.

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

    def retire(self, database: str, instances: Instances) -> None:
        """Record the end of the tables of a database that are gone.

        Args:
            instances: capture instances of the database now.

        Raises:
            CaptureNotReadyError: one of them is captured again, and the capture job has not come there.
            IncompleteReadError: a replica that lags has answered.
            FencedError: another writer has taken over.
        """
        gone = self._gone(database, instances)
        if gone and self._server.source.is_replica(database):
            require_present(self._server.source, database, gone)
            gone = self._gone(database, self._server.instances(database))
        nameless = [state for state in gone if state.table not in instances]
        self._require_starts(database, [state.table for state in nameless])
        hidden = self._hidden(database, nameless)
        failed = {state: state.stopped(hidden_reason(state), again=True) for state in hidden if state.goes_on}
        changed = [after for before, after in failed.items() if after != before]
        self._ledger.manifest.mark(self._ledger.clock.now(), database, changed)
        tables = {state.table for state in hidden}
        retire(self._ledger, self._lake, database, [state for state in gone if state.table not in tables])

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

    def _hidden(self, database: str, nameless: Sequence[TableState]) -> list[TableState]:
        """States of those tables without a name that are still captured."""
        sources = self._server.source.hidden_sources(database) if nameless else frozenset()
        known = (self._ledger.state.tables[state.table] for state in nameless)
        return [state for state in known if state.object_id in sources]

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
