"""Shows notifications of a capture in Dagster, as observations of the assets that they concern.

The `snapshot` asset of a table shows when its rows began to be read again and how that
ended, however it was requested. Notifications about no single table are shown on the window
manifest. Intermediate steps (`IN_PROGRESS`, chunks) go only into the run's log,
since an event costs tens of milliseconds and is never pruned. So do all steps of single tables
beyond the first `_MAX_STEPS` of a snapshot, and only into the log of its process (stderr): a first snapshot of a thousand tables has two
for each, and each table has its materialization at the end.
"""

import logging

import dagster as dg

from cdc_assets.core.notification import Notification
from cdc_assets.defs.catalog import CaptureCatalog

log = logging.getLogger(__name__)

_MAX_STEPS = 100
"""Maximum number of steps of single tables of one snapshot that are reported."""
_MAX_OBSERVED = 20
"""Maximum number of tables in one notification that are observed separately."""


class Notices:
    """Reports notifications of one run."""

    def __init__(self, catalog: CaptureCatalog, context: dg.AssetExecutionContext) -> None:
        self._context, self._whole = context, catalog.page_key
        self._steps = 0
        self._keys = {str(table): key for key, table in catalog.keys("snapshot").items()}

    def send(self, notification: Notification) -> None:
        """Report one notification."""
        self._steps = 0 if notification.kind == "STARTED" else self._steps + _is_step(notification)
        if self._steps > _MAX_STEPS and _is_step(notification):
            log.info("%s", notification)
            return
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
        return known if 0 < len(known) <= _MAX_OBSERVED else [self._whole]


def _is_step(notification: Notification) -> bool:
    """Whether it is about the progress of one table."""
    read = notification.kind == "TABLE_SCAN_COMPLETED" and notification.data.get("status") in ("SUCCEEDED", "EMPTY")
    return read or notification.kind == "IN_PROGRESS" or notification.kind.startswith("TABLE_CHUNK")
