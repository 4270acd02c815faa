"""A server some of whose parts do not work, and a capture of it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.errors import ConnectionLostError
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.simulation import DATABASE, SimulatedServer
from cdc_assets_tests.unit.streaming.tables import two_tables

ORDERS = TableId(DATABASE, "dbo", "orders")
LINES = TableId(DATABASE, "dbo", "lines")


class Broken(SimulatedServer):
    """A server some of whose parts do not work."""

    job: CaptureJob | None = None
    away: bool = False
    behind: timedelta | None = None
    is_forgetful: bool = False
    """Whether it knows the time of no commit."""

    def capture_job(self, database: str) -> CaptureJob:
        return self.job or super().capture_job(database)

    def server_time(self) -> datetime:
        if self.away:
            raise ConnectionLostError("The server does not answer.")
        return self.now + (self.behind or timedelta(0))

    def commit_times(self, database: str, lsns: Sequence[Lsn], known: Lsn = ZERO_LSN) -> dict[Lsn, datetime]:
        return {} if self.is_forgetful else dict(super().commit_times(database, lsns))


@contextmanager
def opened(server: Broken) -> Iterator[Broken]:
    yield server


def streaming(folder: Path) -> tuple[Broken, object]:
    """A server and a lake that is complete to its newest transaction."""
    plain, config, lines, orders = two_tables(folder)
    plain.commit((lines, "insert", 50, "a"), (orders, "insert", 50, "a"))
    make_capture(plain, config).stream()
    plain.__class__ = Broken
    return plain, config
