"""What a table of the lake held when something was last recorded about it; kept in the manifest (`lake.audit`)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """What a table must hold at least.

    Args:
        window: its newest application transaction.
        version: its newest Delta version, as far as the writer knew.
        rows: how many rows it has.
        examined: number of the next window when all of it was last compared with its files; 0 if it never was.
    """

    window: int
    version: int
    rows: int
    examined: int = 0
