"""Notifications of a capture as Dagster sees them: observations of the assets they are about.

A table's `snapshot` asset tells when its rows began to be read again and how that
ended, whoever asked; what concerns no single table is told on the window
manifest. Steps in between (`IN_PROGRESS`, chunks) go into the run's log only,
for an event costs tens of milliseconds and is never pruned.
"""

import dagster as dg

from cdc_assets.core.notification import Notification
from cdc_assets.defs.catalog import CaptureCatalog

_MOST = 20
"""Tables in one notification that are told each by itself."""


class Notices:
    """Reports notifications of one run."""

    def __init__(self, catalog: CaptureCatalog, context: dg.AssetExecutionContext) -> None:
        self._context, self._whole = context, catalog.windows_key
        self._keys = {str(table): key for key, table in catalog.keys("snapshot").items()}

    def send(self, notification: Notification) -> None:
        """Report one."""
        self._context.log.info(str(notification))
        if notification.kind == "IN_PROGRESS" or notification.kind.startswith("TABLE_CHUNK"):
            return
        metadata = {"event": notification.kind, **notification.data}
        metadata |= {"signal": notification.id} if notification.id else {}
        for key in self._about(notification):
            description = f"{notification.aggregate}: {notification.kind}"
            self._context.log_event(dg.AssetObservation(key, description=description, metadata=metadata))

    def _about(self, notification: Notification) -> list[dg.AssetKey]:
        one = notification.data.get("scanned_collection")
        names = [one] if one else [name.strip() for name in notification.data.get("data_collections", "").split(",")]
        known = [self._keys[name] for name in names if name in self._keys]
        return known if 0 < len(known) <= _MOST else [self._whole]
