"""The SQL Server of a capture: its control plane, data plane and capture instances."""

from cdc_assets.capture.instances import by_table
from cdc_assets.config.settings import StreamingSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import BulkSource, Source
from cdc_assets.core.schema import CaptureInstance


class Server:
    """Access to one server, with its capture instances.

    Args:
        bulk: data plane; serialized and sent to tasks.
        settings: settings that leave out capture instances.
    """

    def __init__(self, source: Source, bulk: BulkSource, settings: StreamingSettings) -> None:
        self.source, self.bulk, self._settings = source, bulk, settings
        self._instances: dict[str, dict[TableId, list[CaptureInstance]]] = {}

    def instances(self, database: str, *, refresh: bool = True) -> dict[TableId, list[CaptureInstance]]:
        """Capture instances by table, except those that the settings leave out.

        Args:
            refresh: whether to ask the server again instead of returning the last answer.
        """
        if refresh or database not in self._instances:
            self._instances[database] = by_table(self.source.capture_instances(database), self._settings)
        return self._instances[database]
