"""Missing permissions of the login, each with its GRANT; docs/rights.md lists all permissions.

A permission is checked by trying the operation if that reads no row, otherwise by querying it: servers before 2022 do
not know the names of newer permissions.
"""

from collections.abc import Iterator

from cdc_assets.adapters.sqlserver import queries, table_queries
from cdc_assets.adapters.sqlserver.rows import lsn_of
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.check_result import CheckResult
from cdc_assets.core.identifiers import quote
from cdc_assets.core.lsn import ZERO_LSN
from cdc_assets.core.signal import signal_table
from cdc_assets.errors import CdcError, PreflightError

_METADATA = ("change_tables", "captured_columns", "lsn_time_mapping", "ddl_history")


def closed_database(source: SqlServerSource, database: str) -> CheckResult | None:
    """The check that fails if the login sees a database but has no user in it; None if it has one."""
    if source.session.value(queries.DATABASE_ACCESS, database):
        return None
    login = _login(source)
    remedy = f"USE {quote(database)}; CREATE USER {login} FOR LOGIN {login};"
    return CheckResult("database", database, False, "closed to the login", "open to it", remedy)


def grant_on_server(source: SqlServerSource, permission: str) -> str:
    """The statement that grants the login a permission of the server."""
    return f"USE [master]; GRANT {permission} TO {_login(source)};"


def _fact(error: CdcError) -> str:
    """The problem in an error's message, without the next step, which becomes the remedy."""
    return str(error).partition(" Next: ")[0]


def _login(source: SqlServerSource) -> str:
    return quote(str(source.session.value(queries.LOGIN)))


class Rights:
    """The login's permissions in a database that it may use.

    Args:
        database: name of an online database.
    """

    def __init__(self, source: SqlServerSource, database: str) -> None:
        self._source, self._session, self.database = source, source.session, database
        user = self._session.value(queries.of_database(queries.OWN_USER, database))
        self._user = quote(str(user)) if user else _login(source)

    def grant_on_server(self, permission: str) -> str:
        """The statement that grants the login a permission of the server."""
        return grant_on_server(self._source, permission)

    def _grant(self, permission: str) -> str:
        return f"USE {quote(self.database)}; GRANT {permission} TO {self._user};"

    def reading(self, name: str) -> CheckResult:
        """Check whether a table, given by its quoted name, may be read; reads no rows."""
        try:
            self._session.rows(table_queries.access_check_query(name))
        except CdcError as error:
            if error.retryable:
                raise
            return CheckResult("reading", name, False, _fact(error), "allowed", self._select(name))
        return CheckResult("reading", name, True, "allowed", "allowed")

    def _select(self, name: str) -> str:
        place = name.removeprefix(f"{quote(self.database)}.")
        return self._grant("SELECT ON SCHEMA::[cdc]" if place.startswith("cdc.") else f"SELECT ON {place}")

    def unreadable_metadata(self) -> CheckResult | None:
        """The first table of CDC metadata that may not be read; None if all may."""
        results = (self.reading(f"{quote(self.database)}.cdc.{quote(table)}") for table in _METADATA)
        return next((result for result in results if not result.ok), None)

    def found(self, config: CaptureConfig) -> Iterator[CheckResult]:
        """Missing permissions, if CDC metadata may be read."""
        yield from self._unseen_sources()
        yield from self._unseen_defaults()
        yield from self._unseen_errors()
        yield from self._signals(config)
        if config.streaming.query_mode == "function":
            yield from self._gates()

    def _unseen_sources(self) -> Iterator[CheckResult]:
        """Captured tables that are invisible to the login, so that their absence would not be noticed."""
        for instance, _ in self._session.rows(
            queries.of_database(queries.UNSEEN_SOURCES, self.database), self.database
        ):
            subject = f"the table that instance {instance} of {self.database} captures"
            remedy = f"{self._grant('SELECT ON <that table>')} or do nothing if it is not to be read"
            yield CheckResult("reading", subject, False, "not visible to the login", "allowed", remedy, blocking=False)

    def _unseen_defaults(self) -> Iterator[CheckResult]:
        for schema, table in self._session.rows(queries.of_database(queries.UNSEEN_DEFAULTS, self.database)):
            place = f"{quote(str(schema))}.{quote(str(table))}"
            remedy = self._grant(f"VIEW DEFINITION ON {place}")
            actual = "not visible to the login, so that the events' schema lacks them"
            yield CheckResult(
                "defaults", f"{self.database}.{schema}.{table}", False, actual, "visible", remedy, blocking=False
            )

    def _unseen_errors(self) -> Iterator[CheckResult]:
        try:
            self._session.rows(queries.of_database(queries.CAPTURE_ERROR, self.database))
        except PreflightError as error:
            remedy = self._grant("VIEW DATABASE STATE")
            yield CheckResult("errors of scans", self.database, False, _fact(error), "visible", remedy, blocking=False)

    def _signals(self, config: CaptureConfig) -> Iterator[CheckResult]:
        actions = ("INSERT", "DELETE") if config.signals.watermarking == "insert_delete" else ("INSERT",)
        table = signal_table(config.signals.collections, self.database)
        if table is None:
            return
        for action in actions:
            allowed = self._session.value(queries.PERMISSION, table.quoted, "OBJECT", action)
            if allowed == 0:  # NULL where there is no such table
                remedy = self._grant(f"{action} ON {quote(table.schema)}.{quote(table.table)}")
                actual = f"closed to {action}, so that no incremental snapshot can be taken"
                yield CheckResult("signal table", str(table), False, actual, "open to it", remedy, blocking=False)

    def _gates(self) -> Iterator[CheckResult]:
        """Gating roles of the change functions, which `data.query.mode=function` calls; without the role the minimum
        LSN is zero."""
        for name, options in self._source.instance_options(self.database).items():
            lowest = self._session.value(queries.of_database(queries.MIN_LSN, self.database), name)
            if options.role and lsn_of(lowest) == ZERO_LSN:
                remedy = f"USE {quote(self.database)}; ALTER ROLE {quote(options.role)} ADD MEMBER {self._user};"
                actual = f"gated by the role {options.role}"
                yield CheckResult(
                    "change function", f"{self.database}: {name}", False, actual, "open to the login", remedy
                )
