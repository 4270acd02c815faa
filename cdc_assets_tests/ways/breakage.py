"""Ways in which a capture can be broken: what breaks it, what mends it, and the words by which it is told."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from deltalake import DeltaTable

from cdc_assets.defs.partitions import range_partitions
from cdc_assets.standin import sample
from cdc_assets_tests.e2e.conftest import Daemon
from cdc_assets_tests.shop import TABLES, key

MANY = 1_000_000
DISABLE = "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'{0}', @capture_instance = N'all'"
ENABLE = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{0}', @role_name = NULL"


@dataclass(frozen=True)
class Way:
    """One way.

    Args:
        name: of the test.
        told: what the page says, as a regular expression.
        broken: a block in which it is broken.
        mended: what else it takes, after that, until all can be well again.
    """

    name: str
    told: str
    broken: Callable[[Daemon], AbstractContextManager[object]]
    mended: Callable[[Daemon], object] = lambda daemon: None


@contextmanager
def _fault(daemon: Daemon, name: str) -> Iterator[None]:
    faults = daemon.shop.server.faults
    getattr(faults, name)(times=MANY)
    try:
        yield
    finally:
        faults.clear()


@contextmanager
def _error(daemon: Daemon, number: int, matching: str, message: str = "") -> Iterator[None]:
    faults = daemon.shop.server.faults
    faults.error(number, message, matching=matching, times=MANY)
    try:
        daemon.shop.add_customers(1)
        yield
    finally:
        faults.clear()


@contextmanager
def _agent_stopped(daemon: Daemon) -> Iterator[None]:
    daemon.shop.server.agent.stop()
    try:
        yield
    finally:
        daemon.shop.server.agent.start()


@contextmanager
def _other_password(daemon: Daemon) -> Iterator[None]:
    server = daemon.shop.server
    old = server.password
    server.rotate_password()
    server.drop_connections()
    try:
        yield
    finally:
        server.rotate_password(old)


@contextmanager
def _database_offline(daemon: Daemon) -> Iterator[None]:
    server = daemon.shop.server
    server.execute(f"ALTER DATABASE [{sample.DATABASE}] SET OFFLINE WITH ROLLBACK IMMEDIATE")
    try:
        yield
    finally:
        server.execute(f"ALTER DATABASE [{sample.DATABASE}] SET ONLINE")


def _moved(directory: str) -> Callable[[Daemon], AbstractContextManager[object]]:
    """A folder below the lake, or the lake itself, is away, as a file system that is not mounted."""

    @contextmanager
    def away(daemon: Daemon) -> Iterator[None]:
        place = daemon.shop.folder / "lake" / directory
        beside = daemon.shop.folder / "away"
        place.rename(beside)
        try:
            yield
        finally:
            if place.exists():
                shutil.rmtree(place)
            beside.rename(place)

    return away


@contextmanager
def _configured(daemon: Daemon, change: Callable[[dict[str, str]], str]) -> Iterator[None]:
    file = daemon.shop.file
    before = file.read_text()
    file.write_text(change(json.loads(before)))
    daemon.reload()
    try:
        yield
    finally:
        file.write_text(before)
        daemon.reload()


def _misspelt(properties: dict[str, str]) -> str:
    patterns = [f"dbo\\.{table}" for table in (*TABLES, "ordes")]
    others = {name: text for name, text in properties.items() if name != "table.exclude.list"}
    return json.dumps(others | {"table.include.list": ",".join(patterns)})


def _invalid(properties: dict[str, str]) -> str:
    return json.dumps(properties | {"poll.interval.ms": "soon"})


@contextmanager
def _instance_made_anew(daemon: Daemon) -> Iterator[None]:
    """Changes between two instances of a table are in none."""
    daemon.shop.execute(DISABLE.format("orders"))
    daemon.shop.execute("UPDATE dbo.orders SET discount = COALESCE(discount, 0) + 1")
    daemon.shop.execute(ENABLE.format("orders"))
    yield


def _read_again(table: str) -> Callable[[Daemon], object]:
    """A person materializes the table's snapshot."""

    def ask(daemon: Daemon) -> None:
        backfill = daemon.backfill(key(table, "snapshot"), range_partitions(1).get_partition_keys())
        daemon.wait_until(lambda: daemon.backfill_status(backfill).startswith("COMPLETED"), f"{table} is read again")

    return ask


@contextmanager
def _other_structure(daemon: Daemon) -> Iterator[None]:
    daemon.shop.execute("ALTER TABLE dbo.products ADD colour nvarchar(20) NULL")
    yield
    daemon.shop.execute(ENABLE.format("products") + ", @capture_instance = N'dbo_products_colour'")


@contextmanager
def _events_removed(daemon: Daemon) -> Iterator[None]:
    topic = daemon.shop.folder / "lake" / f"shop.{sample.DATABASE}.dbo.customers"
    table = DeltaTable(topic)
    before = table.version()
    table.delete("op = 'r'")
    yield
    DeltaTable(topic).restore(before)


WAYS = (
    Way("server_away", "cannot be reached", lambda daemon: _fault(daemon, "drop")),
    Way("server_hangs", "no answer|not known|cannot be reached", lambda daemon: _fault(daemon, "hang")),
    Way("agent_stopped", "SQL Server Agent is stopped", _agent_stopped),
    Way("password_refused", "(?i)login|password", _other_password),
    Way("right_taken_away", "(?i)right|permission|denied", lambda daemon: _error(daemon, 229, "dbo_customers_CT")),
    Way("lock_kept", "(?i)lock|wait", lambda daemon: _error(daemon, 1222, "dbo_customers_CT")),
    Way("database_offline", "(?i)offline|cannot be|unavailable", _database_offline),
    Way("lake_not_mounted", "(?i)lake", _moved("")),
    Way("manifest_away", "(?i)__windows|manifest|lake", _moved("shop.__windows")),
    Way("schema_history_away", "(?i)history", _moved("shop.__schema_history")),
    Way("topic_away", "(?i)customers", _moved(f"shop.{sample.DATABASE}.dbo.customers"), _read_again("customers")),
    Way("events_removed", "(?i)customers", _events_removed, _read_again("customers")),
    Way("misspelt_table", "ordes", lambda daemon: _configured(daemon, _misspelt)),
    Way("settings_invalid", "poll.interval.ms", lambda daemon: _configured(daemon, _invalid)),
    Way("gap", "(?i)gap|orders", _instance_made_anew, _read_again("orders")),
    Way("other_structure", "products: its structure|drift", _other_structure),
)
