"""Times of commits, and commits of times, as the server maps them."""

from datetime import datetime

from cdc_assets.adapters.sqlserver import queries
from cdc_assets.adapters.sqlserver.errors import cdc_objects
from cdc_assets.adapters.sqlserver.rows import lsn_of
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.core.lsn import Lsn


class LogTimes:
    """Maps LSNs to times and back; times are the server's, without zone."""

    def __init__(self, source: SqlServerSource) -> None:
        self._session = source.session

    def time_of(self, database: str, lsn: Lsn) -> datetime | None:
        """Time of the newest commit up to an LSN; None if the server no longer knows."""
        with cdc_objects(database):
            found = self._session.value(queries.of_database(queries.COMMIT_TIME, database), lsn.raw)
        return None if found is None else datetime.fromisoformat(str(found))

    def lsn_of_time(self, database: str, time: datetime) -> Lsn | None:
        """The newest LSN whose time is not after a given one; None if the server no longer knows."""
        text = time.replace(tzinfo=None).isoformat(timespec="milliseconds")
        with cdc_objects(database):
            return lsn_of(self._session.value(queries.of_database(queries.LSN_OF_TIME, database), text))
