"""Two workers on hosts of their own, a shop that they reach, a lake that they share, and captures of the one into the other.

Executors run a Python that has the libraries of tasks but not our code, which must be shipped.
"""

import os
import signal
import subprocess
import sys
import time
import venv
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from cdc_assets_tests.cluster.hosts import Forwarder, Network
from cdc_assets_tests.cluster.standalone import StandaloneCluster
from cdc_assets_tests.object_store import SECRET
from cdc_assets_tests.patience import Patience, wait_until
from cdc_assets_tests.shop import Shop
from mssql_standin.sample import SIGNAL_TABLE

SLOW = float(os.environ.get("CDC_CLUSTER_PATIENCE", "1"))
"""How many times longer than usual this machine may take."""
CAPTURE = [sys.executable, "-m", "cdc_assets.cli.main", "capture"]


@dataclass
class Site:
    """Two workers on hosts of their own, a shop that they reach, and a lake that they share."""

    network: Network
    cluster: StandaloneCluster
    shop: Shop
    forwarder: Forwarder
    folder: Path
    properties: dict[str, str] = field(default_factory=dict)
    remote: str = ""
    """Address of a Connect server, by way of which tasks get to the cluster."""
    lake: dict[str, str] = field(default_factory=dict)
    """Properties of the lake; without any it is the folder that both workers share."""

    def with_lake(self, folder: Path, **lake: str) -> "Site":
        """The site with a capture of its own, from its first snapshot on."""
        own = replace(self, shop=Shop(self.shop.server, folder), lake=lake)
        own.write({})
        return own

    def add_worker(self, number: int, *, own_lake: bool = False) -> None:
        """Start a worker; one with a lake of its own mounts another disk at the lake's path."""
        (self.folder / "lake").mkdir(exist_ok=True)
        prefix = ["ip", "netns", "exec", self.network.namespace(number)]
        if own_lake:  # `ip netns exec` gives each command a mount namespace of its own
            prefix += ["sh", "-c", f'mount -t tmpfs own {self.folder / "lake"} && exec "$@"', "worker"]
        self.cluster.add_worker(f"worker{number}", self.network.address(number), *prefix)

    def write(self, properties: Mapping[str, str]) -> None:
        """(Re)write the capture's configuration: each window is read by as many tasks as there are workers."""
        self.shop.write({"database.hostname": self.network.head, "slices.per.window": "2", **self.lake, **properties})

    @contextmanager
    def read_by(self, *workers: int) -> Iterator[None]:
        """A block in which each of these workers reads rows from the server; a driver alone could do without them."""
        before = Counter(self.forwarder.sent)
        yield
        read = self.forwarder.sent - before
        assert not [number for number in workers if not read[self.network.address(number)]], read

    def wait_until_read_by(self, *workers: int) -> None:
        """Add rows until each of these workers has read some: after a start, one may have an executor before the other."""
        before, patience = Counter(self.forwarder.sent), Patience(180)
        while [number for number in workers if not (self.forwarder.sent - before)[self.network.address(number)]]:
            assert patience, self.forwarder.sent - before
            self.shop.add_customers(2)
            self.wait_for_customers()

    def environment(self, **properties: str) -> dict[str, str]:
        """Of a capture on the cluster."""
        conf = self.folder / "spark.conf"
        conf.write_text("".join(f"{name} {text}\n" for name, text in (self.properties | properties).items()))
        chosen = {"CDC_SPARK_MASTER": self.cluster.address, "CDC_SPARK_CONF": str(conf), "LAKE_SECRET": SECRET}
        chosen["CDC_SPARK_REMOTE"] = self.remote
        return os.environ | self.shop.environment | chosen

    def capture(self, *arguments: str, **properties: str) -> "subprocess.CompletedProcess[str]":
        """Run a capture to its end."""
        return subprocess.run(
            [*CAPTURE, *arguments], env=self.environment(**properties), capture_output=True, text=True, timeout=600
        )

    @contextmanager
    def following(self, code: int = 130, **properties: str) -> Iterator["subprocess.Popen[bytes]"]:
        """A capture that follows the log until the block ends, and then ends with this code."""
        with (self.folder / "following.log").open("wb") as log:
            following = subprocess.Popen([*CAPTURE, "--follow"], env=self.environment(**properties), stderr=log)
        try:
            yield following
        finally:
            following.send_signal(signal.SIGTERM)
            following.wait(300)
        assert following.returncode == code, self.told()

    def told(self) -> str:
        """What the last capture that followed has logged."""
        return (self.folder / "following.log").read_text(errors="replace")

    def wait_until_told(self, text: str) -> None:
        """Until the capture that follows says something."""
        wait_until(lambda: text in self.told(), 60 * SLOW, self.told)

    def exact(self) -> None:
        """What was captured is what is on the server, once."""
        assert self.shop.events("customers")
        assert self.shop.differences() == {}
        assert self.shop.doubled() == []

    def wait_for_customers(self) -> None:
        """Until the lake has all of them."""

        def arrived() -> bool:
            return bool(self.shop.events("customers")) and "shop.SalesDb.dbo.customers" not in self.shop.differences()

        wait_until(arrived, 120 * SLOW, self.shop.differences, every=1)

    def ask_for_orders(self) -> None:
        """Have the orders read again, beside the stream."""
        self.write({"signal.data.collection": f"SalesDb.dbo.{SIGNAL_TABLE}"})
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
