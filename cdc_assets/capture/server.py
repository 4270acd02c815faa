"""The SQL Server of a capture: its control plane, data plane and capture instances."""

from collections.abc import Mapping

from cdc_assets.capture.instances import by_table
from cdc_assets.config.settings import StreamingSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import BulkSource, Source
from cdc_assets.core.schema import CaptureInstance, TableSchema


class Server:
    """Access to one server, with its capture instances.

    Args:
        bulk: data plane; serialized and sent to tasks.
        settings: settings that leave out capture instances.
    """

    def __init__(self, source: Source, bulk: BulkSource, settings: StreamingSettings) -> None:
        self.source, self.bulk, self._settings = source, bulk, settings
        self._instances: dict[str, dict[TableId, list[CaptureInstance]]] = {}

    def described(self, schemas: Mapping[TableId, TableSchema]) -> dict[TableId, TableSchema]:
        """Structures with what the server says about tables and columns; for structures that are about to be recorded."""
        texts = self.source.descriptions(list(schemas.values()))
        return {table: schema.described(texts.get(table, {})) for table, schema in schemas.items()}

    def instances(self, database: str, *, refresh: bool = True) -> dict[TableId, list[CaptureInstance]]:
        """Capture instances by table, except those that the settings leave out.

        Args:
            refresh: whether to ask the server again instead of returning the last answer.
        """
        if refresh or database not in self._instances:
            self._instances[database] = by_table(self.source.capture_instances(database), self._settings)
        return self._instances[database]
