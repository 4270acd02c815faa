"""The SQL Server of a capture: its control plane, data plane and capture instances."""

from collections.abc import Mapping

from cdc_assets.config.settings import StreamingSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import BulkSource, Source
from cdc_assets.core.schema import CaptureInstance, TableSchema
from cdc_assets.history.store import SchemaHistory
from cdc_assets.shared.instances import by_age, by_table


class Server:
    """Access to one server, with its capture instances.

    Args:
        bulk: data plane; serialized and sent to tasks.
        settings: settings that leave out capture instances.
        history: says which of two instances of a table is the newer one.
    """

    def __init__(self, source: Source, bulk: BulkSource, settings: StreamingSettings, history: SchemaHistory) -> None:
        self.source, self.bulk, self._settings, self._history = source, bulk, settings, history
        self._instances: dict[str, dict[TableId, list[CaptureInstance]]] = {}

    def reaching(self, database: str, lsn: Lsn, *, captured: bool = True) -> BulkSource:
        """The data plane over sessions whose server has the log of a database up to an LSN, on no fork that it has left."""
        return self.bulk.reaching(database, lsn, captured=captured, left=self.source.left_forks(database))

    def described(self, schemas: Mapping[TableId, TableSchema]) -> dict[TableId, TableSchema]:
        """Structures with what the server says about tables and columns; for structures that are about to be recorded."""
        texts = self.source.descriptions(list(schemas.values()))
        return {table: schema.described(texts.get(table, {})) for table, schema in schemas.items()}

    def instances(
        self, database: str, *, known: Lsn = ZERO_LSN, refresh: bool = True
    ) -> dict[TableId, list[CaptureInstance]]:
        """Capture instances by table, oldest first, except those that the settings leave out.

        Args:
            known: up to where the server that answers must have captured the log, so that it shows what begins before.
            refresh: whether to ask the server again instead of returning the last answer.
        """
        if refresh or database not in self._instances:
            found = by_table(self.source.capture_instances(database, known), self._settings)
            self._instances[database] = {
                table: by_age(own, self._history.entries(table)) if len(own) > 1 else own
                for table, own in found.items()
            }
        return self._instances[database]
