"""What a person sees: the page of a capture in a browser, when all is well, in trouble, and when nobody knows.

Without a daemon, so that it takes less than a minute; the long look at Dagster's pages is `e2e`.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import dagster as dg
import pytest

from cdc_assets_tests.e2e.browser import browse
from cdc_assets_tests.patience import wait_until
from cdc_assets_tests.shop import ROOT, Shop, tick

pytestmark = pytest.mark.browser
PAGE = "assets/shop/windows?view=overview"


@contextmanager
def web_pages(home: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Dagster's web server alone; the address of its pages."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [sys.executable, "-m", "dagster_webserver", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)]
    own = os.environ | environment | {"DAGSTER_HOME": str(home)}
    with (
        (home / "web.log").open("w") as log,
        subprocess.Popen(command, cwd=ROOT, env=own, stdout=log, stderr=subprocess.STDOUT) as process,
    ):

        def serves() -> bool:
            with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=10):
                return True
            assert process.poll() is None, (home / "web.log").read_text()
            return False

        try:
            wait_until(serves, 120, (home / "web.log").read_text)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def test_page_says_in_one_word_how_the_capture_is(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text().replace("var/", f"{tmp_path}/"))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert shop.snapshot(instance).success
        assert shop.changes(instance).success
        with web_pages(tmp_path, shop.environment) as address:

            def shown() -> str:
                for event in getattr(tick(shop, instance), "asset_events", ()):
                    instance.report_runless_asset_event(event)
                return browse(f"{address}/{PAGE}", tmp_path / "browser", "--dump-dom")

            assert "shop is healthy" in shown()
            shop.server.agent.stop()
            assert "shop is in trouble" in shown()
            shop.server.agent.start()
            shop.server.faults.drop(times=1_000_000)
            text = shown()
            shop.server.faults.clear()
            assert "shop is not known" in text
            assert "The server cannot be queried" in text
