"""Names of SQL Server objects and the one function that quotes them."""

import re
from dataclasses import dataclass

from cdc_assets.errors import InvalidValueError

_MAX_NAME = 128
"""Length of sysname, in characters."""
_LONGEST_DOTTED = 1000
"""Maximum characters of a dotted name: up to three parts of 128, each character possibly doubled."""
_PART = re.compile(r"""\s*(?:\[((?:[^\]]|\]\])+)\]|"((?:[^"]|"")+)"|([^.\[\]"]*[^.\[\]"\s]))\s*(?=\.|\Z)""")
"""One part of a dotted name: in brackets, in double quotes, or plain."""


def quote(name: str) -> str:
    """Put one identifier in brackets, as `QUOTENAME` does; a `]` inside is doubled.

    All identifiers in statements pass through this function. Values are parameters.

    Raises:
        InvalidValueError: the name is empty, longer than 128 characters or holds U+0000.
    """
    if not name or len(name) > _MAX_NAME or "\0" in name:
        raise InvalidValueError(
            "identifier", name, "1 to 128 characters without U+0000", "check the name in sys.objects"
        )
    return "[" + name.replace("]", "]]") + "]"


def parts_of(name: str) -> tuple[str, ...]:
    """The parts of a dotted name as people write it, without surrounding brackets, double quotes and blanks.

    Raises:
        InvalidValueError: a part is empty, a bracket or quote is not closed, or the whole is too long.
    """
    parts, start, text = list[str](), 0, name.strip()
    while len(text) <= _LONGEST_DOTTED and (part := _PART.match(text, start)):
        bracketed, double, plain = part[1], part[2], part[3]
        parts.append(
            bracketed.replace("]]", "]") if bracketed else double.replace('""', '"') if double else plain.strip()
        )
        if part.end() == len(text):
            return tuple(parts)
        start = part.end() + 1
    raise InvalidValueError("table name", name, "schema.table or database.schema.table", "close brackets and quotes")


def unquoted(name: str) -> str:
    """A dotted name without quotes, in the form of `str(TableId)`; a dot inside a quoted part stays.

    Raises:
        InvalidValueError: see `parts_of`.
    """
    return ".".join(parts_of(name))


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """A table in a database, in the catalogue's letter case; the schema is empty where databases have none."""

    database: str
    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.within_database}"

    @property
    def within_database(self) -> str:
        """`schema.table`, what table filters match (spec debezium-sqlserver §1.4)."""
        return f"{self.schema}.{self.table}" if self.schema else self.table

    @property
    def quoted(self) -> str:
        """Three-part name for a statement."""
        return f"{quote(self.database)}.{quote(self.schema)}.{quote(self.table)}"
