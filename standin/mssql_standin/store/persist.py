"""The catalogue as rows of JSON in the SQLite file.

One row per database and one per table; `save` writes only rows whose text changed, in the
transaction of the definition statement, so after a crash rows and definitions agree.
"""

import json
import sqlite3
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from mssql_standin.catalog import (
    AliasType,
    Catalog,
    Column,
    Database,
    ExtendedProperty,
    ForeignKey,
    Index,
    Permission,
    Principal,
    ProcedureParameter,
    RecoveryFork,
    Security,
    Table,
    UserProcedure,
    fold,
)
from mssql_standin.sqltypes import SqlType

SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS engine_catalog(key TEXT PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS engine_counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
)


@dataclass(frozen=True, slots=True)
class Saved:
    """What the rows say: a catalogue nobody changes any more, and its texts."""

    catalog: Catalog
    texts: dict[str, str]


def _documents(catalog: Catalog, saved: Saved) -> dict[str, str]:
    """Key → JSON text of everything in the catalogue; what equals the saved definition keeps its text."""
    server = {"next_object_id": catalog.next_object_id, "security": catalog.security}
    texts = {"": json.dumps(server, default=_plain)}
    for name, database in catalog.databases.items():
        texts[f"d{database.database_id}"] = _text(database, tables=None)
        before = saved.catalog.databases.get(name)
        known = {table.object_id: table for table in before.tables.shared()} if before is not None else {}
        for table in database.tables.shared():
            key = f"t{table.object_id}"
            former = known.get(table.object_id)
            same = key in saved.texts and (former is table or former == table)
            texts[key] = saved.texts[key] if same else _text(table)
    return texts


def _text(thing: Database | Table, **without: None) -> str:
    return json.dumps({name: value for name, value in _plain(thing).items() if name not in without}, default=_plain)


def _plain(value: Any) -> Any:
    """What JSON knows, one level deep: `asdict` would copy all that is below, for a third of the time of a definition."""
    if isinstance(value, datetime):
        return value.isoformat()
    return {field.name: getattr(value, field.name) for field in fields(value)}


def save(connection: sqlite3.Connection, catalog: Catalog, saved: Saved) -> Saved:
    """Write what differs from `saved`; returns what is saved now."""
    wanted = _documents(catalog, saved)
    for key in saved.texts.keys() - wanted.keys():
        connection.execute("DELETE FROM engine_catalog WHERE key = ?", (key,))
    for key, document in wanted.items():
        if saved.texts.get(key) != document:
            connection.execute("INSERT OR REPLACE INTO engine_catalog VALUES (?, ?)", (key, document))
    return Saved(catalog, wanted)


def load(connection: sqlite3.Connection) -> Saved:
    """The saved catalogue, empty in a new file."""
    saved = dict(connection.execute("SELECT key, document FROM engine_catalog"))
    catalog = Catalog()
    if "" in saved:
        server = json.loads(saved[""])
        catalog.next_object_id = server["next_object_id"]
        if "security" in server:
            catalog.security = _security(server["security"])
    for key in sorted(key for key in saved if key.startswith("d")):
        database = _database(json.loads(saved[key]))
        catalog.databases[fold(database.name)] = database
    for key in sorted(key for key in saved if key.startswith("t")):
        table = _table(json.loads(saved[key]))
        catalog.databases[fold(table.database)].tables[fold(table.schema), fold(table.name)] = table
    return Saved(catalog, saved)


def _database(values: dict[str, Any]) -> Database:
    values["created"] = datetime.fromisoformat(values["created"])
    former = {"snapshot_isolation": "ALLOW_SNAPSHOT_ISOLATION", "read_committed_snapshot": "READ_COMMITTED_SNAPSHOT"}
    for name, option in former.items():  # of a file from before there were options
        if values.pop(name, False):
            values.setdefault("options", {})[option] = "ON"
    values["alias_types"] = [AliasType(**{**a, "base": SqlType(**a["base"])}) for a in values["alias_types"]]
    for gone in ("views", "user_access"):  # of a file from when there were any
        values.pop(gone, None)
    values["procedures"] = [_procedure(procedure) for procedure in values.get("procedures", ())]
    values["recovery_forks"] = [RecoveryFork(**fork) for fork in values.get("recovery_forks", ())]
    values["security"] = _security(values.get("security", {}))
    return Database(**values)


def _security(values: dict[str, Any]) -> Security:
    principals = {
        name: Principal(
            **{key: value for key, value in principal.items() if key != "disabled"}
            | {"members": tuple(principal["members"])}
        )
        for name, principal in values.get("principals", {}).items()
    }
    return Security(principals, [Permission(**permission) for permission in values.get("permissions", ())])


def _procedure(values: dict[str, Any]) -> UserProcedure:
    parameters = [ProcedureParameter(**parameter) for parameter in values["parameters"]]
    return UserProcedure(**{**values, "shape": _table(values["shape"]), "parameters": parameters})


def _table(values: dict[str, Any]) -> Table:
    values["created"] = datetime.fromisoformat(values["created"])
    values["modified"] = datetime.fromisoformat(values["modified"])
    values["columns"] = [_column(column) for column in values["columns"]]
    values["indexes"] = [
        Index(**{**index, "keys": tuple((k[0], k[1]) for k in index["keys"]), "included": tuple(index["included"])})
        for index in values["indexes"]
    ]
    values.pop("checks", None)  # of a file from when there were any
    values["properties"] = tuple(ExtendedProperty(**kept) for kept in values.get("properties", ()))
    values["foreign_keys"] = [
        ForeignKey(**{**k, "columns": tuple(k["columns"]), "referenced_columns": tuple(k["referenced_columns"])})
        for k in values["foreign_keys"]
    ]
    return Table(**values)


def _column(values: dict[str, Any]) -> Column:
    identity = values["identity"]
    return Column(
        **{**values, "type": SqlType(**values["type"]), "identity": (identity[0], identity[1]) if identity else None}
    )
