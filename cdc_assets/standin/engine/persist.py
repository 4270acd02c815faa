"""The catalogue as rows of JSON in the SQLite file.

One row per database and one per table; `save` writes only rows whose text changed, in the
transaction of the definition statement, so after a crash rows and definitions agree.
"""

import json
import sqlite3
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, Final

from cdc_assets.standin.catalog import AliasType, Catalog, Check, Column, Database, ForeignKey, Index, Table, fold
from cdc_assets.standin.sqltypes import SqlType

SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS engine_catalog(key TEXT PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS engine_counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
)


def documents(catalog: Catalog) -> dict[str, str]:
    """Key → JSON text of everything in the catalogue."""
    found = {"": json.dumps({"next_object_id": catalog.next_object_id})}
    for database in catalog.databases.values():
        found[f"d{database.database_id}"] = _text(database, tables=None)
        for table in database.tables.values():
            found[f"t{table.object_id}"] = _text(table)
    return found


def _text(thing: Database | Table, **without: None) -> str:
    values = {field.name: getattr(thing, field.name) for field in fields(thing) if field.name not in without}
    return json.dumps(values, default=_plain)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else asdict(value)


def save(connection: sqlite3.Connection, catalog: Catalog, saved: dict[str, str]) -> dict[str, str]:
    """Write what differs from `saved`; returns what is saved now."""
    wanted = documents(catalog)
    for key in saved.keys() - wanted.keys():
        connection.execute("DELETE FROM engine_catalog WHERE key = ?", (key,))
    for key, document in wanted.items():
        if saved.get(key) != document:
            connection.execute("INSERT OR REPLACE INTO engine_catalog VALUES (?, ?)", (key, document))
    return wanted


def load(connection: sqlite3.Connection) -> tuple[Catalog, dict[str, str]]:
    """The saved catalogue, empty in a new file, and its documents."""
    saved = dict(connection.execute("SELECT key, document FROM engine_catalog"))
    catalog = Catalog()
    if "" in saved:
        catalog.next_object_id = json.loads(saved[""])["next_object_id"]
    for key in sorted(key for key in saved if key.startswith("d")):
        database = _database(json.loads(saved[key]))
        catalog.databases[fold(database.name)] = database
    for key in sorted(key for key in saved if key.startswith("t")):
        table = _table(json.loads(saved[key]))
        catalog.databases[fold(table.database)].tables[fold(table.schema), fold(table.name)] = table
    return catalog, saved


def _database(values: dict[str, Any]) -> Database:
    values["created"] = datetime.fromisoformat(values["created"])
    values["alias_types"] = [AliasType(**{**a, "base": SqlType(**a["base"])}) for a in values["alias_types"]]
    return Database(**values)


def _table(values: dict[str, Any]) -> Table:
    values["created"] = datetime.fromisoformat(values["created"])
    values["modified"] = datetime.fromisoformat(values["modified"])
    values["columns"] = [_column(column) for column in values["columns"]]
    values["indexes"] = [
        Index(**{**index, "keys": tuple((k[0], k[1]) for k in index["keys"]), "included": tuple(index["included"])})
        for index in values["indexes"]
    ]
    values["checks"] = [Check(**check) for check in values["checks"]]
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
