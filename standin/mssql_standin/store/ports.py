"""What the store knows of a session."""

import sqlite3
from typing import Protocol

from mssql_standin.catalog import Catalog, Table
from mssql_standin.contract import Names
from mssql_standin.errors import SqlError
from mssql_standin.store.storage import Storage


class StoreSession(Protocol):
    """A connection, the catalogue it sees, and its temporary tables."""

    connection: sqlite3.Connection
    storage: Storage
    failure: SqlError | None
    temporary: dict[str, Table]
    """By folded name."""

    @property
    def database(self) -> str:
        """Current database."""

    @property
    def catalog(self) -> Catalog:
        """Committed catalogue, or the transaction's own copy."""

    def names_of_tables(self) -> Names:
        """What names mean in the text of a constraint: no variable is known there."""

    def table_variables(self) -> list[Table]:
        """Table variables of the frames that run."""

    def raise_cancelled(self) -> None:
        """Raise what interrupted a statement, if anything did."""
