"""Keys of a captured table's assets, and the metadata that identifies them, so that a translator may choose any key.

Dagster labels an asset with the last part of its key wherever there is little room: in graphs, groups and check
lists. So that part is `table.role`: the table reads first, and its assets can be distinguished.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args

import dagster as dg

from cdc_assets.core.identifiers import TableId
from cdc_assets.envelope.naming import key_parts
from cdc_assets.errors import ConfigurationError

TABLE, TOPIC, ROLE = "cdc/table", "cdc/topic", "cdc/role"
"""Metadata of each asset of a captured table: its name on the server, its topic, and `source`, `snapshot` or `changes`."""


Role = Literal["source", "snapshot", "changes", "current", "history"]
"""What an asset of a captured table is: the table on the server, its rows as READ events, its changes, or its mirrors."""
_ROLES = frozenset(get_args(Role))
_MIN_PARTS = 3
"""Parts of a captured table's key without its role at least: prefix, database and table; shorter keys are of other assets."""


def table_key(prefix: str, table: TableId, role: Role) -> dg.AssetKey:
    """`[prefix, database, schema, "table.role"]`, without a schema where the database has none; unique for each table and role, since each key ends with a role."""
    *folder, name = key_parts(table)
    return dg.AssetKey([prefix, *folder, f"{name}.{role}"])


def require_distinct_keys(tables: Iterable[TableId], key: Callable[[TableId, Role], dg.AssetKey]) -> None:
    """Check that Dagster can distinguish all tables, since its identifiers replace `.` and `-` by `_`.

    Raises:
        ConfigurationError: two tables have the same identifier.
    """
    owners: dict[str, TableId] = {}
    for table in tables:
        found = key(table, "changes")
        other = owners.setdefault(found.to_python_identifier(), table)
        if other != table:
            raise ConfigurationError(
                "asset key",
                found.to_user_string(),
                "a key that only one table has",
                f"exclude {other} or {table}, or override CdcTranslator.asset_key",
            )


def table_and_role(key: dg.AssetKey) -> tuple[tuple[str, ...], str | None]:
    """The parts of a key without its role, and the role; None if the key names none, as `table_key` does."""
    *folder, last = key.path
    table, _, role = last.rpartition(".")
    if table and role in _ROLES and len(folder) + 1 >= _MIN_PARTS:
        return (*folder, table), role
    return tuple(key.path), None


def asset_facts(context: dg.InputContext | dg.OutputContext) -> Mapping[str, Any]:
    """Metadata of the asset that is loaded or written; empty if it is not an asset of this code location."""
    if isinstance(context, dg.OutputContext):
        return context.definition_metadata or {}
    upstream = context.upstream_output
    return (upstream.definition_metadata if upstream else None) or {}
