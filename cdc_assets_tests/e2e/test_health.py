"""The pages say what is wrong within seconds, and go on saying it while the capture streams; looked at by a browser.

Several failures at once, each of another table, over a run that goes on. The pages are asked as people see them, not the API, which
knows results that no page shows.
"""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest

from cdc_assets_tests.beside import beside
from cdc_assets_tests.e2e.browser import browse
from cdc_assets_tests.e2e.conftest import Daemon, dagster_dev
from cdc_assets_tests.shop import TABLES, Shop, key, open_shop

HOLD_S = float(os.environ.get("CDC_PAGES_HOLD_S", "120"))
"""How long a failure has to stay on the page."""
SOON_S = float(os.environ.get("CDC_PAGES_SOON_S", "15"))
"""How long the page may take to say it, without the time that the browser takes."""
ALWAYS_S = float(os.environ.get("CDC_PAGES_ALWAYS_S", "30"))
"""How old a page may be at most."""
CAPTURE = "assets/shop/windows"
DISABLE = "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'{0}', @capture_instance = N'all'"
ENABLE = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{0}', @role_name = NULL"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A capture that streams without an end."""
    with open_shop(tmp_path_factory.mktemp("health")) as shop:
        shop.write(
            {
                "stream.idle.timeout.ms": "600000",
                "snapshot.partitions": "1",
                "retriable.restart.connector.wait.ms": "2000",
            }
        )
        with dagster_dev(shop) as found:
            found.wait_until(lambda: _snapshotted(shop), "the sensor takes the initial snapshot")
            yield found


def _snapshotted(shop: Shop) -> bool:
    state = shop.view().state
    return set(TABLES) <= {table.table for table in state.tables} and not state.snapshots


@contextmanager
def changing(shop: Shop) -> Iterator[None]:
    """A change of each table twice a second; captured also while the Agent is stopped, as `sp_cdc_scan` by hand does."""

    def work(over: threading.Event) -> None:
        while not over.wait(0.5):
            shop.add_customers(1)
            shop.execute("UPDATE dbo.products SET stock = stock + 1")
            shop.execute("UPDATE dbo.orders SET discount = COALESCE(discount, 0) + 1")

    with beside(work):
        yield


class Reader:
    """Reads pages side by side."""

    def __init__(self, daemon: Daemon, folder: Path) -> None:
        self._daemon, self._folder, self._number = daemon, folder, 0

    def read(self, page: str) -> str:
        """The text of a page, as the browser shows it."""
        self._number += 1
        number = self._number  # two threads read
        text = browse(f"{self._daemon.url}/{page}", self._folder / f"browser-{number}", "--dump-dom")
        (self._folder / f"page-{number}.html").write_text(f"<!-- {page} -->{text}")
        return text

    def lacks(self, expected: dict[str, list[str]]) -> list[tuple[str, str]]:
        """Texts that pages lack."""
        with ThreadPoolExecutor(2) as pool:
            texts = dict(zip(expected, pool.map(self.read, expected), strict=True))
        return [(page, part) for page, parts in expected.items() for part in parts if part not in texts[page]]

    def watch(self, expected: dict[str, list[str]], what: str) -> None:
        """Within seconds all of it is shown, and so it is at each look until the time is over."""
        time.sleep(SOON_S)
        assert self.lacks(expected) == [], f"{what}: not shown within {SOON_S} s"
        until = time.monotonic() + HOLD_S
        while time.monotonic() < until:
            time.sleep(min(20.0, HOLD_S))
            assert self.lacks(expected) == [], f"{what}: not shown any more"
        assert self.lacks(expected) == [], f"{what}: not shown any more at the end"


def checks_of(table: str, check: str) -> str:
    """Address of the page with a check of a table."""
    return "assets/" + "/".join(key(table, "changes").path) + f"?view=checks&checkDetail={check}"


@pytest.mark.timeout(1800)
def test_pages_tell_what_is_wrong_and_go_on_telling_it(pages: Daemon, tmp_path: Path) -> None:
    reader, shop = Reader(pages, tmp_path), pages.shop
    overview, checks = f"{CAPTURE}?view=overview", f"{CAPTURE}?view=checks&checkDetail=capture_job"
    with changing(shop):
        pages.wait_until(lambda: "shop is healthy" in reader.read(overview), "the page says that all is well")
        shop.execute("ALTER TABLE dbo.products ADD colour nvarchar(20) NULL")
        shop.execute(DISABLE.format("order_lines"))
        shop.execute(DISABLE.format("orders"))
        shop.execute(ENABLE.format("orders"))
        shop.server.agent.stop()
        reader.watch(
            {
                overview: [
                    "in trouble", "SQL Server Agent is stopped", "1 drifted", "1 failed", "1 gap", "products: its structure", "dbo.order_lines",
                ],
                checks: ["capture_job", "SQL Server Agent is stopped"],
                checks_of("products", "schema_drift"): ["schema_drift", "colour added"],
                checks_of("orders", "lsn_continuity"): ["lsn_continuity", "Failed"],
                checks_of("order_lines", "lsn_continuity"): ["lsn_continuity", "Failed"],
            },
            "agent, drift, gap, disabled table",
        )  # fmt: skip
        shop.server.agent.start()


@pytest.mark.timeout(1800)
def test_pages_tell_that_the_server_is_away(pages: Daemon, tmp_path: Path) -> None:
    reader, shop = Reader(pages, tmp_path), pages.shop
    overview, checks = f"{CAPTURE}?view=overview", f"{CAPTURE}?view=checks&checkDetail=retention_headroom"
    shop.server.faults.drop(times=1_000_000)
    try:
        reader.watch(
            {
                overview: ["in trouble", "server cannot be queried"],  # the tables that the test before stopped
                checks: ["retention_headroom", "Not known"],
            },
            "server away",
        )
    finally:
        shop.server.faults.clear()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ["drop", "hang"])
def test_page_follows_a_server_that_stops_answering_and_comes_back(tmp_path: Path, fault: str) -> None:
    """Asked of Dagster's storage every second, since a browser takes longer."""
    with open_shop(tmp_path) as shop:
        shop.write({"snapshot.partitions": "1"})
        with dagster_dev(shop) as daemon:

            def health() -> str:
                event = daemon.instance.get_latest_materialization_event(dg.AssetKey(["shop", "windows"]))
                page = event.asset_materialization if event else None
                return str(page.metadata["health"].value) if page and "health" in page.metadata else ""

            def await_health(*, is_good: bool, seconds: float) -> float:
                began = time.monotonic()
                daemon.wait_until(lambda: (health() == "healthy") is is_good, f"healthy: {is_good}", seconds)
                return time.monotonic() - began

            daemon.wait_until(lambda: _snapshotted(shop), "the sensor takes the initial snapshot")
            daemon.await_rest()
            await_health(is_good=True, seconds=60)
            getattr(shop.server.faults, fault)(times=1_000_000)
            try:
                assert await_health(is_good=False, seconds=60) < ALWAYS_S
                until = time.monotonic() + 60
                while time.monotonic() < until:
                    assert health() != "healthy"
                    time.sleep(1)
            finally:
                shop.server.faults.clear()
            assert await_health(is_good=True, seconds=90) < ALWAYS_S
