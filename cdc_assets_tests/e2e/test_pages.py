"""Dagster's pages in a headless browser, as pictures and as text: graph, capture, asset, partitions, checks, sensor, runs, backfill.

The pictures in the documentation are those that these tests take: with `CDC_SCREENSHOTS` they are written into that folder.
"""

import os
import shutil
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cdc_assets_tests.e2e.browser import HEIGHT, SHOWN, WIDTH, browse
from cdc_assets_tests.e2e.conftest import Daemon, dagster_with_ledger
from cdc_assets_tests.shop import key
from mssql_standin import sample

_TABLE = f"assets/shop/{sample.DATABASE}/dbo/customers"
_ASSET = f"{_TABLE}.changes"
_RUNS = "runs?q%5B0%5D=job%3A"
"""Runs of one job: the list of all shows the newest 25, which may be of any job."""
_PAGES = {
    "graph": (
        f"{_TABLE}.source?view=lineage&lineageScope=downstream",
        ["customers.changes", "customers.snapshot", "customers.source", "Microsoft SQL Server"],
    ),
    "capture": (
        "assets/shop/windows?view=overview",
        ["shop is healthy", "lag: capture job", "rows_per_second", "SalesDb.dbo.customers"],
    ),
    "asset": (
        f"{_ASSET}?view=overview",
        [
            "Row count",
            "rows_creates",
            "to_lsn",
            "nvarchar(80)",
            "value.after.name",
            "Source code",
            "sample",
            "People and companies that order.",
            "What the customer may still spend",
        ],
    ),
    "source": (f"{_TABLE}.source?view=overview", ["nvarchar(80)", "What the customer may still spend"]),
    "partitions": (
        f"assets/shop/{sample.DATABASE}/dbo/ledger.snapshot?view=partitions&partition=range_02_of_04",
        ["range_01_of_04", "range_04_of_04", "Materialized", "1000 ≤ id &lt; 2000", "table_rows"],
    ),
    "structures": ("assets/shop/schema_history?view=overview", ["last_ddl", "newest_structures", "of SalesDb.dbo."]),
    "sensor": (
        "locations/cdc_assets/sensors/shop_lsn",
        ["Checks the server for a new captured LSN", "Running", " · start "],
    ),
    "snapshot runs": (f"{_RUNS}shop_snapshot", ["shop_snapshot", "Launched by", "shop_lsn", "cdc/committed"]),
    "stream runs": (f"{_RUNS}shop_follow", ["shop_follow", "Launched by", "shop_lsn", "cdc/lsn"]),
    "checks": (f"{_ASSET}?view=checks", ["lsn_continuity", "Plots"]),
}

pytestmark = pytest.mark.timeout(1200)  # the first test waits for the daemon and the first snapshot


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for these tests alone: others leave tables in trouble behind, and the page of the capture says so."""
    with dagster_with_ledger(tmp_path_factory.mktemp("pages")) as found:
        yield found


def png_size_and_colours(picture: Path) -> tuple[int, int, int]:
    """Width, height and number of different byte values in the picture's data: a blank page has very few."""
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    body, place = b"", 8
    while place < len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        if data[place + 4 : place + 8] == b"IDAT":
            body += data[place + 8 : place + 8 + length]
        place += length + 12
    return width, height, len(set(zlib.decompress(body)))


@pytest.mark.parametrize("name", _PAGES)
def test_page_shows_what_it_should(daemon: Daemon, tmp_path: Path, name: str) -> None:
    daemon.shop.add_customers(1)
    daemon.wait_until(
        lambda: any(event["value"]["op"] == "c" for event in daemon.shop.events("customers")), "a change is captured"
    )
    if name == "capture":  # while a run works the page is never older than seconds, and so it is behind it
        daemon.await_rest()
    path, expected = _PAGES[name]
    look_at(daemon, tmp_path, name, path, expected)


def test_page_of_a_backfill(daemon: Daemon, tmp_path: Path) -> None:
    backfill = daemon.backfill([key("ledger", "snapshot")], daemon.ranges[1:3])
    daemon.wait_until(lambda: daemon.backfill_status(backfill) == "COMPLETED_SUCCESS", "the backfill ends")
    look_at(daemon, tmp_path, "backfill", f"runs/b/{backfill}", ["ledger.snapshot", "100%"])


def look_at(daemon: Daemon, folder: Path, name: str, path: str, expected: Sequence[str]) -> None:
    """Check what a page shows, and take its picture; keep it if the documentation shows it."""
    address = f"{daemon.url}/{path}"
    text = browse(address, folder / "text", "--dump-dom")
    missing = [part for part in expected if part not in text]
    assert missing == []
    picture = folder / f"{name}.png"
    browse(address, folder / "picture", f"--screenshot={picture}")
    width, height, colours = png_size_and_colours(picture)
    assert (width, height) == (WIDTH, HEIGHT)
    assert colours > 100, "the page is blank"
    assert picture.stat().st_size > 30_000
    if name in SHOWN and (kept := os.environ.get("CDC_SCREENSHOTS")):
        Path(kept).mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, Path(kept) / picture.name)
