"""Materializations of the assets of a capture as a whole: those whose tables grew during a run, at its end."""

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from cdc_assets.capture.system_topics import WINDOWS
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.envelope_io import Committed, account_of
from cdc_assets.lake.topics import TopicTables


class SystemReport:
    """Compares the tables at the beginning of a run with those at its end.

    Args:
        sink: tables that the run commits to.
    """

    def __init__(self, catalog: CaptureCatalog, context: dg.AssetExecutionContext, sink: TopicTables) -> None:
        self._catalog, self._context, self._topics = catalog, context, sink
        self._before = self._reached()

    def _reached(self) -> dict[str, int]:
        """Number of this capture's last commit to each table."""
        return {name: self._topics.reached(directory) for name, directory in self._catalog.system.items()}

    def results(self, windows: int, page: Mapping[str, Any]) -> Iterator[dg.MaterializeResult[Committed]]:
        """Materializations of the tables that grew.

        Args:
            windows: number of windows and rounds of the run; if 0, the window manifest is not reported.
            page: what the window manifest's page says.
        """
        for name, number in self._reached().items():
            if number == self._before[name] or (name == WINDOWS and not windows):
                continue
            key = self._catalog.system_key(name)
            directory = self._catalog.system[name]
            facts: dict[str, Any] = {"windows": windows, **page} if name == WINDOWS else {}
            if key in self._context.selected_asset_keys:
                yield dg.MaterializeResult(asset_key=key, value=Committed(directory, facts))
            else:
                metadata = facts | account_of(self._topics, directory)
                self._context.log_event(dg.AssetMaterialization(key, metadata=metadata))
