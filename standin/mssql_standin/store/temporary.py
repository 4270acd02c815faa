"""Which tables are temporary."""

from typing import Final

from mssql_standin.catalog import Table

FIRST_TEMPORARY: Final = 1_900_000_000
"""Object ids of temporary tables and table variables, which live on one connection only, lie above."""


def is_temporary(table: Table) -> bool:
    """Whether the table lives on one connection only."""
    return table.object_id >= FIRST_TEMPORARY
