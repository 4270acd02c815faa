"""Carries out `schema-changes` signals: records their structures in the schema history, and publishes their events.

They are committed at a window border, under the number of a separate window
that reads nothing, so that the order of the history is that of the windows. The
request records the number under which it is tried:

| crash after | next run |
|---|---|
| plan of the window | completes it, and tries again under another number |
| the number is recorded | the same |
| commit of the history | completes it; publishes the events when it loads the history; finds the number there |
| completion | finds the number there, and removes the request |

The number is recorded only while the window of that number is in flight, so nothing else is ever committed to the history
under it.
"""

import dataclasses
import json
import logging
from collections.abc import Mapping
from typing import Any

from cdc_assets.config.column_rules import without_hidden_defaults
from cdc_assets.core.steps import step
from cdc_assets.errors import ConfigurationError, InvalidValueError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.history.signalled_schema import given_entry, table_of
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.signal_state import StructureRequest
from cdc_assets.shared.endings import empty_window
from cdc_assets.shared.lake import Lake
from cdc_assets.signals.watch import SignalWatch

log = logging.getLogger(__name__)


class GivenStructures:
    """Records structures that were given by signals."""

    def __init__(self, ledger: Ledger, lake: Lake, watch: SignalWatch) -> None:
        self._ledger, self._lake, self._watch = ledger, lake, watch

    def recover(self, database: str) -> None:
        """Finish what an earlier run began. Must be called when no window is in flight, before any is planned.

        Raises:
            FencedError: another writer has taken over.
            LakeError: the lake cannot be written.
        """
        state = self._watch.state(database)
        if state.structures and state.structures[0].window_id:
            self._try(database, state.structures[0])

    def turn(self, database: str) -> bool:
        """Carry out the next request; returns whether there was one.

        Raises:
            FencedError: another writer has taken over.
            LakeError: the lake cannot be written.
        """
        state, manifest = self._watch.state(database), self._ledger.state
        if not state.structures or manifest.pending or manifest.snapshots:
            return False
        self._try(database, state.structures[0])
        return True

    def _try(self, database: str, request: StructureRequest) -> None:
        if not self._lake.history.written(request.window_id):
            entries = self._entries(request)
            if entries:
                self._commit(database, request, entries)
        state = self._watch.state(database)
        self._watch.record(database, dataclasses.replace(state, structures=state.structures[1:]))

    def _commit(self, database: str, request: StructureRequest, entries: list[HistoryEntry]) -> None:
        manifest, now = self._ledger.manifest, self._ledger.clock.now()
        window = empty_window(manifest.state, database)
        manifest.plan(now, window)
        state = self._watch.state(database)
        numbered = dataclasses.replace(request, window_id=window.window_id)
        self._watch.record(database, dataclasses.replace(state, structures=(numbered, *state.structures[1:])))
        self._lake.record(window.window_id, entries)
        step("history-written")
        manifest.complete(now, (), (), {})
        log.info(
            "Structures given by signal %r are recorded: %s.",
            request.signal,
            ", ".join(str(entry.table) for entry in entries),
        )

    def _entries(self, request: StructureRequest) -> list[HistoryEntry]:
        entries = []
        for change in json.loads(request.changes):
            try:
                entries.append(self._entry(change))
            except (InvalidValueError, ConfigurationError) as error:
                log.warning("Signal %r: %s", request.signal, error)
        return entries

    def _entry(self, change: Mapping[str, Any]) -> HistoryEntry:
        table = table_of(change)
        state = self._ledger.state.tables.get(table)
        known = self._lake.history.latest(table)
        if state is None or state.position is None or known is None:
            raise InvalidValueError("table of a schema change", str(table), "a table that is captured", "correct it")
        entry = given_entry(change, known, state.position.next(), self._ledger.clock.now())
        entry = dataclasses.replace(entry, schema=without_hidden_defaults(entry.schema, self._lake.events))
        self._lake.destination(entry)
        return entry
