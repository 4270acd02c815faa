"""What a capture asks of SQL Server and reads from it."""

from cdc_assets.capture.instances import by_table
from cdc_assets.config.settings import StreamingSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import BulkSource, Source
from cdc_assets.core.schema import CaptureInstance


class Server:
    """The two ways to a server, and the capture instances that it has.

    Args:
        bulk: data plane; travels to tasks.
        settings: which capture instances are left out.
    """

    def __init__(self, source: Source, bulk: BulkSource, settings: StreamingSettings) -> None:
        self.source, self.bulk, self._settings = source, bulk, settings
        self._instances: dict[str, dict[TableId, list[CaptureInstance]]] = {}

    def instances(self, database: str, *, anew: bool = True) -> dict[TableId, list[CaptureInstance]]:
        """Capture instances by table, without those that the settings leave out.

        Args:
            anew: ask the server; otherwise the last answer will do.
        """
        if anew or database not in self._instances:
            self._instances[database] = by_table(self.source.capture_instances(database), self._settings)
        return self._instances[database]
