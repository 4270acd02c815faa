"""Divides what is queried into portions that one statement can take: SQL Server allows 2100 parameters."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def portions(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Items in groups of a size."""
    return (items[start : start + size] for start in range(0, len(items), size))


def by_database(items: Iterable[tuple[str, T]], size: int) -> Iterator[tuple[str, Sequence[T]]]:
    """Databases, each with portions of what is to be queried there."""
    found: dict[str, list[T]] = {}
    for database, item in items:
        found.setdefault(database, []).append(item)
    return ((database, portion) for database, own in found.items() for portion in portions(own, size))
