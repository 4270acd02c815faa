"""Which tables need a snapshot now, according to the snapshot mode."""

import contextlib
import logging
from collections.abc import Collection, Sequence

from cdc_assets.config.filters import Names
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.config.snapshot_modes import Decision, Situation, decide, rule_of
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.core.signal import signal_table
from cdc_assets.errors import ConfigurationError, LoginError, PreflightError
from cdc_assets.history.store import SchemaHistory
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.instances import gap_behind, newest
from cdc_assets.shared.server import Server
from cdc_assets.snapshot.plan import Request
from cdc_assets.streaming.gaps import Instances, with_gap

log = logging.getLogger(__name__)


class Due:
    """Applies `snapshot.mode` to the tables of one capture.

    Args:
        server: source of the capture instances, if the mode depends on them.
        history: recorded structures.
    """

    def __init__(self, server: Server, history: SchemaHistory, ledger: Ledger, config: CaptureConfig) -> None:
        self._server, self._history, self._ledger, self._config = server, history, ledger, config
        self._settings = config.snapshot
        self._include = Names("snapshot.include.collection.list", self._settings.include)

    @property
    def streams(self) -> bool:
        """Whether changes are streamed."""
        return rule_of(self._settings).streams

    def requests(self, database: str, captured: Sequence[TableId], done: Collection[TableId] = ()) -> list[Request]:
        """What to read from the captured tables of a database, in order.

        Args:
            captured: tables of the database that pass the filters.
            done: tables that this run has snapshotted already.

        Raises:
            ConfigurationError: the mode keeps existing positions, and there are none.
            CdcError: the server cannot be reached.
        """
        instances = self._instances(database, captured)
        self._mark_lost(database, captured, instances)
        states = self._ledger.state.tables
        if rule_of(self._settings).keeps_position and not any(table.database == database for table in states):
            raise ConfigurationError(
                "snapshot.mode",
                self._settings.mode,
                f"another mode: nothing of {database} was captured before",
                "capture it with snapshot.mode=initial or no_data first",
            )
        requests = []
        for table in captured:
            if table in states and states[table].is_half_adopted:
                continue
            decision = self._decision(table, states.get(table), instances, done)
            if table in states and states[table].is_to_be_repaired(self._config.streaming.gap_policy):
                log.info("%s: changes are missing, and gap.policy=resnapshot; snapshotting it again", table)
                requests += self.whole([table])
            elif decision.schema:
                log.info("%s: %s", table, decision.reason)
                requests.append(self._request(table, decision, known=table in states))
        return requests

    def whole(self, tables: Sequence[TableId], partitions: tuple[int, ...] | None = None) -> list[Request]:
        """Requests that read named tables completely, whatever the mode; of a signal table only its structure."""
        return [Request(table, partitions, data=not self._takes_signals(table)) for table in tables]

    def _instances(self, database: str, captured: Sequence[TableId]) -> Instances:
        """Capture instances, if the mode depends on them; empty for a database whose change data capture was turned off, or that
        refuses the login."""
        rule, states = rule_of(self._settings), self._ledger.state.tables
        uncaptured = any(table in states and states[table].position is None for table in captured)
        if not uncaptured and not {rule.schema, rule.data} & {"needed", "position lost"}:
            return {}
        with contextlib.suppress(
            LoginError, PreflightError
        ):  # the loop ends its tables, or leaves it out, and reports why
            return self._server.instances(database)
        return {}

    def _mark_lost(self, database: str, captured: Sequence[TableId], instances: Instances) -> None:
        """Record gaps that no window has found yet, so that a lost position is not kept (`run`)."""
        states = self._ledger.state.tables
        lost = []
        for state in (states[table] for table in captured if table in states):
            found = instances.get(state.table, [])
            gap = gap_behind(state, found) if state.goes_on else None
            if gap is not None:
                lost.append(with_gap(state, gap, "fail", found))
        self._ledger.manifest.mark(self._ledger.clock.now(), database, lost)

    def _decision(
        self, table: TableId, state: TableState | None, instances: Instances, done: Collection[TableId]
    ) -> Decision:
        found = instances.get(table, [])
        situation = Situation(
            has_position=state is not None and (state.position is not None or not found or not self.streams),
            available=state is None or _available(state, found),
            has_history=self._history.latest(table) is not None,
            done=table in done,
        )
        return decide(self._settings, situation)

    def _request(self, table: TableId, decision: Decision, *, known: bool) -> Request:
        """Read rows only of tables in the include list, and never those of a signal table (spec debezium-sqlserver §2.4)."""
        chosen = not self._include or self._include.match(table.within_database, str(table))
        data = decision.data and chosen and not self._takes_signals(table)
        return Request(table, data=data, keeps_position=known and rule_of(self._settings).keeps_position)

    def _takes_signals(self, table: TableId) -> bool:
        return signal_table(self._config.signals.collections, table.database, [table]) is not None


def _available(state: TableState, instances: Sequence[CaptureInstance]) -> bool:
    """Whether the changes after a table's position still exist; a table that is not captured has none."""
    last = newest(instances)
    if last is None or state.position is None:
        return state.status != "gap"
    return state.goes_on and last.source_object_id == state.object_id
