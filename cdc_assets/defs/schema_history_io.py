"""The schema history of a capture as input and output of Spark assets.

A dependency on `[prefix, "schema_history"]` loads the whole history as a data frame; on a table's asset key, that
table's entries: every structure the table has had, with the commit LSN from which it is valid, Debezium's record as
JSON (`record`) and the library's own (`structure`). Output appends entries of the same structure, once per run and
step, such as those of a migrated connector.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql.functions import concat_ws, regexp_replace

from cdc_assets.defs.envelope_io import Committed, EnvelopeFiles, LakeIOManager
from cdc_assets.defs.keys import TABLE, asset_facts, table_and_role
from cdc_assets.envelope.naming import NOT_IN_TOPIC
from cdc_assets.errors import InvalidValueError
from cdc_assets.history.store import SCHEMA, history_directory


class SchemaHistoryIOManager(LakeIOManager):
    """Loads the schema history as a Spark data frame and appends entries to it."""

    def load_input(self, context: dg.InputContext) -> DataFrame:
        """All entries, or those of one table.

        Raises:
            LakeError: there is no history yet, or it cannot be read.
        """
        name, parts = asset_facts(context).get(TABLE), table_and_role(context.asset_key)[0]
        frame = self.load(self.directory(context.asset_key), self.range_of(context.definition_metadata or {}))
        if name:
            return frame.where(concat_ws(".", "database", "schema", "table") == name)
        if len(parts) < 4:
            return frame
        for column, value in zip(("database", "schema", "table"), parts[1:4], strict=True):
            frame = frame.where(regexp_replace(frame[column], NOT_IN_TOPIC, "_") == value)
        return frame

    def handle_output(self, context: dg.OutputContext, obj: "DataFrame | EnvelopeFiles | Committed | None") -> None:
        """Append entries, or report those that a loop has committed.

        Raises:
            InvalidValueError: a column is missing or unknown.
            LakeError: the commit failed.
        """
        if isinstance(obj, Committed):
            self.close_account(context, obj)
            return
        if obj is None:
            return
        names = set(obj.schema.names if isinstance(obj, EnvelopeFiles) else obj.columns)
        if names != set(SCHEMA.names):
            raise InvalidValueError("schema history columns", sorted(names), str(SCHEMA.names), "select these columns")
        self.append(context, self.directory(context.asset_key), obj)

    def directory(self, key: dg.AssetKey) -> str:
        """Directory of the capture's history; without a configuration it is derived from any of the capture's asset keys."""
        prefix = self._config.events.topic_prefix if self._config else key.path[0]
        return history_directory(prefix)
