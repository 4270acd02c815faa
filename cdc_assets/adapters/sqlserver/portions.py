"""Divides what is queried into portions that one statement can take: SQL Server allows 2100 parameters."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TypeVar

from cdc_assets.adapters.sqlserver.queries import PING
from cdc_assets.adapters.sqlserver.session import Session
from cdc_assets.errors import LockTimeoutError, ObjectDeniedError, QueryError

T = TypeVar("T")

PROBES_PER_QUERY = 200
"""Number of SELECTs, of two parameters each, in a statement over many capture instances."""


def portions(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Items in groups of a size."""
    return (items[start : start + size] for start in range(0, len(items), size))


def by_database(items: Iterable[tuple[str, T]], size: int) -> Iterator[tuple[str, Sequence[T]]]:
    """Databases, each with portions of what is to be queried there."""
    found: dict[str, list[T]] = {}
    for database, item in items:
        found.setdefault(database, []).append(item)
    return ((database, portion) for database, own in found.items() for portion in portions(own, size))


def of_those_there(
    session: Session,
    names: Sequence[str],
    ask: Callable[[Sequence[str]], list[T]],
    of_gone: Callable[[str], list[T]],
    ending: set[str] | None = None,
) -> list[T]:
    """Query all capture instances at once; if one of them refuses that, query each one.

    After a wait for a lock that was in vain, none waits: somebody may hold those of many change tables, and whoever reads them waits for each.

    Args:
        session: over which is queried.
        names: names of the instances, at least one.
        ask: function that queries some of them.
        of_gone: result for an instance whose change table was dropped, is locked, or cannot be read: whoever reads it meets the error, which
            is then that table's only.
        ending: takes the names of those whose own query ended the connection, as the server does where a page is damaged.
    """
    with ExitStack() as patience:

        def query(some: Sequence[str]) -> list[T] | None:
            before = 0 if ending is None else session.connections
            try:
                return ask(some)
            except LockTimeoutError:
                patience.enter_context(session.waiting(0))
            except (QueryError, ObjectDeniedError):
                if ending is not None and _is_ended(session, before) and len(some) == 1:
                    ending.add(some[0])
            return of_gone(some[0]) if len(some) == 1 else None

        found = query(names)
        return [one for name in names for one in query([name]) or ()] if found is None else found


def _is_ended(session: Session, connection: int) -> bool:
    """Whether a connection has ended; asked at once, so that the next query begins with an open one and is not taken for the cause."""
    session.value(PING)
    return session.connections != connection
