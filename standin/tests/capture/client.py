"""A client of the engine without wire: runs batches, keeps results, raises errors."""

from collections.abc import Iterable, Sequence

from mssql_standin.contract import Login, Parameter, ResultColumn
from mssql_standin.engine.server import Engine
from mssql_standin.errors import SqlError
from mssql_standin.sqltypes import Value


class Client:
    """One session."""

    def __init__(self, engine: Engine, database: str = "master", user: str = "sa", password: str = "") -> None:
        self.session = engine.open(Login(user, password, database))
        self.results: list[list[tuple[Value, ...]]] = []
        self.names: list[str] = []
        self.messages: list[str] = []
        self.errors: list[SqlError] = []

    def columns(self, columns: Sequence[ResultColumn]) -> None:
        """Begin a result set."""
        self.names = [column.name for column in columns]
        self.results.append([])

    def rows(self, rows: Iterable[Sequence[Value]]) -> int:
        """Keep rows."""
        found = [tuple(row) for row in rows]
        self.results[-1] += found
        return len(found)

    def blocks(self, blocks: Iterable[tuple[int, bytes]]) -> int:
        """Never used without a wire."""
        raise NotImplementedError

    def done(self, count: int | None = None) -> None:
        """End of a statement."""

    def message(self, message: SqlError) -> None:
        """Keep a message."""
        self.messages.append(message.message)

    def error(self, error: SqlError) -> None:
        """Keep an error."""
        self.errors.append(error)

    def database_changed(self, old: str, new: str) -> None:
        """USE."""

    def check(self) -> None:
        """Nobody cancels."""

    def run(self, text: str) -> list[tuple[Value, ...]]:
        """Run a batch; its last result set. Raises its first error."""
        self.results, self.errors, self.messages = [], [], []
        self.session.batch(text, self)
        if self.errors:
            raise self.errors[0]
        return self.results[-1] if self.results else []

    def call(self, procedure: str, *arguments: Parameter) -> list[tuple[Value, ...]]:
        """Call a procedure as a client's RPC does."""
        self.results, self.errors = [], []
        self.session.call(procedure, arguments, self)
        if self.errors:
            raise self.errors[0]
        return self.results[-1] if self.results else []

    def number(self, text: str) -> int:
        """The number of the error that a batch raises."""
        try:
            self.run(text)
        except SqlError as error:
            return error.number
        raise AssertionError(f"{text} did not fail")
