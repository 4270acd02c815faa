"""MySQL and MariaDB, queried through PyMySQL."""

import re
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from cdc_assets.config.engine import EngineConfig
from cdc_assets.connectors.databases.binlog import Binlog
from cdc_assets.connectors.databases.session import TIMEOUT_S, DriverSession, Rows, require_driver
from cdc_assets.connectors.databases.signal_table import SignalTable, captured_check
from cdc_assets.connectors.databases.tables import column, structures
from cdc_assets.connectors.engine.filters import ConnectorFilter
from cdc_assets.connectors.engine.source import LogPoint, Retention, binlog_point
from cdc_assets.core.check_result import CheckResult
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema
from cdc_assets.errors import CdcError, QueryError

_REFUSED = (1044, 1045, 1698, 2061)
_SYSTEM = ("mysql", "information_schema", "performance_schema", "sys")
_RIGHTS = {
    "SELECT": ("SELECT",),
    "REPLICATION SLAVE": ("REPLICATION SLAVE", "REPLICATION REPLICA"),
    "REPLICATION CLIENT": ("REPLICATION CLIENT", "BINLOG MONITOR"),
}
_LOCKS = ("RELOAD", "LOCK TABLES")
_NO_BORDER = ("Wrong offset", "Invalid pos")
"""What servers say of a binlog position at which no event begins, and of one after its end (error 1220)."""

_MAX_EVENTS, _MAX_FILES = 2000, 3
_MAPPED = re.compile(r"\((.+\..+)\)")


def _is_change(kind: str, info: str, accepts: Callable[..., bool]) -> bool:
    """Whether an event of the binlog means rows of a table that is read: each such statement begins with its table map.

    A compressed transaction does not show its tables (binlog_transaction_compression), so it may.
    """
    if kind.lower() == "transaction_payload":
        return True
    if kind.lower().startswith("query"):
        return "truncate" in info.lower()
    if kind.lower() == "table_map":
        found = _MAPPED.search(info)
        return found is None or any(accepts(database=(name,), table=(found[1],)) for name in _databases(found[1]))
    return False


def _databases(table: str) -> Iterator[str]:
    """Names that the database of a table may have, for the server does not quote: a point may be the border, or of a name."""
    return (table[: point.start()] for point in re.finditer(r"\.", table))


def read_tables(config: EngineConfig) -> Callable[..., bool]:
    """Whether the connector reads a table: those that its lists let through, and its signal table, whatever the lists say."""
    accepts = ConnectorFilter(config, "database", "table").accepts
    signals = config.properties.get("signal.data.collection", "").strip().lower()

    def reads(database: tuple[str], table: tuple[str]) -> bool:
        return table[0].lower() == signals or accepts(database=database, table=table)

    return reads


class MySqlProbe:
    """Queries one server.

    Raises:
        CdcError: the driver is not installed, or the server cannot be reached.
    """

    def __init__(self, config: EngineConfig) -> None:
        require_driver("pymysql", "mysql")
        import pymysql

        given = config.properties
        encrypted = given.get("database.ssl.mode", "preferred").lower() not in ("disabled", "preferred", "prefer")

        def connect() -> Any:
            return pymysql.connect(
                host=given.get("database.hostname", "localhost"),
                port=int(given.get("database.port", "3306")),
                user=given.get("database.user", ""),
                password=given.get("database.password", ""),
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=TIMEOUT_S,
                read_timeout=4 * TIMEOUT_S,
                write_timeout=4 * TIMEOUT_S,
                ssl=ssl.create_default_context() if encrypted else None,
            )

        self._config = config
        self._session = DriverSession(
            config,
            connect,
            pymysql.MySQLError,
            refused=lambda error: bool(error.args) and error.args[0] in _REFUSED,
            lost=lambda connection: not connection.open,
        )
        self._binlog = Binlog(config, self._session)
        columns = "id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT NULL"
        self._signal_table = SignalTable(config, self._session, quote="`", marks="%s, %s, %s", columns=columns)

    def close(self) -> None:
        """End the connection."""
        self._session.close()

    def clock(self) -> datetime:
        """The server's clock."""
        found: datetime = self._session.one("SELECT UTC_TIMESTAMP(6) AS now")["now"]
        return found.replace(tzinfo=UTC)

    def log_end(self) -> LogPoint:
        """File and position that the next transaction will have.

        Raises:
            CdcError: the server cannot be queried, or writes no binlog.
        """
        found = self._binlog.status()
        return binlog_point(found["file"], int(found["position"]))

    def check_replication(self) -> None:
        """Not known: MySQL has no replication slots. The connector's client notices a lost connection by missing heartbeats."""

    def has_no_changes_between(self, offset: Mapping[str, Any], end: LogPoint) -> bool:
        """Whether the binlog holds no rows of tables that the connector reads, and no TRUNCATE, after an offset.

        An offset made by an event names the beginning of its transaction (`file`, `pos`) and how many events of it are
        complete (`event`); the next event is the one whose last row was sent, because the connector was quiet then.
        """
        accepts = read_tables(self._config)
        place, skip = binlog_point(str(offset["file"]), int(offset["pos"])), int(offset.get("event") or 0)
        skip += 1 if int(offset.get("row") or 0) else 0
        names = [str(row["log_name"]) for row in self._session.rows("SHOW BINARY LOGS")]
        files = [name for name in names if place.order[0] <= binlog_point(name, 0).order[0] <= end.order[0]]
        if not files or binlog_point(files[0], 0).order[0] != place.order[0] or len(files) > _MAX_FILES:
            return False
        for number, name in enumerate(files):
            events = self._events(name, place.order[1] if number == 0 else None, _MAX_EVENTS)
            if events is None or len(events) == _MAX_EVENTS:
                return False
            for event in events[skip if number == 0 else 0 :]:
                if _is_change(str(event["event_type"]), str(event["info"]), accepts):
                    return False
        return True

    def retention(self, recorded: LogPoint | None) -> Retention:
        """Whether the file that reading continues in was purged."""
        logs = self._session.rows("SHOW BINARY LOGS")
        end = self.log_end()
        facts: dict[str, str | int | float] = {
            "log_end": str(end),
            "oldest_file": str(logs[0]["log_name"]) if logs else "none",
            "binlog_bytes": sum(int(row["file_size"]) for row in logs),
        }
        kept_h = None
        if (seconds := self._expires_s()) is not None:
            facts["kept_for_hours"] = round(seconds / 3600, 1) if seconds else "until purged by hand"
            kept_h = seconds / 3600 if seconds else None
        if recorded is None or not logs:
            return Retention(facts=facts, kept_h=kept_h)
        facts["complete_to"] = str(recorded)
        first = str(logs[0]["log_name"])
        if lost := self._lost(recorded, first, end):
            return Retention(lost, facts=facts)
        near = ""
        if recorded.order[0] == binlog_point(first, 0).order[0] != end.order[0]:
            near = f"The next purge would remove {first}, which is not read to its end."
        return Retention(near=near, facts=facts, kept_h=kept_h)

    def _lost(self, recorded: LogPoint, first: str, end: LogPoint) -> str:
        """Why the binlog no longer has all that was not read; empty if it has."""
        if recorded.order[0] < binlog_point(first, 0).order[0]:
            return (
                f"The binlog was purged: the lake is complete to {recorded}, and the oldest file is {first}. "
                "Changes in between are lost. Next: capture into a new lake, or set snapshot.mode=when_needed, "
                "and keep the binlog for longer (binlog_expire_logs_seconds)."
            )
        if recorded > end:
            return (
                f"The binlog ends at {end}, before {recorded}, which was read: it was reset, or this is another server. "
                "Next: find out which; capture a new server into a new lake."
            )
        if not self._is_border(recorded):
            return (
                f"No event of the binlog begins at {recorded}, to which it was read: it was reset and has grown since, or this is "
                "another server. Next: find out which; set snapshot.mode=when_needed, or capture into a new lake."
            )
        return ""

    def _is_border(self, recorded: LogPoint) -> bool:
        """Whether an event begins at a place of the log, or ended there, as it was when the place was recorded.

        The server reads the one event at this place, so it takes no longer in a large file. In another log a place
        that is taken blindly is such a border once in about a hundred times.
        """
        file, _, position = recorded.text.rpartition(":")
        return self._events(file, int(position), 1) is not None

    def _events(self, file: str, start: int | None, max_events: int) -> Rows | None:
        """Events of a binlog file from a place on; None if none begins there and the file does not end there."""
        place = "" if start is None else f" FROM {start}"
        try:
            return self._session.rows(f"SHOW BINLOG EVENTS IN '{file}'{place} LIMIT {max_events}")
        except QueryError as error:
            if any(text in str(error) for text in _NO_BORDER):
                return None
            raise

    def _expires_s(self) -> float | None:
        found = {
            row["variable_name"]: row["value"] for row in self._session.rows("SHOW VARIABLES LIKE '%expire_logs%'")
        }
        for name, factor in (("binlog_expire_logs_seconds", 1), ("expire_logs_days", 86400)):
            if float(found.get(name) or 0):
                return float(found[name]) * factor
        return 0.0 if found else None

    def tables(self) -> Sequence[TableSchema]:
        """Structures of the captured tables."""
        accepts = ConnectorFilter(self._config, "database", "table").accepts
        marks = ", ".join(["%s"] * len(_SYSTEM))
        names = "table_schema AS table_schema, table_name AS table_name, column_name AS column_name"
        rows = self._session.rows(
            f"SELECT {names}, ordinal_position AS ordinal_position, data_type AS data_type, is_nullable AS is_nullable, "  # noqa: S608 - names of our own
            "character_maximum_length AS character_maximum_length, numeric_precision AS numeric_precision, "
            "numeric_scale AS numeric_scale FROM information_schema.columns JOIN information_schema.tables "
            "USING (table_schema, table_name) "
            f"WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ({marks}) ORDER BY 1, 2, 4",
            *_SYSTEM,
        )
        keys = self._session.rows(
            f"SELECT {names} FROM information_schema.key_column_usage WHERE constraint_name = 'PRIMARY' "  # noqa: S608 - names of our own
            f"AND table_schema NOT IN ({marks}) ORDER BY table_schema, table_name, ordinal_position",
            *_SYSTEM,
        )
        found = structures(
            ((TableId(row["table_schema"], "", row["table_name"]), column(row)) for row in rows),
            ((TableId(row["table_schema"], "", row["table_name"]), row["column_name"]) for row in keys),
        )
        return [schema for schema in found if accepts(database=(schema.table.database,), table=(str(schema.table),))]

    def unsent(self, tables: Sequence[TableId]) -> Mapping[TableId, str]:
        """Those whose changes the server does not write into its binlog, or not so that the connector reads them."""
        return self._binlog.unsent(tables)

    def inspect(self) -> Sequence[CheckResult]:
        """Binlog, rights, captured tables, signal table."""
        tables, expected = self.tables(), "database.include.list and table.include.list (db.table)"
        results = [*self._settings(), *self._rights(), captured_check("server", tables, expected)]
        with suppress(CdcError):  # without a binlog, or the right to see its state, which the checks before say
            results += [
                CheckResult.failed("binlog", str(table), why, "all of its changes, whole, in it")
                for table, why in self.unsent([schema.table for schema in tables]).items()
            ]
        return [*results, *self._signal_table.checks()]

    def _settings(self) -> Iterator[CheckResult]:
        wanted = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL"}
        found = {row["variable_name"]: row["value"] for row in self._session.rows("SHOW GLOBAL VARIABLES")}
        for name, expected in wanted.items():
            actual = str(found.get(name, "not there"))
            remedy = f"start the server with {name.replace('_', '-')}={'bin' if name == 'log_bin' else expected}"
            yield CheckResult(name, "server", actual.upper() == expected, actual, expected, remedy)
        number = str(found.get("server_id", "0"))
        yield CheckResult("server_id", "server", number != "0", number, "not 0", "start the server with server-id=1")
        own = self._config.properties.get("database.server.id", "")
        text = f"{own or 'chosen at random'}"
        yield CheckResult(
            "database.server.id", "connector", bool(own) and own != number, text, "a number that no other replica has",
            "set database.server.id", blocking=own == number,
        )  # fmt: skip

    def _rights(self) -> Iterator[CheckResult]:
        grants = [next(iter(row.values())) for row in self._session.rows("SHOW GRANTS")]
        held = ",".join(re.sub(r" ON .*", "", str(text).removeprefix("GRANT ")) for text in grants).upper()
        names = {part.strip() for part in held.split(",")}
        everything = any(name.startswith("ALL PRIVILEGES") for name in names)
        user = self._config.properties.get("database.user", "")
        for name, forms in _RIGHTS.items():
            ok = everything or any(form in names for form in forms)
            yield CheckResult(
                "privilege", name, ok, "granted" if ok else "missing", "granted", f"GRANT {name} ON *.* TO '{user}'@'%'"
            )
        locks = everything or any(name in names for name in _LOCKS)
        yield CheckResult(
            "privilege", "RELOAD", locks, "granted" if locks else "missing", "granted, or snapshot.locking.mode=none",
            f"GRANT RELOAD ON *.* TO '{user}'@'%'", blocking=False,
        )  # fmt: skip

    def nudge(self) -> None:
        """Nothing: this connector takes up signals in quiet as well."""

    def signal(self, id_: str, type_: str, data: str) -> None:
        """Put a row into the signal table."""
        self._signal_table.insert(id_, type_, data)
