"""Oracle, queried through python-oracledb without a client of its own. Not tried on a server: there was none."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cdc_assets.config.engine import EngineConfig
from cdc_assets.connectors.databases.session import TIMEOUT_S, DriverSession, require_driver
from cdc_assets.connectors.databases.signal_table import SignalTable, captured_check
from cdc_assets.connectors.databases.tables import column, structures
from cdc_assets.connectors.engine.filters import ConnectorFilter
from cdc_assets.connectors.engine.source import LogPoint, Retention
from cdc_assets.core.check_result import CheckResult
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema

_REFUSED = ("ORA-01017", "ORA-28000", "ORA-01005")


class OracleProbe:
    """Queries one database.

    Raises:
        CdcError: the driver is not installed, or the server cannot be reached.
    """

    def __init__(self, config: EngineConfig) -> None:
        require_driver("oracledb", "oracle")
        import oracledb

        given = config.properties
        name = given.get("database.dbname", "")
        address = f"{given.get('database.hostname', 'localhost')}:{given.get('database.port', '1521')}/{name}"

        def connect() -> Any:
            found = oracledb.connect(
                user=given.get("database.user", ""),
                password=given.get("database.password", ""),
                dsn=given.get("database.url", "").removeprefix("jdbc:oracle:thin:@") or address,
                tcp_connect_timeout=TIMEOUT_S,
            )
            found.autocommit = True
            found.call_timeout = 4000 * TIMEOUT_S
            return found

        self._config, self._database = config, given.get("database.pdb.name") or name
        self._session = DriverSession(
            config,
            connect,
            oracledb.Error,
            refused=lambda error: any(part in str(error) for part in _REFUSED),
            lost=lambda connection: not connection.is_healthy(),
        )
        columns = "id VARCHAR2(42) PRIMARY KEY, type VARCHAR2(32) NOT NULL, data VARCHAR2(2048)"
        self._signal_table = SignalTable(
            config, self._session, quote='"', marks=":1, :2, :3", columns=columns, max_parts=2
        )

    def close(self) -> None:
        """End the connection."""
        self._session.close()

    def clock(self) -> datetime:
        """The server's clock."""
        found: datetime = self._session.one("SELECT SYS_EXTRACT_UTC(SYSTIMESTAMP) AS now FROM DUAL")["now"]
        return found.replace(tzinfo=UTC)

    def log_end(self) -> LogPoint:
        """The current SCN; it moves even if nothing is changed."""
        return _point(self._session.one("SELECT CURRENT_SCN AS scn FROM V$DATABASE")["scn"])

    def check_replication(self) -> None:
        """Not known: the connector reads LogMiner by queries, which fail if the connection is lost."""

    def has_no_changes_between(self, offset: Mapping[str, Any], end: LogPoint) -> bool:
        """The log cannot be searched for what it holds, so this is never known; heartbeats move the offset to its end."""
        return False

    def retention(self, recorded: LogPoint | None) -> Retention:
        """Whether the logs still begin before what was read."""
        oldest = self._session.one(
            "SELECT MIN(first_change) AS scn FROM (SELECT FIRST_CHANGE# AS first_change FROM V$ARCHIVED_LOG "
            "WHERE DELETED = 'NO' AND ARCHIVED = 'YES' AND STATUS = 'A' UNION ALL SELECT FIRST_CHANGE# FROM V$LOG)"
        )["scn"]
        facts: dict[str, str | int | float] = {"log_end": str(self.log_end()), "oldest": str(oldest)}
        if recorded is None:
            return Retention(facts=facts)
        facts["complete_to"] = str(recorded)
        if oldest is not None and recorded < _point(oldest):
            lost = (
                f"The lake is complete to SCN {recorded}, and the oldest log begins at {oldest}: changes in between are lost. "
                "Next: capture into a new lake, and keep archived logs for longer."
            )
            return Retention(lost, facts=facts)
        return Retention(facts=facts)

    def tables(self) -> Sequence[TableSchema]:
        """Structures of the captured tables."""
        accepts = ConnectorFilter(self._config, "schema", "table").accepts
        users = "SELECT USERNAME FROM ALL_USERS WHERE ORACLE_MAINTAINED = 'N'"
        rows = self._session.rows(
            "SELECT OWNER, TABLE_NAME, COLUMN_NAME, COLUMN_ID AS ORDINAL_POSITION, DATA_TYPE, NULLABLE AS IS_NULLABLE, "  # noqa: S608 - text of our own
            "CHAR_LENGTH AS CHARACTER_MAXIMUM_LENGTH, DATA_PRECISION AS NUMERIC_PRECISION, DATA_SCALE AS NUMERIC_SCALE "
            f"FROM ALL_TAB_COLUMNS JOIN ALL_TABLES USING (OWNER, TABLE_NAME) WHERE OWNER IN ({users}) ORDER BY 1, 2, 4"
        )
        keys = self._session.rows(
            "SELECT c.OWNER, c.TABLE_NAME, k.COLUMN_NAME FROM ALL_CONSTRAINTS c JOIN ALL_CONS_COLUMNS k "
            "ON k.OWNER = c.OWNER AND k.CONSTRAINT_NAME = c.CONSTRAINT_NAME "
            "WHERE c.CONSTRAINT_TYPE = 'P' ORDER BY 1, 2, k.POSITION"
        )
        found = structures(
            ((TableId(self._database, row["owner"], row["table_name"]), column(row)) for row in rows),
            ((TableId(self._database, row["owner"], row["table_name"]), row["column_name"]) for row in keys),
        )
        known = [schema for schema in found if schema.columns]
        return [
            schema for schema in known if accepts(schema=(schema.table.schema,), table=(schema.table.within_database,))
        ]

    def unsent(self, tables: Sequence[TableId]) -> Mapping[TableId, str]:
        """None: the redo log has the changes of all tables."""
        del tables
        return {}

    def inspect(self) -> Sequence[CheckResult]:
        """Archive log, supplemental logging, captured tables."""
        return list(self._results())

    def _results(self) -> Iterator[CheckResult]:
        found = self._session.one("SELECT LOG_MODE, SUPPLEMENTAL_LOG_DATA_MIN AS MINIMAL FROM V$DATABASE")
        mode, minimal = str(found["log_mode"]), str(found["minimal"])
        yield CheckResult(
            "log mode",
            "database",
            mode == "ARCHIVELOG",
            mode,
            "ARCHIVELOG",
            "ALTER DATABASE ARCHIVELOG, while it is mounted",
        )
        yield CheckResult(
            "supplemental logging",
            "database",
            minimal != "NO",
            minimal,
            "YES",
            "ALTER DATABASE ADD SUPPLEMENTAL LOG DATA",
        )
        yield captured_check(self._database, self.tables(), "schema.include.list and table.include.list (schema.table)")
        yield from self._signal_table.checks()

    def nudge(self) -> None:
        """Nothing: this connector takes up signals in quiet as well."""

    def signal(self, id_: str, type_: str, data: str) -> None:
        """Put a row into the signal table."""
        self._signal_table.insert(id_, type_, data)


def _point(scn: object) -> LogPoint:
    return LogPoint((int(str(scn)),), str(scn))
