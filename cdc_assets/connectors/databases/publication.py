"""What a publication of PostgreSQL leaves out: operations, tables, rows, columns.

Whatever a publication does not have is never sent, not even later, and no replication slot tells so.
"""

from collections.abc import Collection, Mapping, Sequence

from cdc_assets.config.engine import EngineConfig
from cdc_assets.connectors.databases.session import DriverSession, Rows
from cdc_assets.connectors.engine.filters import ConnectorFilter
from cdc_assets.core.identifiers import TableId

_PUBLISHED = "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s"
"""Names under which changes are sent: of partitions, or with `publish_via_partition_root` of the tables that they belong to."""
_VIA_ROOT = "SELECT pubviaroot FROM pg_publication WHERE pubname = %s"
"""Refused before PostgreSQL 13, which sends partitions only."""
_LINES = (
    "SELECT l.oid, l.relkind = 'r' AS has_rows, n.nspname, c.relname FROM pg_class l "
    "CROSS JOIN LATERAL pg_partition_ancestors(l.oid) WITH ORDINALITY AS a(relid, place) "
    "JOIN pg_class c ON c.oid = a.relid JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE (l.relispartition AND l.relkind = 'r') OR l.relkind = 'p' ORDER BY l.oid, a.place"
)
"""Each partition, and each table that has some, with all that it belongs to, nearest first."""
_MAX_NAMED = 5
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


Name = tuple[str, str]
"""Of a table: schema and table."""
Line = list[Name]
"""A partition and all that it belongs to, nearest first; or a table by itself."""


def _codes(skipped: str) -> frozenset[str]:
    """First letters of the operations in `skipped.operations`, in which an insert is a create."""
    return frozenset({"c": "i"}.get(code.strip(), code.strip()) for code in skipped.split(","))


def _lines_of(rows: Rows) -> Mapping[Name, list[Line]]:
    """Lines of partitions with rows by each table in them; a table without any has an empty list."""
    lines: dict[int, Line] = {}
    for row in rows:
        lines.setdefault(row["oid"], []).append((row["nspname"], row["relname"]))
    with_rows = {row["oid"] for row in rows if row["has_rows"]}
    found: dict[Name, list[Line]] = {}
    for oid, line in lines.items():
        for name in line:
            found.setdefault(name, []).extend([line] if oid in with_rows else [])
    return found


def _sent_as(line: Line, published: Collection[Name]) -> Name | None:
    """The name under which changes of a partition are sent: the furthest in the publication; None if they are not."""
    return next((name for name in reversed(line) if name in published), None)


def _named(names: Collection[Name]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(".".join(name) for name in sorted(names)[:_MAX_NAMED]) + more


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
        unpublished = self._unpublished(tables, is_filled=is_filled)
        if is_filled:
            return {**found, **unpublished}
        return {**found, **self._shortened(tables), **self._filtered(tables), **unpublished}

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

    def _unpublished(self, tables: Sequence[TableId], *, is_filled: bool) -> Mapping[TableId, str]:
        """Tables that are not in the publication, or of which it sends changes under names that the connector leaves out."""
        rows = self._session.perhaps(_LINES)
        if rows is None:  # PostgreSQL 11 tells nothing of partitions
            return {}
        lines = _lines_of(rows)
        own = {table: lines.get((table.schema, table.table), [[(table.schema, table.table)]]) for table in tables}
        if is_filled:
            if any(row["pubviaroot"] for row in self._session.perhaps(_VIA_ROOT, self.name) or []):
                return {}
            published = {line[0] for of_table in own.values() for line in of_table}
        else:
            published = {(row["schemaname"], row["tablename"]) for row in self._session.rows(_PUBLISHED, self.name)}
        accepts = ConnectorFilter(self._config, "schema", "table").accepts
        left_out = {name for name in published if not accepts(schema=name[:1], table=(".".join(name),))}
        reasons = {table: self._unsent(table, of_table, published, left_out) for table, of_table in own.items()}
        return {table: why for table, why in reasons.items() if why}

    def _unsent(
        self, table: TableId, lines: Sequence[Line], published: Collection[Name], left_out: Collection[Name]
    ) -> str:
        """Why changes of a table do not come; empty if all do."""
        sent = {line[0]: _sent_as(line, published) for line in lines}
        if missing := [name for name, known_as in sent.items() if known_as is None]:
            is_whole = len(missing) == len(lines)
            what = "it is" if is_whole else f"its partitions {_named(missing)} are"
            return (
                f"{what} not in the publication {self.name}, so none of {'its' if is_whole else 'their'} changes comes. Next: "
                f'ALTER PUBLICATION {self.name} ADD TABLE "{table.schema}"."{table.table}", and then request an '
                "incremental snapshot of it, because changes of before are not sent later; or leave it out (table.exclude.list)"
            )
        others = {name for name in sent.values() if name and name in left_out}
        if not others:
            return ""
        is_below = not others.isdisjoint(sent)
        return (
            f"the publication {self.name} sends its changes as those of {_named(others)}, which the connector leaves out, so they do "
            f"not come. Next: capture {_named(others)} (table.include.list), or ALTER PUBLICATION {self.name} SET "
            f"(publish_via_partition_root = {str(is_below).lower()}){', with it in the publication' if is_below else ''}; and then "
            "request an incremental snapshot, because changes of before are not sent later; or leave it out (table.exclude.list)"
        )
