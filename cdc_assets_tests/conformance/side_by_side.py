"""Two captures of one server, the connector's and ours, with the same properties."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdc_assets_tests.conformance.compare import Record
from cdc_assets_tests.conformance.debezium import Debezium
from cdc_assets_tests.conformance.ours import Ours
from mssql_standin.control import StandIn


@contextmanager
def side_by_side(server: StandIn, work: Path, **extra: str) -> Iterator[tuple[Debezium, Ours]]:
    """Both at work: ours after its first catch-up, the connector just started.

    Args:
        server: with its tables; both capture database TestDB as `shop`.
        work: each gets a folder below it.
        extra: further properties.
    """
    properties = {
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password,
        "database.names": "TestDB",
        "topic.prefix": "shop",
        **extra,
    }
    for name in ("theirs", "ours"):
        (work / name).mkdir()
    ours = Ours(work / "ours", **properties)
    ours.catch_up()
    with Debezium(work / "theirs", **properties) as debezium:
        yield debezium, ours


def settled(debezium: Debezium, expected: int, quiet_s: float = 16.0) -> list[Record]:
    """Their records, when as many as ours have come and nothing follows, or nothing comes any more.

    An END of the last transaction comes only after an idle scan, hence the patience.
    """
    count, since = -1, time.monotonic()
    while time.monotonic() - since < (quiet_s if count < expected else 2.0):
        records = debezium.records()
        if len(records) != count:
            count, since = len(records), time.monotonic()
        time.sleep(0.2)
    return debezium.records()
