"""Which tables a capture takes, and which databases cannot be captured now.

A table that the settings exclude after it was captured is not read any more and keeps its position. When the settings
include it again, it continues from there: changes made meanwhile are read late and are not lost, as long as the server
keeps them; after that it is a gap like any other. *Crash:* excluding and including are each one row of the manifest,
written when no window is in flight.
"""

import dataclasses
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from cdc_assets.config.filters import TableFilter
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema
from cdc_assets.envelope.naming import TopicOwners, check_conflicts
from cdc_assets.errors import (
    DATABASE_ERRORS,
    CdcError,
    ConfigurationError,
    CredentialsError,
    LoginError,
    PreflightError,
    RetryableError,
    describe_error,
)
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.system_topics import system_topics
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.table_state import EXCLUDED, TableState
from cdc_assets.shared.endings import abandon_in_flight
from cdc_assets.shared.lake import Lake
from cdc_assets.shared.progress import TroubledTable
from cdc_assets.shared.server import Server

log = logging.getLogger(__name__)


def included_by(config: CaptureConfig) -> Callable[[TableId], bool]:
    """A predicate: whether the settings include a table."""
    databases, tables = {name.lower() for name in config.connection.databases}, TableFilter(config.filters)
    return lambda table: table.database.lower() in databases and tables.accepts(table)


def abandon_removed_databases(ledger: Ledger, lake: Lake, config: CaptureConfig) -> None:
    """Give up windows and snapshots in flight in databases that are no longer configured.

    Raises:
        FencedError: another writer has taken over.
    """
    state, names = ledger.state, {name.lower() for name in config.connection.databases}
    in_flight = {*state.snapshots, *(window.database for window in state.pending)}
    for database in in_flight:
        if database.lower() not in names:
            log.warning(
                "The window or snapshot in flight in database %s is given up: the database is no longer in database.names.",
                database,
            )
            abandon_in_flight(ledger, lake, database)


def apply_filters(ledger: Ledger, config: CaptureConfig) -> None:
    """Exclude tables that the settings exclude now, and continue tables that they include again.

    Raises:
        FencedError: another writer has taken over.
    """
    included, states = included_by(config), ledger.state.tables.values()
    changed = [state for known in states if (state := followed(known, included=included(known.table))) != known]
    for state in changed:
        log.warning("%s: %s", state.table, state.reason or f"included again; continues from {state.position}.")
    for database in sorted({state.table.database for state in changed}):
        members = [state for state in changed if state.table.database == database]
        ledger.manifest.mark(ledger.clock.now(), database, members)


def followed(state: TableState, *, included: bool) -> TableState:
    """The state that the next run gives a table. A table with a gap still has it when it is included again; one that failed stays failed, unless it
    is tried again anyway."""
    if included and state.status == "excluded":
        reason = state.reason.removeprefix(EXCLUDED).strip()
        return dataclasses.replace(state, status="gap" if reason else "healthy", reason=reason)
    if not included and (state.status in ("healthy", "gap") or state.resumes):
        gap = state.reason if state.status == "gap" else ""
        return dataclasses.replace(state, status="excluded", reason=f"{EXCLUDED} {gap}".strip())
    return state


@dataclass(frozen=True, slots=True)
class Selection:
    """What a capture reads now.

    Args:
        tables: captured tables by database.
        unavailable: databases that cannot be captured now, with the reason.
        refused: tables that pass the filters but cannot be captured, with the reason; the others continue.
    """

    tables: dict[str, list[TableId]]
    unavailable: dict[str, CdcError] = field(default_factory=dict)
    refused: dict[TableId, CdcError] = field(default_factory=dict)


def select(config: CaptureConfig, server: Server, state: CaptureState) -> Selection:
    """Captured tables; possibly none yet.

    Before anything was captured, every problem with a table is a mistake in the settings. Later it only affects that
    table, since it may have appeared at any moment.

    Args:
        state: recorded in the manifest.

    Raises:
        CdcError: a database that was never captured cannot be captured.
        ConfigurationError: no table matches although some are enabled, or two tables would share a topic before
            anything is captured.
    """
    source = server.source
    begun = {name.lower(): name for name in _begun(state)}
    tables: dict[str, Sequence[TableId]] = {}
    unavailable: dict[str, CdcError] = {}
    for database in source.databases():
        problem = source.trouble(database)
        try:
            if problem is None:
                tables[database] = source.user_tables(database)
        except CredentialsError:  # of the whole server
            raise
        except (LoginError, PreflightError, *DATABASE_ERRORS) as error:
            problem = error
        if problem is not None:  # one that is gone has the letter case of the settings
            unavailable[begun.get(database.lower(), database)] = problem
    _refuse_unknown(state, unavailable)
    known = set(state.tables)
    found = [table for members in tables.values() for table in members]
    chosen = TableFilter(config.filters).select(found) if unavailable else _required(config, server, found, known)
    refused = unfit(chosen, known, config) if known else {}
    fit = [table for table in chosen if table not in refused]
    check_conflicts(fit, config.events, system_topics(config).values())
    return Selection(
        {database: [table for table in fit if table.database == database] for database in tables}, unavailable, refused
    )


def _required(
    config: CaptureConfig, server: Server, found: Sequence[TableId], known: Collection[TableId]
) -> list[TableId]:
    """Tables that pass the filters. If no table is enabled yet, one may still come; otherwise the filters are wrong."""
    filters = TableFilter(config.filters)
    chosen = filters.select(found)
    databases = server.source.databases()
    if filters.is_empty(chosen) and not known and not any(server.instances(database) for database in databases):
        log.warning(
            "No table is enabled for change data capture yet in %s. Next: EXEC sys.sp_cdc_enable_table @source_schema = N'…', "
            "@source_name = N'…', @role_name = NULL; tables that are enabled and pass the filters are added.",
            ", ".join(databases),
        )
        return chosen
    return filters.require(found, guard_all=not config.history.only_captured_tables)


def unfit(tables: Iterable[TableId], known: Collection[TableId], config: CaptureConfig) -> dict[TableId, CdcError]:
    """New tables that cannot have a topic of their own, with the reason.

    Args:
        tables: tables that pass the filters, in order; of two new ones that share a topic the first gets it.
        known: tables that are captured already, and keep their topics.
        config: names the topics.
    """
    topics, found = TopicOwners(config.events, system_topics(config).values()), dict[TableId, CdcError]()
    for table in sorted(known):
        with suppress(ConfigurationError):  # new ones do not wait for one that was excluded because of its topic
            topics.add(table)
    for table in tables:
        if table in known:
            continue
        try:
            topics.add(table)
        except ConfigurationError as error:
            found[table] = error
            log.error("%s is not captured: %s", table, error)
    return found


def _begun(state: CaptureState) -> set[str]:
    """Databases of which something was read."""
    return {table.database for table in [*state.tables, *state.early]} | state.snapshots.keys()


def _refuse_unknown(state: CaptureState, unavailable: Mapping[str, CdcError]) -> None:
    """Raise the problem of a database of which nothing was ever read: the settings or the set-up are wrong. One that is only
    offline or busy stops no other one that is captured."""
    begun = _begun(state)
    for database, problem in unavailable.items():
        if database not in begun and not (begun and isinstance(problem, RetryableError)):
            raise problem


def remembered(history: SchemaHistory, manifest: Manifest, databases: Collection[str]) -> list[TableSchema]:
    """The last recorded structures of the tables in some databases."""
    history.read()
    known = [table for table in manifest.read().tables if table.database in databases]
    return [entries[-1].schema for table in known if (entries := history.entries(table))]


def troubled_by_database(tables: Iterable[TableId], unavailable: Mapping[str, CdcError]) -> list[TroubledTable]:
    """The given tables whose database cannot be captured now, with the reason."""
    return [
        TroubledTable(table, "failed", describe_error(unavailable[table.database]))
        for table in tables
        if table.database in unavailable
    ]
