"""Where results go that are not for a client: nowhere, or into an INSERT."""

from collections.abc import Iterable, Sequence

from mssql_standin.contract import ResultColumn, ResultSink
from mssql_standin.errors import SqlError
from mssql_standin.sqltypes import Value


class NullSink:
    """A sink for what nobody reads."""

    def columns(self, columns: Sequence[ResultColumn]) -> None:
        """Nothing."""

    def rows(self, rows: Iterable[Sequence[Value]]) -> int:
        """Count them."""
        return sum(1 for _ in rows)

    def blocks(self, blocks: Iterable[tuple[int, bytes]]) -> int:
        """Count their rows."""
        return sum(count for count, _ in blocks)

    def done(self, count: int | None = None) -> None:
        """Nothing."""

    def message(self, message: SqlError) -> None:
        """Nothing."""

    def error(self, error: SqlError) -> None:
        """Nothing."""

    def database_changed(self, old: str, new: str) -> None:
        """Nothing."""

    def check(self) -> None:
        """Nobody cancels."""


class CollectingSink:
    """Takes the result sets of an EXEC for an INSERT; everything else goes on to the client."""

    def __init__(self, outer: ResultSink) -> None:
        self._outer = outer
        self.results: list[tuple[Sequence[ResultColumn], list[Sequence[Value]]]] = []

    def columns(self, columns: Sequence[ResultColumn]) -> None:
        """Begin a result set."""
        self.results.append((columns, []))

    def rows(self, rows: Iterable[Sequence[Value]]) -> int:
        """Keep rows."""
        kept = self.results[-1][1]
        before = len(kept)
        kept.extend(rows)
        return len(kept) - before

    def blocks(self, blocks: Iterable[tuple[int, bytes]]) -> int:
        """Never used: blocks are for clients."""
        raise SqlError(8630, "Internal error: encoded rows cannot be inserted.", 17)

    def done(self, count: int | None = None) -> None:
        """Counts of the EXEC are not sent."""

    def message(self, message: SqlError) -> None:
        """On to the client."""
        self._outer.message(message)

    def error(self, error: SqlError) -> None:
        """An error inside ends the INSERT."""
        raise error

    def database_changed(self, old: str, new: str) -> None:
        """Not told."""

    def check(self) -> None:
        """The client's attention."""
        self._outer.check()
