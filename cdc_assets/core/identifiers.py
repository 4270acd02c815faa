"""Names of SQL Server objects and the one function that quotes them."""

from dataclasses import dataclass
from typing import Self

from cdc_assets.errors import InvalidValueError

_MAX_NAME = 128
"""Length of sysname, in characters."""


def quote(name: str) -> str:
    """Bracket one identifier, as `QUOTENAME` does; a `]` inside is doubled.

    The only way by which an identifier may enter a statement. Values are parameters.

    Raises:
        InvalidValueError: the name is empty, longer than 128 characters or holds U+0000.
    """
    if not name or len(name) > _MAX_NAME or "\0" in name:
        raise InvalidValueError(
            "identifier", name, "1 to 128 characters without U+0000", "check the name in sys.objects"
        )
    return "[" + name.replace("]", "]]") + "]"


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """A table in a database, in the catalogue's letter case."""

    database: str
    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.schema}.{self.table}"

    @property
    def within_database(self) -> str:
        """`schema.table`, what table filters match (spec debezium-sqlserver §1.4)."""
        return f"{self.schema}.{self.table}"

    @property
    def quoted(self) -> str:
        """Three-part name for a statement."""
        return f"{quote(self.database)}.{quote(self.schema)}.{quote(self.table)}"

    @classmethod
    def of(cls, database: str, schema_table: str) -> Self:
        """From a database and `schema.table` without dots inside the parts.

        Raises:
            InvalidValueError: there are not exactly two parts.
        """
        parts = schema_table.split(".")
        if len(parts) != 2:
            raise InvalidValueError("table name", schema_table, "schema.table", "write the schema, as in dbo.orders")
        return cls(database, parts[0], parts[1])
