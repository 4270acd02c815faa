"""Which capture instances have new change rows, asked so that all of the answer is of one server.

A damaged page of a change table ends the connection that reads it (errors 823, 824, 605, 3624: severity 20 or more). The next connection is
perhaps to another replica. So instances whose own question did that are asked no more until the next plan: they count as active,
and whoever reads them meets the error, which is then that table's only. All others are asked again over one connection.
"""

from collections.abc import Iterable, Mapping

from cdc_assets.adapters.sqlserver import change_tables
from cdc_assets.adapters.sqlserver.session import Session
from cdc_assets.core.lsn import Lsn


class Probes:
    """The newest answers about each database.

    Args:
        session: over which is asked.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._over: dict[str, int] = {}
        """By database, the connection over which `active` was answered, until `end`."""
        self._ending: dict[str, frozenset[str]] = {}
        """By database, the instances whose question ended a connection."""

    def __contains__(self, database: str) -> bool:
        """Whether a plan of a database is being made, of which all questions are to be answered over one connection."""
        return database in self._over

    def active(self, database: str, bounds: Mapping[str, Lsn], until: Lsn) -> frozenset[str]:
        """Which instances have change rows in `(bounds[name], until]`; also those of which that cannot be asked."""
        ending = set[str]()
        for _ in range(2):  # again if it had to connect meanwhile
            self._over[database] = self._session.connections
            asked = {name: after for name, after in bounds.items() if name not in ending}
            found = change_tables.active_instances(self._session, database, asked, until, ending)
            if self._session.connections == self._over[database]:
                break
        self._ending[database] = frozenset(ending)
        return found | ending

    def readable(self, database: str, instances: Iterable[str]) -> list[str]:
        """Those instances whose question does not end the connection, as far as that is known."""
        ending = self._ending.get(database, frozenset())
        return [name for name in instances if name not in ending]

    def end(self, database: str) -> int | None:
        """End the plan of a database; the connection that `active` was answered over, or None if it was not asked."""
        self._ending.pop(database, None)  # it may be repaired before the next one
        return self._over.pop(database, None)
