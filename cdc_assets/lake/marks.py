"""The content of a lake table at the time of its last record; stored in the manifest (`lake.audit`)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """Minimum content of a table.

    Args:
        window: its newest application transaction.
        version: its newest Delta version known to the writer.
        rows: its number of rows.
        examined: number of the next window at the time when it was last examined completely; 0 if never.
    """

    window: int
    version: int
    rows: int
    examined: int = 0
