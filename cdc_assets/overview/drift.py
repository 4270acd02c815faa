"""Differences between tables on the server and the structure of their events."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import Source
from cdc_assets.core.schema import CaptureInstance, InstanceOptions
from cdc_assets.history.drift import Drift, drift_of
from cdc_assets.history.store import SchemaHistory
from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.instances import by_age


class OverviewSource(Source, Protocol):
    """A control plane that also reports how its capture instances were made."""

    def ddl_statements(self, database: str) -> Mapping[str, Sequence[str]]:
        """DDL statements run on captured tables, by capture instance, oldest first."""

    def instance_options(self, database: str) -> Mapping[str, InstanceOptions]:
        """Options with which each capture instance was made, by its name."""


InstancesOf = Callable[[str], Sequence[CaptureInstance]]
"""All capture instances of a database."""


def drifts(
    source: OverviewSource, history: SchemaHistory, state: CaptureState, instances_of: InstancesOf
) -> Sequence[Drift]:
    """Drift of every streaming table, sorted by table; tables and databases that are gone are reported elsewhere.

    Args:
        history: the structures of the events, already read.
        state: state recorded in the manifest.

    Raises:
        CdcError: the server cannot be read.
    """
    streaming = sorted((entry for entry in state.tables.values() if entry.streams), key=lambda entry: entry.table)
    found: list[Drift] = []
    for database in sorted({entry.table.database for entry in streaming}):
        if source.trouble(database) is None:
            states = [entry for entry in streaming if entry.table.database == database]
            found += _of_database(source, history, states, instances_of(database))
    return found


def _of_database(
    source: OverviewSource,
    history: SchemaHistory,
    states: Sequence[TableState],
    instances: Sequence[CaptureInstance],
) -> list[Drift]:
    database = states[0].table.database
    statements, options = source.ddl_statements(database), source.instance_options(database)
    schemas = source.table_schemas([state.table for state in states])
    by_table: dict[TableId, list[CaptureInstance]] = {}
    for instance in instances:
        by_table.setdefault(instance.table, []).append(instance)
    found = []
    for state in states:
        entry, current = history.latest(state.table), schemas.get(state.table)
        captures = by_age(by_table.get(state.table, []), history.entries(state.table))
        had = {known.instance for known in history.entries(state.table) if known.instance is not None}
        if entry is not None and current is not None and captures and current.object_id == state.object_id:
            name = captures[-1].name
            found.append(
                drift_of(
                    entry,
                    current,
                    captures,
                    state.identity,
                    statements.get(name, ()),
                    options.get(name),
                    had | {instance.name for instance in instances},
                )
            )
    return found
