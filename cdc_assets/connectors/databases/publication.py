"""What a publication of PostgreSQL leaves out: operations, tables, rows, columns.

Whatever a publication does not have is never sent, not even later, and no replication slot tells so.
"""

from collections.abc import Mapping, Sequence

from cdc_assets.config.engine import EngineConfig
from cdc_assets.connectors.databases.session import DriverSession
from cdc_assets.connectors.databases.tables import ConnectorFilter
from cdc_assets.core.identifiers import TableId

_PUBLISHED = (
    "WITH direct AS (SELECT c.oid FROM pg_publication_tables p JOIN pg_namespace n ON n.nspname = p.schemaname "
    "JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename WHERE p.pubname = %s) "
    "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid IN ("
    "SELECT oid FROM direct UNION SELECT t.relid FROM direct, pg_partition_tree(oid) t "
    "UNION SELECT a.relid FROM direct, pg_partition_ancestors(oid) a)"
)
"""Tables of a publication; changes of a partition may be sent as its parent's, and a parent has none but its partitions'."""
_OPERATIONS = ("insert", "update", "delete", "truncate")
_SENT = "SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication WHERE pubname = %s"
_FILTERED = (
    "SELECT schemaname, tablename, rowfilter FROM pg_publication_tables WHERE pubname = %s AND rowfilter IS NOT NULL"
)
"""Tables of which a publication sends some rows; refused before PostgreSQL 15, which has no such filters."""
_SHORTENED = (
    "SELECT p.schemaname, p.tablename, a.attname FROM pg_publication_tables p JOIN pg_namespace n ON n.nspname = p.schemaname "
    "JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename JOIN pg_attribute a ON a.attrelid = c.oid "
    "WHERE p.pubname = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND a.attname <> ALL(p.attnames) "
    "ORDER BY a.attnum"
)
"""Columns that a publication leaves out; refused before PostgreSQL 15, which has no lists of columns. Those that are generated are
never sent."""


def _codes(skipped: str) -> frozenset[str]:
    """First letters of the operations in `skipped.operations`, in which an insert is a create."""
    return frozenset({"c": "i"}.get(code.strip(), code.strip()) for code in skipped.split(","))


class Publication:
    """The publication that a connector reads.

    Args:
        session: queries the database.
    """

    def __init__(self, config: EngineConfig, session: DriverSession) -> None:
        self._config, self._session = config, session
        self.name = config.properties.get("publication.name", "dbz_publication")

    def exists(self) -> bool:
        """Whether somebody has made it."""
        return bool(self._session.rows("SELECT 1 AS one FROM pg_publication WHERE pubname = %s", self.name))

    def unsent(self, tables: Sequence[TableId]) -> Mapping[TableId, str]:
        """Those that are not in the publication, or only some rows or columns of them, if the connector takes it as it is: only `filtered` puts
        whole tables into it at each start; and all of them if the publication leaves out operations, which no mode mends."""
        given = self._config.properties
        if given.get("plugin.name") != "pgoutput" or given.get("snapshot.mode") == "initial_only":
            return {}
        published = self._session.one(_SENT, self.name)
        if not published:
            return {}
        skipped = given.get("skipped.operations", "t")
        missing = [name for name in _OPERATIONS if name[0] not in _codes(skipped) and not published[f"pub{name}"]]
        found = dict.fromkeys(tables, self._leaves_out(missing)) if missing else {}
        is_filled = given.get("publication.autocreate.mode") == "filtered"
        if is_filled:
            return found
        return {**found, **self._shortened(tables), **self._filtered(tables), **self._unpublished(tables)}

    def _leaves_out(self, operations: Sequence[str]) -> str:
        names = ", ".join(operations)
        return (
            f"the publication {self.name} leaves out {names}, so such changes do not come. Next: ALTER PUBLICATION "
            f"{self.name} SET (publish = '{', '.join(_OPERATIONS)}'), and then read the table again into a new lake, because "
            "changes of before are not sent later; or leave them out here, too (skipped.operations)"
        )

    def _shortened(self, tables: Sequence[TableId]) -> Mapping[TableId, str]:
        """Tables with captured columns that the publication leaves out."""
        accepts = ConnectorFilter(self._config, "column").accepts
        left_out: dict[tuple[str, str], list[str]] = {}
        for row in self._session.perhaps(_SHORTENED, self.name) or []:
            if accepts(column=(f"{row['schemaname']}.{row['tablename']}.{row['attname']}",)):
                left_out.setdefault((row["schemaname"], row["tablename"]), []).append(row["attname"])
        return {
            table: f"the publication {self.name} leaves out its columns {', '.join(left_out[table.schema, table.table])}, so no event "
            f"has them. Next: {self._whole(table)}; or leave them out here, too (column.exclude.list)"
            for table in tables
            if (table.schema, table.table) in left_out
        }

    def _whole(self, table: TableId) -> str:
        """How a table comes into the publication with all of its rows and columns."""
        change, name = f"ALTER PUBLICATION {self.name}", f'"{table.schema}"."{table.table}"'
        return (
            f"{change} DROP TABLE {name}, then {change} ADD TABLE {name}, and then request an incremental snapshot of it, because "
            "what was left out before is not sent later"
        )

    def _filtered(self, tables: Sequence[TableId]) -> Mapping[TableId, str]:
        found = self._session.perhaps(_FILTERED, self.name) or []
        filters = {(row["schemaname"], row["tablename"]): row["rowfilter"] for row in found}
        return {
            table: f"the publication {self.name} sends only its rows WHERE {filters[table.schema, table.table]}, so changes of all "
            f"others do not come. Next: {self._whole(table)}; or leave it out (table.exclude.list)"
            for table in tables
            if (table.schema, table.table) in filters
        }

    def _unpublished(self, tables: Sequence[TableId]) -> Mapping[TableId, str]:
        found = self._session.perhaps(_PUBLISHED, self.name)
        if found is None:  # PostgreSQL 11 tells nothing of partitions
            return {}
        published = {(row["nspname"], row["relname"]) for row in found}
        return {
            table: f"it is not in the publication {self.name}, so none of its changes comes. Next: "
            f'ALTER PUBLICATION {self.name} ADD TABLE "{table.schema}"."{table.table}", and then request an '
            "incremental snapshot of it, because changes of before are not sent later; or leave it out (table.exclude.list)"
            for table in tables
            if (table.schema, table.table) not in published
        }
