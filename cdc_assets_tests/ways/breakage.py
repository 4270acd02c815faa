"""Ways in which a capture can be broken: what breaks it, what mends it, and the words by which it is told.

A way is played in several positions: under Dagster between runs and beside one that streams, and without Dagster.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from deltalake import DeltaTable

from cdc_assets_tests.e2e.conftest import Daemon
from cdc_assets_tests.shop import TABLES, Shop
from mssql_standin import sample

MANY = 1_000_000
BETWEEN, BESIDE, ALONE = "between runs", "beside a stream", "by a command"
POOL = "cdc_shop"
DISABLE = "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'{0}', @capture_instance = N'all'"
DENIED = "The SELECT permission was denied on the object 'dbo_customers_CT', database 'SalesDb', schema 'cdc'."
ENABLE = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{0}', @role_name = NULL"


class Keeper(Protocol):
    """What keeps a capture running: Dagster, or a supervisor of the command."""

    @property
    def shop(self) -> Shop:
        """What it captures."""

    @property
    def pids(self) -> list[int]:
        """Processes that capture now."""

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = 240) -> None:
        """Look every half second."""

    def reload(self) -> None:
        """Make it read the file of settings."""

    def read_again(self, table: str) -> None:
        """Let it read a table from the start, as a person does."""


@dataclass(frozen=True)
class Way:
    """One way.

    Args:
        name: of the test.
        told: what the page says, as a regular expression.
        broken: a block in which it is broken.
        mended: what else it takes, after that, until all can be well again.
        later_s: seconds from the break until it is one: what has waited for less is not late.
        paused_s: seconds for which the sensor starts no run after those that failed meanwhile.
        there: positions in which it can be.
        of_runs: whether it is only that a run waits: beside a stream no change waits then, and a command knows nothing of runs.
    """

    name: str
    told: str
    broken: Callable[[Any], AbstractContextManager[object]]
    mended: Callable[[Keeper], object] = lambda keeper: None
    later_s: float = 0.0
    paused_s: float = 0.0
    there: tuple[str, ...] = (BETWEEN, BESIDE, ALONE)
    of_runs: bool = False


@contextmanager
def _fault(keeper: Keeper, name: str) -> Iterator[None]:
    faults = keeper.shop.server.faults
    getattr(faults, name)(times=MANY)
    try:
        yield
    finally:
        faults.clear()


@contextmanager
def _error(keeper: Keeper, number: int, matching: str, message: str = "") -> Iterator[None]:
    faults = keeper.shop.server.faults
    faults.error(number, message, matching=matching, times=MANY)
    try:
        keeper.shop.add_customers(1)
        yield
    finally:
        faults.clear()


@contextmanager
def _agent_stopped(keeper: Keeper) -> Iterator[None]:
    keeper.shop.server.agent.stop()
    try:
        yield
    finally:
        keeper.shop.server.agent.start()


@contextmanager
def _other_password(keeper: Keeper) -> Iterator[None]:
    server = keeper.shop.server
    old = server.password
    server.rotate_password()
    server.drop_connections()
    try:
        yield
    finally:
        server.rotate_password(old)


@contextmanager
def _database_offline(keeper: Keeper) -> Iterator[None]:
    server = keeper.shop.server
    server.execute(f"ALTER DATABASE [{sample.DATABASE}] SET OFFLINE WITH ROLLBACK IMMEDIATE")
    try:
        yield
    finally:
        server.execute(f"ALTER DATABASE [{sample.DATABASE}] SET ONLINE")


def _moved(directory: str) -> Callable[[Keeper], AbstractContextManager[object]]:
    """A folder below the lake, or the lake itself, is away, as a file system that is not mounted."""

    @contextmanager
    def away(keeper: Keeper) -> Iterator[None]:
        place = keeper.shop.folder / "lake" / directory
        beside = keeper.shop.folder / "away"
        place.rename(beside)
        try:
            yield
        finally:
            if place.exists():
                shutil.rmtree(place)
            beside.rename(place)

    return away


@contextmanager
def _configured(keeper: Keeper, change: Callable[[dict[str, str]], str]) -> Iterator[None]:
    file = keeper.shop.file
    before = file.read_text()
    file.write_text(change(json.loads(before)))
    keeper.reload()
    try:
        yield
    finally:
        file.write_text(before)
        keeper.reload()


def _misspelt(properties: dict[str, str]) -> str:
    patterns = [f"dbo\\.{table}" for table in (*TABLES, "ordes")]
    others = {name: text for name, text in properties.items() if name != "table.exclude.list"}
    return json.dumps(others | {"table.include.list": ",".join(patterns)})


def _invalid(properties: dict[str, str]) -> str:
    return json.dumps(properties | {"poll.interval.ms": "soon"})


@contextmanager
def _instance_made_anew(keeper: Keeper) -> Iterator[None]:
    """Changes between two instances of a table are in none."""
    keeper.shop.execute(DISABLE.format("orders"))
    keeper.shop.execute("UPDATE dbo.orders SET discount = COALESCE(discount, 0) + 1")
    keeper.shop.execute(ENABLE.format("orders"))
    yield


def _read_again(table: str) -> Callable[[Keeper], object]:
    return lambda keeper: keeper.read_again(table)


@contextmanager
def _other_structure(keeper: Keeper) -> Iterator[None]:
    keeper.shop.execute("ALTER TABLE dbo.products ADD colour nvarchar(20) NULL")
    yield
    keeper.shop.execute(ENABLE.format("products") + ", @capture_instance = N'dbo_products_colour'")
    keeper.shop.add_customers(1)  # the capture goes over to an instance behind which the log goes on


@contextmanager
def _older_copy(keeper: Keeper) -> Iterator[None]:
    """A topic's folder was restored from a copy of former days. (What a DELETE of another program has removed is advice, and no
    trouble: somebody wanted it.)"""
    topic = keeper.shop.folder / "lake" / f"shop.{sample.DATABASE}.dbo.customers"
    beside = keeper.shop.folder / "copy"
    shutil.copytree(topic, beside)
    version = DeltaTable(topic).version()
    keeper.shop.add_customers(1)
    keeper.wait_until(lambda: DeltaTable(topic).version() > version, "its row is in the lake")
    shutil.rmtree(topic)
    beside.rename(topic)
    yield


@contextmanager
def _read_only(keeper: Keeper) -> Iterator[None]:
    """The lake's file system takes no more writes, as after an error of the disk."""
    lake = keeper.shop.folder / "lake"
    _mount("--bind", str(lake), str(lake))
    try:
        _mount("-o", "remount,ro,bind", str(lake))
        keeper.shop.add_customers(1)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(lake)], check=True)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _with(**changed: str) -> Callable[[Keeper], AbstractContextManager[object]]:
    """Properties of the file are others; in names `__` stands for a dot."""
    properties = {name.replace("__", "."): text for name, text in changed.items()}
    return lambda keeper: _configured(keeper, lambda before: json.dumps(before | properties))


@contextmanager
def _table_disabled(keeper: Keeper) -> Iterator[None]:
    keeper.shop.execute(DISABLE.format("order_lines"))
    yield
    keeper.shop.execute(ENABLE.format("order_lines"))


@contextmanager
def _commit_emptied(keeper: Keeper) -> Iterator[None]:
    log = keeper.shop.folder / "lake" / f"shop.{sample.DATABASE}.dbo.products" / "_delta_log"
    commit = max(file for file in log.glob("*.json") if '"add"' in file.read_text())  # others hold no events
    before = commit.read_bytes()
    commit.write_bytes(b"")
    try:
        yield
    finally:
        commit.write_bytes(before)


@contextmanager
def _file_lost(keeper: Keeper) -> Iterator[None]:
    topic = keeper.shop.folder / "lake" / f"shop.{sample.DATABASE}.dbo.products"
    file = topic / min(DeltaTable(topic).get_add_actions(flatten=True)["path"].to_pylist())
    beside = keeper.shop.folder / file.name
    file.rename(beside)
    try:
        yield
    finally:
        beside.rename(file)


@contextmanager
def _clock_set_back(keeper: Keeper) -> Iterator[None]:
    clock = keeper.shop.server.clock
    clock.shift = timedelta(hours=-1)
    try:
        yield
    finally:
        clock.shift = timedelta()


@contextmanager
def _pool_held(daemon: Daemon) -> Iterator[None]:
    """A run that somebody asks for waits for a slot that nobody gives; what knows nothing of runs sees changes that wait."""
    storage = daemon.instance.event_log_storage
    storage.set_concurrency_slots(POOL, 0)
    try:
        daemon.launch("shop_changes", {})
        daemon.shop.add_customers(1)
        yield
    finally:
        storage.set_concurrency_slots(POOL, 1)


@contextmanager
def _run_frozen(keeper: Keeper) -> Iterator[None]:
    keeper.wait_until(lambda: bool(keeper.pids), "a run is at work")
    frozen = keeper.pids
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def _mirror_away(keeper: Keeper) -> Iterator[None]:
    """Mirrors are kept from here on; in the place of one is something else that cannot be moved away, so that it cannot be made anew."""
    shop = keeper.shop
    shop.write(shop.properties | {"mirror.enabled": "true", "mirror.interval.ms": "1000"})
    keeper.reload()
    shop.add_customers(1)  # a mirror begins once the log goes on behind the moment at which its table was read
    place = shop.folder / "lake" / f"shop.{sample.DATABASE}.dbo.customers.__current"
    keeper.wait_until(lambda: (place / "_delta_log").exists(), "the sensor makes the mirrors")
    beside = shop.folder / "away"
    place.rename(beside)
    place.write_text("no folder")
    _mount("--bind", str(place), str(place))
    shop.add_customers(1)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
        place.unlink()
        beside.rename(place)


WAYS = (
    Way("server_away", "cannot be queried", lambda keeper: _fault(keeper, "drop")),
    Way("server_hangs", "no answer|not known|cannot be queried", lambda keeper: _fault(keeper, "hang")),
    Way("agent_stopped", "SQL Server Agent is stopped", _agent_stopped),
    Way("password_refused", "(?i)login|password", _other_password),
    Way(
        "right_taken_away",
        "(?i)right|permission|denied",
        lambda keeper: _error(keeper, 229, "dbo_customers_CT", DENIED),
    ),
    Way("lock_kept", "(?i)lock|wait", lambda keeper: _error(keeper, 1222, "dbo_customers_CT")),
    Way("database_offline", "(?i)offline|cannot be|unavailable", _database_offline),
    Way("lake_not_mounted", "(?i)lake", _moved("")),
    Way(
        "manifest_away",
        "(?i)__windows|manifest|lake",
        _moved("shop.__windows"),
        paused_s=30.0,  # by then up to two runs have failed
    ),
    Way("schema_history_away", "(?i)history", _moved("shop.__schema_history")),
    Way("topic_away", "(?i)customers", _moved(f"shop.{sample.DATABASE}.dbo.customers"), _read_again("customers")),
    Way("older_copy", "(?i)customers", _older_copy, _read_again("customers")),
    Way("misspelt_table", "ordes", lambda keeper: _configured(keeper, _misspelt)),
    Way("settings_invalid", "poll.interval.ms", lambda keeper: _configured(keeper, _invalid)),
    Way("gap", "(?i)gap|orders", _instance_made_anew, _read_again("orders")),
    Way("other_structure", "products: its structure|drift", _other_structure),
    Way("table_disabled", "order_lines", _table_disabled, _read_again("order_lines")),
    Way(
        "lake_read_only",
        "(?i)read-only|cannot be written",
        _read_only,
        later_s=60.0,  # a command that only reads sees what waits
        paused_s=60.0,  # by then up to three runs have failed
    ),
    Way("commit_emptied", "products", _commit_emptied, _read_again("products")),
    Way("file_lost", "products", _file_lost, _read_again("products")),
    Way("clock_set_back", "(?i)clock|not known", _clock_set_back, there=(BETWEEN,)),  # new commits make the time known
    Way("pool_held", "has waited for", _pool_held, later_s=60.0, there=(BETWEEN, BESIDE), of_runs=True),
    Way("run_frozen", "behind", _run_frozen, later_s=60.0, there=(BESIDE, ALONE)),
    Way("unknown_database", "(?i)nowhere", _with(database__names=f"{sample.DATABASE},Nowhere")),
    Way("secret_missing", "NOT_SET", _with(database__password="${env:NOT_SET}")),
    Way("broker_away", "Kafka", _with(kafka__enabled="true", bootstrap__servers="127.0.0.1:1")),
    Way(
        "mirror_refused",
        "skipped.operations",
        _with(mirror__enabled="true", mirror__interval__ms="1000", skipped__operations="d"),
        _read_again("customers"),  # what was streamed meanwhile lacks operations: no later mirror could follow it
    ),
    Way("mirror_away", "(?i)mirror", _mirror_away, there=(BETWEEN, BESIDE)),
)
