"""Materializations of the assets of a capture as a whole: those whose tables grew during a run, at its end."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import dagster as dg

from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.envelope_io import Committed
from cdc_assets.defs.history_facts import history_facts
from cdc_assets.defs.writing import Results, Writing
from cdc_assets.envelope.plan import ConnectorIdentity
from cdc_assets.errors import CdcError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.system_topics import HISTORY, WINDOWS
from cdc_assets.shared.progress import Progress


class SystemReport:
    """Compares the tables at the beginning of a run with those at its end.

    Args:
        written: what the run writes with.
    """

    def __init__(self, catalog: CaptureCatalog, written: Writing) -> None:
        self._catalog, self._events, self._topics = catalog, written.events, written.writers.topics
        self._before = self._reached()

    def _reached(self) -> dict[str, int]:
        """Number of this capture's last commit to each table."""
        return {name: self._topics.reached(directory) for name, directory in self._catalog.system.items()}

    def note(self, progress: Progress) -> None:
        """Report the schema history at once if a window has changed it, since a run that streams may last for ever."""
        if progress.structures:
            self._before[HISTORY] = self._topics.reached(self._catalog.system[HISTORY])
            self._events.event(*self._report(HISTORY, history_facts(self._structures())))

    def _structures(self) -> list[HistoryEntry]:
        """The schema history, which is small; none if it cannot be read, since the run has ended well without it."""
        config = self._catalog.config
        history = SchemaHistory(self._topics, config.events, config.history, ConnectorIdentity())
        with suppress(CdcError):
            return [entry for _, entry in history.read()]
        return []

    def results(self, windows: int, page: Mapping[str, Any], *, all_selected: bool = False) -> Results:
        """Materializations of the tables that grew.

        Args:
            windows: number of windows and rounds of the run; if 0, the window manifest is not reported.
            page: what the window manifest's page says.
            all_selected: whether selected ones are reported too that did not grow.
        """
        for name, number in self._reached().items():
            has_grown = number != self._before[name] and (windows or name != WINDOWS)
            if not has_grown and not (all_selected and self._catalog.system_key(name) in self._events.selected):
                continue
            facts: dict[str, Any] = {"windows": windows, **page} if name == WINDOWS else {}
            facts |= history_facts(self._structures()) if name == HISTORY else {}
            yield from self._events.result(*self._report(name, facts))

    def _report(self, name: str, facts: Mapping[str, Any]) -> tuple[dg.AssetKey, Committed]:
        return self._catalog.system_key(name), Committed(self._catalog.system[name], facts)
