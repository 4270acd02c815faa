"""A sink that keeps everything, and a session that is pleasant to test with."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mssql_standin.contract import Login, ResultColumn
from mssql_standin.engine.server import Engine
from mssql_standin.engine.session import EngineSession
from mssql_standin.errors import SqlError
from mssql_standin.wire.rowenc import encoder_of


@dataclass
class Collected:
    """What a batch sent; every row must fit its columns as the wire would tell them."""

    results: list[list[tuple[Any, ...]]] = field(default_factory=list)
    names: list[list[str]] = field(default_factory=list)
    types: list[list[str]] = field(default_factory=list)
    counts: list[int | None] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    errors: list[SqlError] = field(default_factory=list)
    stop: BaseException | None = None
    shape: Sequence[ResultColumn] = ()

    def columns(self, columns: Sequence[ResultColumn]) -> None:
        self.names.append([column.name for column in columns])
        self.types.append([str(column.type) for column in columns])
        self.results.append([])
        self.shape = columns

    def rows(self, rows: Iterable[Sequence[Any]]) -> int:
        before = len(self.results[-1])
        self.results[-1].extend(tuple(row) for row in rows)
        added = self.results[-1][before:]
        assert encoder_of(self.shape)(added)[0] == len(added)
        return len(added)

    def blocks(self, blocks: Iterable[tuple[int, bytes]]) -> int:
        raise NotImplementedError

    def done(self, count: int | None = None) -> None:
        self.counts.append(count)

    def message(self, message: SqlError) -> None:
        self.messages.append(message.message)

    def error(self, error: SqlError) -> None:
        self.errors.append(error)

    def database_changed(self, old: str, new: str) -> None:
        self.messages.append(f"{old} → {new}")

    def check(self) -> None:
        if self.stop is not None:
            raise self.stop


class Client:
    """One session and short ways to ask it."""

    def __init__(self, session: EngineSession) -> None:
        self.session = session

    def run(self, text: str) -> Collected:
        """Run a batch and keep everything, errors too."""
        sink = Collected()
        self.session.batch(text, sink)
        return sink

    def do(self, text: str) -> Collected:
        """Run a batch that must not fail."""
        sink = self.run(text)
        assert not sink.errors, [str(error) for error in sink.errors]
        return sink

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Rows of the last result set of a batch that must not fail."""
        return self.do(text).results[-1]

    def value(self, text: str) -> Any:
        """First value of the last result set."""
        return self.rows(text)[0][0]

    def errors(self, text: str) -> list[int]:
        """Numbers of the errors of a batch."""
        return [error.number for error in self.run(text).errors]


def open_client(engine: Engine, database: str = "D") -> Client:
    """A new session."""
    return Client(engine.open(Login("sa", "secret", database)))
