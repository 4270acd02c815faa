"""The schema history of a capture as input and output of Spark assets.

A dependency on `[prefix, "schema_history"]` loads the whole history as a data frame; on a table's asset key, that
table's entries: every structure the table has had, with the commit LSN from which it is valid, Debezium's record as
JSON (`record`) and the library's own (`structure`). Output appends entries of the same structure, once per run and
step, such as those of a migrated connector. What a capture records comes to `write`, each window's entries in one call.
The history of an embedded connector is in that connector's own form.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql.functions import concat_ws, regexp_replace

from cdc_assets.defs.envelope_io import Committed, EnvelopeFiles, LakeIOManager
from cdc_assets.defs.keys import TABLE, asset_facts, table_and_role
from cdc_assets.defs.own_tables import require_frame
from cdc_assets.envelope.naming import NOT_IN_TOPIC, TWO_UNITS
from cdc_assets.errors import InvalidValueError


class SchemaHistoryIOManager(LakeIOManager):
    """Loads the schema history as a Spark data frame and appends entries to it."""

    def load_input(self, context: dg.InputContext) -> DataFrame:
        """All entries, or those of one table.

        Raises:
            InvalidValueError: those of one table are requested, and a connector keeps the history in its own form.
            LakeError: there is no history yet, or it cannot be read.
        """
        name, parts = asset_facts(context).get(TABLE), table_and_role(context.asset_key)[0]
        if (name or len(parts) > 2) and "table" not in self._home.history_columns.names:
            key = context.asset_key.to_user_string()
            raise InvalidValueError(
                "schema history of", key, "that of the whole capture", "depend on [prefix, schema_history]"
            )
        frame = self.load(self.directory(context.asset_key), self.range_of(context.definition_metadata or {}))
        if name:
            return frame.where(concat_ws(".", "database", "schema", "table") == name)
        if len(parts) < 4:
            return frame
        for column, value in zip(("database", "schema", "table"), parts[1:4], strict=True):
            plain = regexp_replace(regexp_replace(frame[column], TWO_UNITS, "__"), NOT_IN_TOPIC, "_")
            frame = frame.where(plain == value)
        return frame

    def handle_output(self, context: dg.OutputContext, obj: "DataFrame | EnvelopeFiles | Committed | None") -> None:
        """Append entries, or report those that a loop has committed.

        Raises:
            InvalidValueError: a column is missing or unknown, or the output is no data frame of Spark.
            LakeError: the commit failed.
        """
        if isinstance(obj, Committed):
            context.add_output_metadata(self.account(obj))
            return
        if obj is None:
            return
        names = set(obj.schema.names if isinstance(obj, EnvelopeFiles) else require_frame(obj).columns)
        if names != set(wanted := self._home.history_columns.names):
            raise InvalidValueError("schema history columns", sorted(names), str(wanted), "select these columns")
        self.append(context, self.directory(context.asset_key), obj)

    def directory(self, key: dg.AssetKey | None = None) -> str:
        """Directory of the capture's history; without a configuration it is derived from any of the capture's asset keys."""
        return self._home.history(key)
