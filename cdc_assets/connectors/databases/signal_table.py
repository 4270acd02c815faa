"""The table through which a connector takes signals, and the count of captured tables: the same in every database."""

from collections.abc import Iterator, Sequence

from cdc_assets.config.engine import EngineConfig
from cdc_assets.connectors.databases.session import DriverSession
from cdc_assets.core.check_result import CheckResult
from cdc_assets.errors import ConfigurationError

_NAME = "signal.data.collection"


class SignalTable:
    """The table that `signal.data.collection` names.

    Args:
        config: may name it.
        session: a connection to its database.
        quote: the character around names.
        marks: of the parameters of a statement.
        columns: its definition, for a remedy.
        max_parts: parts of its name that a statement takes, from the last.
    """

    def __init__(
        self, config: EngineConfig, session: DriverSession, *, quote: str, marks: str, columns: str, max_parts: int = 4
    ) -> None:
        self._given = config.properties.get(_NAME, "")
        self._session, self._quote, self._marks = session, quote, marks
        self._columns, self._max_parts = columns, max_parts

    @property
    def _quoted(self) -> str:
        if not self._given:
            raise ConfigurationError(
                _NAME,
                None,
                "the name of a table (id, type, data)",
                "create one and name it there, or configure the file channel (signal.enabled.channels, signal.file)",
            )
        parts = self._given.split(".")[-self._max_parts :]
        return ".".join(self._quote + part.replace(self._quote, self._quote * 2) + self._quote for part in parts)

    def checks(self) -> Iterator[CheckResult]:
        """Whether it is there and may be read, if one is configured."""
        if self._given:
            found = self._session.perhaps(f"SELECT id, type, data FROM {self._quoted} WHERE 1 = 0")  # noqa: S608 - quoted
            actual = "there" if found is not None else "missing or without rights"
            remedy = f"CREATE TABLE {self._given} ({self._columns})"
            yield CheckResult("signal table", self._given, found is not None, actual, "there", remedy)

    def insert(self, id_: str, type_: str, data: str) -> None:
        """Put a signal into it.

        Raises:
            ConfigurationError: none is configured.
            QueryError, ConnectionLostError: the row is not taken.
        """
        statement = f"INSERT INTO {self._quoted} (id, type, data) VALUES ({self._marks})"  # noqa: S608 - quoted
        self._session.rows(statement, id_, type_, data)


def captured_check(subject: str, tables: Sequence[object], lists: str) -> CheckResult:
    """Whether the connector's lists let a table through.

    Args:
        lists: the lists to check, and what they match.
    """
    return CheckResult(
        "captured tables", subject, bool(tables), f"{len(tables)}", "at least one", f"correct {lists}; or grant SELECT"
    )
