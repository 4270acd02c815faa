"""Two workers on hosts of their own, a shop that they reach, a lake that they share, and captures of the one into the other.

Executors run a Python that has the libraries of tasks but not our code, which must be shipped.
"""

import os
import subprocess
import sys
import time
import venv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cdc_assets.standin.sample import SIGNAL_TABLE
from cdc_assets_tests.cluster.hosts import Network
from cdc_assets_tests.cluster.standalone import StandaloneCluster
from cdc_assets_tests.shop import Shop

SLOW = float(os.environ.get("CDC_CLUSTER_PATIENCE", "1"))
"""How many times longer than usual this machine may take."""
CAPTURE = [sys.executable, "-m", "cdc_assets.cli.main", "capture"]


@dataclass
class Site:
    """Two workers on hosts of their own, a shop that they reach, and a lake that they share."""

    network: Network
    cluster: StandaloneCluster
    shop: Shop
    folder: Path
    properties: dict[str, str] = field(default_factory=dict)

    def add_worker(self, number: int, *, own_lake: bool = False) -> None:
        """Start a worker; one with a lake of its own mounts another disk at the lake's path."""
        (self.folder / "lake").mkdir(exist_ok=True)
        prefix = ["ip", "netns", "exec", self.network.namespace(number)]
        if own_lake:  # `ip netns exec` gives each command a mount namespace of its own
            prefix += ["sh", "-c", f'mount -t tmpfs own {self.folder / "lake"} && exec "$@"', "worker"]
        self.cluster.add_worker(f"worker{number}", self.network.address(number), *prefix)

    def write(self, properties: Mapping[str, str]) -> None:
        """(Re)write the capture's configuration: each window is read by as many tasks as there are workers."""
        self.shop.write({"database.hostname": self.network.head, "slices.per.window": "2", **properties})

    def environment(self, **properties: str) -> dict[str, str]:
        """Of a capture on the cluster."""
        conf = self.folder / "spark.conf"
        conf.write_text("".join(f"{name} {text}\n" for name, text in (self.properties | properties).items()))
        chosen = {"CDC_SPARK_MASTER": self.cluster.address, "CDC_SPARK_CONF": str(conf)}
        return os.environ | self.shop.environment | chosen

    def capture(self, *arguments: str, **properties: str) -> "subprocess.CompletedProcess[str]":
        """Run a capture to its end."""
        return subprocess.run(
            [*CAPTURE, *arguments], env=self.environment(**properties), capture_output=True, text=True, timeout=600
        )

    def exact(self) -> None:
        """What was captured is what is on the server, once."""
        assert self.shop.differences() == {}
        assert self.shop.doubled() == []

    def wait_for_customers(self) -> None:
        """Until the lake has all of them."""
        until = time.monotonic() + 120 * SLOW
        while time.monotonic() < until:
            if "shop.SalesDb.dbo.customers" not in self.shop.differences():
                return
            time.sleep(1)
        raise AssertionError(self.shop.differences())

    def ask_for_orders(self) -> None:
        """Have the orders read again, beside the stream."""
        self.shop.write(
            {"database.hostname": self.network.head, "signal.data.collection": f"SalesDb.dbo.{SIGNAL_TABLE}"}
        )
        data = '{"data-collections": ["SalesDb.dbo.orders"]}'
        self.shop.execute(
            f"INSERT INTO dbo.{SIGNAL_TABLE} VALUES (?, 'execute-snapshot', ?)", f"again-{time.time()}", data
        )

    def order_reads(self) -> int:
        """READ events of the orders."""
        return len([event for event in self.shop.events("orders") if event["value"]["op"] == "r"])


def bare_python(folder: Path, *libraries: Path) -> str:
    """A Python of its own that finds these folders of libraries, and nothing of ours."""
    venv.create(folder, with_pip=False, symlinks=True)
    (home,) = (folder / "lib").glob("python*/site-packages")
    (home / "libraries.pth").write_text("".join(f"{path}\n" for path in libraries))
    return str(folder / "bin" / "python")
