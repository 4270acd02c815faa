"""Shows notifications of a capture in Dagster, as observations of the assets that they concern.

The `snapshot` asset of a table shows when its rows began to be read again and how that
ended, whoever requested it. Notifications about no single table are shown on the window
manifest. Intermediate steps (`IN_PROGRESS`, chunks) go only into the run's log,
since an event costs tens of milliseconds and is never pruned.
"""

import dagster as dg

from cdc_assets.core.notification import Notification
from cdc_assets.defs.catalog import CaptureCatalog

_MOST = 20
"""Maximum number of tables in one notification that are observed separately."""


class Notices:
    """Reports notifications of one run."""

    def __init__(self, catalog: CaptureCatalog, context: dg.AssetExecutionContext) -> None:
        self._context, self._whole = context, catalog.windows_key
        self._keys = {str(table): key for key, table in catalog.keys("snapshot").items()}

    def send(self, notification: Notification) -> None:
        """Report one notification."""
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
