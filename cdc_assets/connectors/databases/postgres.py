"""PostgreSQL, queried through psycopg."""

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from cdc_assets.config.engine import EngineConfig
from cdc_assets.connectors.databases.publication import Publication
from cdc_assets.connectors.databases.session import TIMEOUT_S, DriverSession, require_driver
from cdc_assets.connectors.databases.signal_table import SignalTable, captured_check
from cdc_assets.connectors.databases.tables import column, structures
from cdc_assets.connectors.engine.filters import ConnectorFilter
from cdc_assets.connectors.engine.source import WAKING, LogPoint, Retention, point_of_offset, wal_point
from cdc_assets.core.check_result import CheckResult
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema

_END = "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END"
_REFUSED = ("authentication failed", "no pg_hba.conf entry", "does not exist")
_MAX_MESSAGES = 5000
_NO_CHANGES = "BCORY"
"""First bytes of messages that begin and commit transactions, or describe tables and types."""
_NEAR_BYTES = 256 * 2**20
"""Room of a slot below which it is nearly lost."""


def _shut_down(connection: Any) -> None:
    """Let a wait for the server end with an error; the statement's own time-out is kept by the server, which may be gone."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as shared:
        shared.shutdown(socket.SHUT_RDWR)


class PostgresProbe:
    """Queries one database.

    Raises:
        CdcError: the driver is not installed, or the server cannot be reached.
    """

    def __init__(self, config: EngineConfig) -> None:
        require_driver("psycopg", "postgres")
        import psycopg

        given = config.properties

        def connect() -> Any:
            return psycopg.connect(
                host=given.get("database.hostname", "localhost"),
                port=int(given.get("database.port", "5432")),
                user=given.get("database.user", ""),
                password=given.get("database.password", ""),
                dbname=given.get("database.dbname", "postgres"),
                sslmode=given.get("database.sslmode", "prefer"),
                connect_timeout=TIMEOUT_S,
                options=f"-c statement_timeout={4000 * TIMEOUT_S}",
                autocommit=True,
            )

        self._config = config
        self._database = given.get("database.dbname", "postgres")
        self._slot = given.get("slot.name", "debezium")
        self._session = DriverSession(
            config,
            connect,
            psycopg.Error,
            refused=lambda error: any(part in str(error) for part in _REFUSED),
            lost=lambda connection: connection.closed,
            abort=_shut_down,
        )
        self._publication = Publication(config, self._session)
        columns = "id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048)"
        self._signal_table = SignalTable(config, self._session, quote='"', marks="%s, %s, %s", columns=columns)

    def close(self) -> None:
        """End the connection."""
        self._session.close()

    def clock(self) -> datetime:
        """The server's clock."""
        found: datetime = self._session.one("SELECT clock_timestamp() AS now")["now"]
        return found.astimezone(UTC)

    def log_end(self) -> LogPoint:
        """LSN to which the log is written."""
        found = self._session.one(f"SELECT ({_END} - '0/0'::pg_lsn)::numeric AS lsn")
        return wal_point(int(found["lsn"]))

    def check_replication(self) -> bool:
        """Whether somebody uses the replication slot."""
        return bool(
            self._session.one("SELECT active FROM pg_replication_slots WHERE slot_name = %s", self._slot).get("active")
        )

    def has_no_changes_between(self, offset: Mapping[str, Any], end: LogPoint) -> bool:
        """Whether the slot would send no change after an offset; looking at it does not move it.

        The slot begins before the last transaction until another one follows, so those up to the offset are left out
        (`holds_no_changes`). While a connector uses the slot, or with another plug-in than pgoutput, nothing is known.
        """
        point = point_of_offset(offset)
        if point is None or self._config.properties.get("plugin.name") != "pgoutput":
            return False
        found = self._session.perhaps(
            "SELECT (lsn - '0/0'::pg_lsn)::numeric AS lsn, chr(get_byte(data, 0)) AS kind "
            "FROM pg_logical_slot_peek_binary_changes(%s, NULL, %s, 'proto_version', '1', 'publication_names', %s)",
            self._slot,
            _MAX_MESSAGES,
            self._publication.name,
        )
        if found is None or len(found) >= _MAX_MESSAGES:
            return False
        return holds_no_changes([(str(row["kind"]), int(row["lsn"])) for row in found], point.order[0])

    def retention(self, recorded: LogPoint | None) -> Retention:
        """Whether the replication slot is there and still holds what was not read."""
        end = self.log_end()
        facts: dict[str, str | int | float] = {"log_end": str(end), "slot": self._slot}
        if recorded is not None:
            facts["complete_to"] = str(recorded)
        if recorded is not None and recorded > end:
            lost = (
                f"The log ends at {end}, before {recorded}, which was read: the database was restored, or this is another "
                "server. Next: find out which; capture a new server into a new lake."
            )
            return Retention(lost, facts=facts)
        slot = self._slot_row()
        if not slot and recorded is None:
            return Retention(facts=facts)
        if lost := self._lost(slot, recorded):
            return Retention(lost, facts=facts | _facts_of(slot))
        room = None if slot["safe_wal_size"] is None else int(slot["safe_wal_size"])
        near = ""
        if slot["wal_status"] == "unreserved" or (room is not None and room < _NEAR_BYTES):
            near = (
                f"The replication slot {self._slot} may be lost soon ({slot['wal_status']}): run the capture, or raise "
                "max_slot_wal_keep_size."
            )
        return Retention(near=near, facts=facts | _facts_of(slot), room_bytes=room)

    def _slot_row(self) -> Mapping[str, Any]:
        """What the server reports the slot; nothing if there is none."""
        return self._session.one(
            "SELECT active, wal_status, safe_wal_size, restart_lsn::text AS restart_lsn, "  # noqa: S608 - text of our own
            f"confirmed_flush_lsn::text AS confirmed, ({_END} - restart_lsn)::bigint AS retained, "
            "(confirmed_flush_lsn - '0/0'::pg_lsn)::numeric AS begin "
            "FROM pg_replication_slots WHERE slot_name = %s",
            self._slot,
        )

    def _lost(self, slot: Mapping[str, Any], recorded: LogPoint | None) -> str:
        """Why the slot no longer holds all that was not read; empty if it does."""
        if not slot:
            return (
                f"The replication slot {self._slot} is gone, and with it the changes after {recorded}. "
                "Next: set snapshot.mode=when_needed, which reads the tables again, or capture into a new lake."
            )
        if slot["wal_status"] == "lost" or slot["restart_lsn"] is None:
            return (
                f"The replication slot {self._slot} is lost: its log exceeded max_slot_wal_keep_size and was removed. "
                "Next: drop the slot, capture into a new lake, and raise max_slot_wal_keep_size."
            )
        if recorded is not None and not self._moves_by_itself() and wal_point(int(slot["begin"] or 0)) > recorded:
            return (
                f"The replication slot {self._slot} begins at {slot['confirmed']}, after {recorded}, to which the lake is "
                "complete: it was recreated or moved, and changes in between are lost. Next: set "
                "snapshot.mode=when_needed, which reads the tables again, or capture into a new lake."
            )
        return ""

    def _moves_by_itself(self) -> bool:
        """Whether the slot may be ahead of the lake although nothing is lost: by others, or by the driver in quiet."""
        mode = self._config.properties.get("lsn.flush.mode", "connector")
        return mode != "connector" or self._config.properties.get("flush.lsn.source") == "false"

    def tables(self) -> Sequence[TableSchema]:
        """Structures of the captured tables."""
        accepts = ConnectorFilter(self._config, "schema", "table").accepts
        where = "c.table_schema NOT IN ('pg_catalog', 'information_schema')"
        rows = self._session.rows(
            "SELECT c.* FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name) "  # noqa: S608 - text of our own
            f"WHERE t.table_type = 'BASE TABLE' AND {where} ORDER BY c.table_schema, c.table_name, c.ordinal_position"
        )
        keys = self._session.rows(
            "SELECT n.nspname, t.relname, a.attname FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid "
            "JOIN pg_namespace n ON n.oid = t.relnamespace "
            "CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY AS k(number, place) "
            "JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.number "
            "WHERE i.indisprimary ORDER BY n.nspname, t.relname, k.place"
        )
        found = structures(
            ((TableId(self._database, row["table_schema"], row["table_name"]), column(row)) for row in rows),
            ((TableId(self._database, row["nspname"], row["relname"]), row["attname"]) for row in keys),
        )
        known = [schema for schema in found if schema.columns]
        return [
            schema for schema in known if accepts(schema=(schema.table.schema,), table=(schema.table.within_database,))
        ]

    def unsent(self, tables: Sequence[TableId]) -> Mapping[TableId, str]:
        """Those of which the publication leaves something out, with what and the next step."""
        return self._publication.unsent(tables)

    def inspect(self) -> Sequence[CheckResult]:
        """Log, rights, publication, captured tables, signal table."""
        return [*self._settings(), *self._rights(), *self._captured(), *self._signal_table.checks()]

    def _settings(self) -> Iterator[CheckResult]:
        level = self._session.one("SHOW wal_level")["wal_level"]
        yield CheckResult(
            "wal_level",
            "server",
            level == "logical",
            level,
            "logical",
            "ALTER SYSTEM SET wal_level = 'logical', and restart it",
        )
        own = self._session.rows("SELECT 1 AS one FROM pg_replication_slots WHERE slot_name = %s", self._slot)
        for name, view in (
            ("max_replication_slots", "pg_replication_slots"),
            ("max_wal_senders", "pg_stat_replication"),
        ):
            maximum = int(self._session.one(f"SHOW {name}")[name])
            used = int(self._session.one(f"SELECT count(*) AS used FROM {view}")["used"])  # noqa: S608 - text of our own
            ok = bool(own) or used < maximum
            yield CheckResult(
                name, "server", ok, f"{used} of {maximum} used", "one free", f"ALTER SYSTEM SET {name} = {maximum + 4}"
            )

    def _rights(self) -> Iterator[CheckResult]:
        role = self._session.one("SELECT rolreplication, rolsuper FROM pg_roles WHERE rolname = current_user")
        ok = bool(role.get("rolreplication") or role.get("rolsuper"))
        user = self._config.properties.get("database.user", "")
        yield CheckResult(
            "REPLICATION", user, ok, "granted" if ok else "missing", "granted", f'ALTER ROLE "{user}" REPLICATION'
        )
        if self._config.properties.get("plugin.name", "decoderbufs") != "pgoutput":
            return
        name, there = self._publication.name, self._publication.exists()
        may = self._session.one("SELECT has_database_privilege(current_database(), 'CREATE') AS may")["may"]
        makes = self._config.properties.get("publication.autocreate.mode", "all_tables") != "disabled" and bool(may)
        actual = "there" if there else "made by the connector" if makes else "missing"
        yield CheckResult(
            "publication", name, there or makes, actual, "there, or the right to create it",
            f"CREATE PUBLICATION {name} FOR ALL TABLES, as a superuser",
        )  # fmt: skip

    def _captured(self) -> Iterator[CheckResult]:
        tables = [schema.table for schema in self.tables()]
        yield captured_check(self._database, tables, "schema.include.list and table.include.list (schema.table)")
        identities = {
            (row["nspname"], row["relname"]): (row["relreplident"], row["readable"])
            for row in self._session.rows(
                "SELECT n.nspname, c.relname, c.relreplident::text AS relreplident, has_table_privilege(c.oid, 'SELECT') AS readable "
                "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p')"
            )
        }
        sets, unsent = (
            bool(self._config.properties.get("replica.identity.autoset.values")),
            self._publication.unsent(tables),
        )
        for table in tables:
            if why := unsent.get(table):
                yield CheckResult.failed("publication", str(table), why, "in the publication")
            identity, readable = identities.get((table.schema, table.table), ("d", True))
            yield CheckResult(
                "SELECT", str(table), bool(readable), "granted" if readable else "missing", "granted",
                f'GRANT SELECT ON "{table.schema}"."{table.table}" TO "{self._config.properties.get("database.user", "")}"',
            )  # fmt: skip
            full = identity == "f" or sets
            yield CheckResult(
                "replica identity", str(table), full, "full" if full else "not full: `before` holds only keys", "full",
                f'ALTER TABLE "{table.schema}"."{table.table}" REPLICA IDENTITY FULL', blocking=False,
            )  # fmt: skip

    def nudge(self) -> None:
        """Write a logical message: after its last event the connector waits for the next one, and reads no signal before.

        Its prefix is excluded from the events (`WAKING`).
        """
        self._session.perhaps("SELECT pg_logical_emit_message(true, %s, '')", WAKING)

    def signal(self, id_: str, type_: str, data: str) -> None:
        """Put a row into the signal table."""
        self._signal_table.insert(id_, type_, data)


def _facts_of(slot: Mapping[str, Any]) -> dict[str, str | int | float]:
    """What the server reports of a slot; nothing if there is none."""
    if not slot:
        return {}
    facts: dict[str, str | int | float] = {
        "slot_status": str(slot["wal_status"]),
        "slot_active": str(bool(slot["active"])).lower(),
        "confirmed": str(slot["confirmed"]),
        "retained_bytes": int(slot["retained"] or 0),
    }
    return facts if slot["safe_wal_size"] is None else facts | {"room_bytes": int(slot["safe_wal_size"])}


def holds_no_changes(messages: Sequence[tuple[str, int]], read_to: int) -> bool:
    """Whether all transactions with changes end at a place of the log or before it.

    A slot sends transactions in the order of their ends, and an offset after a transaction is its end. So the end decides:
    a transaction that was begun before the place and is committed after it was not read, and neither was one whose first
    change is written at the very place.

    Args:
        messages: first byte and LSN of pgoutput's messages, whole transactions in the slot's order; the LSN of a commit is where
            its transaction ends.
        read_to: greatest LSN of the offset.
    """
    has_changes = False
    for kind, lsn in messages:
        if kind == "B":
            has_changes = False
        elif kind == "C" and has_changes and lsn > read_to:
            return False
        has_changes = has_changes or kind not in _NO_CHANGES
    return True
