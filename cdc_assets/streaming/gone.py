"""Tables that are no longer those that their positions belong to: their changes end.

*A table without a capture instance* is gone, but in three cases. A replica says so that has not got the log up to the table's position: it
may show a time before the table, so that look does not count, and the next one is at a server that has it. Or an instance was made again
that has no start LSN until the capture job comes there. Or the catalogue does not show the table to this login, whose rights were taken
away: change tables name it by its object id then. In the latter two a DROP would be wrong. Such a table fails alone, as one that may not
be read, and is tried again (`retries`): its changes are kept as long as those of any table. A table that is being dropped looks the same
for a moment, and is gone when it is tried again. One that has a gap, or has failed for good, stays so: nothing heals it when it is seen
again.

*Each case is excluded before another look.* Between two queries an instance may get its start, or the login its rights, and then neither shows
why the table was missing. So a table is gone if it still is after these cases were asked for, of the server that did not show it.

*Crash between any two steps.* Each state is one row of the manifest, and the next check finds the same (`capture.endings` for DROPs).
"""

from collections.abc import Sequence

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.endings import retire
from cdc_assets.shared.lake import Lake
from cdc_assets.shared.server import Server
from cdc_assets.streaming.gaps import Instances, beginning_reason, hidden_reason, identity_problem


class GoneTables:
    """Finds them, and records their end."""

    def __init__(self, server: Server, lake: Lake, ledger: Ledger) -> None:
        self._server, self._lake, self._ledger = server, lake, ledger

    def retire(self, database: str, captured: Lsn = ZERO_LSN) -> Instances:
        """Record the end of the tables of a database that are gone.

        Args:
            captured: up to where the log was seen to be captured; instances that begin before it are all there.

        Returns:
            Capture instances of the database; every table that still streams has one.

        Raises:
            IncompleteReadError: a replica that lags has answered.
            FencedError: another writer has taken over.
        """
        waiting, suspected = dict[TableId, str](), set[TableId]()
        instances = self._server.instances(database, known=captured)
        while gone := self._gone(database, instances):
            reached = max(state.position or ZERO_LSN for state in gone)
            if self._server.source.lists_as_replica(database) and reached > captured:
                captured = reached
            elif suspected.issuperset(state.table for state in gone):
                break
            else:
                suspected.update(state.table for state in gone)
                nameless = [state for state in gone if state.table not in instances]
                waiting = self._waiting(database, nameless) if nameless else waiting
            instances = self._server.instances(database, known=captured)
        known = self._ledger.state.tables
        kept = [known[state.table] for state in gone if state.table in waiting and state.table not in instances]
        failed = [state.stopped(waiting[state.table], again=True) for state in kept if state.goes_on]
        news = [state for state in failed if state != known[state.table]]
        self._ledger.manifest.mark(self._ledger.clock.now(), database, news)
        retire(self._ledger, self._lake, database, [state for state in gone if known[state.table] not in kept])
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

    def _waiting(self, database: str, nameless: Sequence[TableState]) -> dict[TableId, str]:
        """Those of the tables without a capture instance that are still captured, with the reason why it is not there."""
        source = self._server.source
        beginning, sources = source.beginning_tables(database), source.hidden_sources(database)
        hidden = {state.table: hidden_reason(state) for state in nameless if state.object_id in sources}
        return hidden | {state.table: beginning_reason(state) for state in nameless if state.table in beginning}
