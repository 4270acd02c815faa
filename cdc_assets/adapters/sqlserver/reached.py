"""Proves that the server of a connection has the log up to an LSN, or is the one that is written to.

A listener may route each connection to another readable replica, and replicas lag. What was learnt over one connection (how
far the log is, how many rows there are) is only true over another one if its server has got as far. A connection belongs to
one server, whose log never goes back while it is on one recovery fork; so each connection is queried once for each LSN, and anew
when a fork is left. (A connection outlives a failover of a database that is not its own.)
"""

from collections.abc import Callable
from dataclasses import dataclass

from cdc_assets.adapters.sqlserver import queries
from cdc_assets.adapters.sqlserver.rows import lsn_of
from cdc_assets.core.identifiers import quote
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.errors import IncompleteReadError, PreflightError


@dataclass(frozen=True, slots=True)
class Floor:
    """What a server must have before it is read.

    Args:
        database: whose log.
        lsn: up to here, inclusive.
        captured: whether the change rows must be there, too, and not only the transactions.
        left: recovery forks that the database has left. A server that shows one has another history, however far it is captured.
    """

    database: str
    lsn: Lsn
    captured: bool = True
    left: tuple[str, ...] = ()


class Reached:
    """How far the server of one connection is known to be."""

    def __init__(self) -> None:
        self._captured: dict[str, Lsn] = {}
        self._logged: dict[str, Lsn] = {}
        self._left: dict[str, tuple[str, ...]] = {}
        """Recovery forks of which a database was on none."""

    def check(self, floor: Floor, answer: Callable[..., object], server: str) -> None:
        """Check that the server has got as far, and ask it if that is not known.

        Args:
            answer: function that returns the value of a query, with its parameters, over the connection; None if there is no row.
            server: for the message.

        Raises:
            IncompleteReadError: it has not.
        """
        if floor.left and self._left.get(floor.database) != floor.left:
            _require_present(floor, str(answer(queries.RECOVERY_FORK, floor.database)).upper(), server)
            self._left[floor.database] = floor.left
            self._captured.pop(floor.database, None)  # perhaps on a fork that it has left since
            self._logged.pop(floor.database, None)
        known = self._captured.get(floor.database, ZERO_LSN)
        if not floor.captured:  # what is captured is in the log
            known = max(known, self._logged.get(floor.database, ZERO_LSN))
        if known >= floor.lsn:
            return
        found = lsn_of(answer(queries.of_database(queries.MAX_LSN, floor.database))) or ZERO_LSN
        if found < floor.lsn and not floor.captured:
            # an instance may be younger than all that is captured; who knows it has the log up to its start
            found = max(found, lsn_of(answer(queries.of_database(queries.NEWEST_START, floor.database))) or ZERO_LSN)
        if found < floor.lsn:
            raise IncompleteReadError(
                f"Database {floor.database} on {server} is captured up to {found}, less than {floor.lsn}, which was "
                "seen before: the replica lags. The question is repeated"
            )
        (self._captured if floor.captured else self._logged)[floor.database] = found


def _require_present(floor: Floor, fork: str, server: str) -> None:
    if fork in floor.left:
        raise IncompleteReadError(
            f"Database {floor.database} on {server} is on recovery fork {fork} still, which others have left: the replica lags, or "
            "was suspended by a forced failover. The question is repeated. Next, if this lasts: ALTER DATABASE "
            f"{quote(floor.database)} SET HADR RESUME on that server"
        )


def require_writes(database: str, server: str, updateability: object) -> None:
    """Check that a connection's server is the one on which a database is written to.

    Args:
        server: for the message.
        updateability: the server's answer to `queries.UPDATEABILITY` over the connection.

    Raises:
        PreflightError: it is not.
    """
    if updateability == "READ_ONLY":
        raise PreflightError(
            f"a table without a key is read under a lock, and {server} routed this connection to a secondary replica of "
            f"{database}, which cannot keep writers away. It is tried again by the next run. Next: connect to the primary itself, or "
            "leave ApplicationIntent=ReadOnly out"
        )
