"""A connection through any DB-API driver: rows by column name, and driver errors as ours."""

import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from importlib.util import find_spec
from threading import Timer
from types import TracebackType
from typing import Any, Self

from cdc_assets.config.engine import EngineConfig
from cdc_assets.core.refused_logins import offered
from cdc_assets.errors import ConnectionLostError, CredentialsError, EngineError, QueryError

TIMEOUT_S = 5
_OTHERS = (OSError, RuntimeError, ValueError, LookupError, AttributeError, struct.error)
"""What drivers raise beside errors of their own class: a broken answer, a lost connection, a missing library."""
Rows = list[dict[str, Any]]


def require_driver(package: str, extra: str) -> None:
    """Check that a driver is installed.

    Raises:
        EngineError: it is not.
    """
    if find_spec(package) is None:
        raise EngineError(
            f"The driver {package} is not installed, so the database cannot be queried. "
            f"Next: pip install 'cdc-assets[{extra}]'."
        )


class DriverSession:
    """One connection, in autocommit.

    Args:
        config: the capture; its address and password are used in messages and kept out of them.
        connect: opens the connection.
        errors: the driver's class of all errors.
        refused: whether an error of `connect` is a refused login.
        lost: whether a connection is of no use any more.
        abort: ends a statement that the server does not answer in time, for a driver that waits for ever.

    Raises:
        ConnectionLostError: the database cannot be reached.
        CredentialsError: it refuses user or password, or has a short time ago (`core.refused_logins`).
    """

    def __init__(
        self,
        config: EngineConfig,
        connect: Callable[[], Any],
        errors: type[Exception],
        refused: Callable[[Exception], bool],
        lost: Callable[[Any], bool],
        abort: Callable[[Any], object] | None = None,
    ) -> None:
        self._errors, self._secret = errors, config.properties.get("database.password", "")
        self._lost, self._abort = lost, abort
        self._place = (
            f"{config.properties.get('database.hostname', 'localhost')}:{config.properties.get('database.port', '')}"
        )
        user = config.properties.get("database.user", "")
        with offered(self._place, user, self._secret):
            self._connection = self._connected(connect, refused, user)

    def _connected(self, connect: Callable[[], Any], refused: Callable[[Exception], bool], user: str) -> Any:
        place = self._place
        try:
            return connect()
        except (self._errors, *_OTHERS) as error:
            text = self._text(error)
            if refused(error):
                raise CredentialsError(
                    f"{place} refuses the user {user!r}: {text}. Next: check database.user and database.password."
                ) from None
            raise ConnectionLostError(
                f"{place} cannot be reached: {text}. Next: check database.hostname and database.port, and whether it runs."
            ) from None

    def _text(self, error: Exception) -> str:
        text = " ".join(str(error).split()) or type(error).__name__
        return text.replace(self._secret, "***") if self._secret else text

    def rows(self, statement: str, *parameters: object) -> Rows:
        """Rows of a statement by column name in lower case; none if it has no result.

        Raises:
            QueryError: the database refuses it.
            ConnectionLostError: it does not answer any more.
        """
        try:
            with self._limited(), closing(self._connection.cursor()) as cursor:
                cursor.execute(statement, list(parameters)) if parameters else cursor.execute(statement)
                if cursor.description is None:
                    return []
                names = [column[0].lower() for column in cursor.description]
                return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except (self._errors, *_OTHERS) as error:
            if self._lost(self._connection):
                raise ConnectionLostError(
                    f"{self._place} does not answer any more: {self._text(error)}. Next: see whether it runs."
                ) from None
            raise QueryError(
                f"The database refuses a statement: {self._text(error)}. Next: check the user's rights with "
                f"`cdc-assets doctor`. The statement: {statement}"
            ) from None

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """A block that ends even if the server does not answer."""
        if self._abort is None:
            yield
            return
        timer = Timer(4 * TIMEOUT_S, self._abort, (self._connection,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def one(self, statement: str, *parameters: object) -> Mapping[str, Any]:
        """The first row; empty if there is none.

        Raises:
            QueryError, ConnectionLostError: as `rows`.
        """
        found = self.rows(statement, *parameters)
        return found[0] if found else {}

    def perhaps(self, statement: str, *parameters: object) -> Rows | None:
        """Rows; None if the database refuses the statement, as for want of a right."""
        try:
            return self.rows(statement, *parameters)
        except QueryError:
            return None

    def close(self) -> None:
        """End the connection."""
        try:
            self._connection.close()
        except (self._errors, *_OTHERS):
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
