"""A standalone cluster of Spark's own distribution: a master, and workers that can be on hosts of their own."""

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pyspark

from cdc_assets_tests.patience import Patience

_HOME = Path(pyspark.__file__).parent
_CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class StandaloneCluster:
    """A master, and the workers that are asked for.

    Args:
        folder: of its logs and of what executors unpack.
        host: address of the master.
    """

    def __init__(self, folder: Path, host: str) -> None:
        self._folder, self._host = folder, host
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        arguments = ["--host", host, "--port", "0", "--webui-port", "0"]
        self._start("master", ["org.apache.spark.deploy.master.Master", *arguments])
        self.address = self._told("master", r"Starting Spark master at (spark://\S+)")

    def add_worker(self, name: str, host: str, *prefix: str, cores: int = 1) -> None:
        """Start a worker, by way of a command that puts it on another host, and wait until the master knows it."""
        arguments = ["--host", host, "--webui-port", "0", "-c", str(cores), "-m", "1g", "-d", str(self._folder / name)]
        self._start(name, ["org.apache.spark.deploy.worker.Worker", *arguments, self.address], *prefix)
        self._told(name, r"(Successfully registered with master)")

    def add_connect_server(self, host: str, python: str, *, port: int = 0, cores: int = 2) -> str:
        """Start a Spark Connect server whose tasks run here; its address."""
        conf = {
            "spark.connect.grpc.binding.address": host,
            "spark.connect.grpc.binding.port": str(port or _free_port(host)),
            "spark.driver.host": host,
            "spark.cores.max": str(cores),
            "spark.ui.enabled": "false",
        }
        given = [part for name, text in conf.items() for part in ("--conf", f"{name}={text}")]
        main = ["org.apache.spark.deploy.SparkSubmit", "--master", self.address, *given, "--class", _CONNECT_SERVER]
        self._start("connect", [*main, "spark-internal"], python=python)
        told = self._told("connect", r"Spark Connect server started at: \S*?:(\d+)")
        return f"sc://{host}:{told}"

    def kill(self, name: str) -> None:
        """SIGKILL for a worker and its executors, unless it is gone already."""
        if process := self._processes.pop(name, None):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self) -> None:
        """End everything."""
        for name in list(self._processes):
            self.kill(name)

    def log(self, name: str) -> str:
        """What the master or a worker has logged."""
        path = self._folder / f"{name}.log"
        return path.read_text(errors="replace") if path.is_file() else ""

    def _start(self, name: str, command: list[str], *prefix: str, python: str = "") -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "PYTHON"))}
        environment |= {"SPARK_HOME": str(_HOME), "SPARK_LOCAL_DIRS": str(self._folder)}
        environment["SPARK_DAEMON_JAVA_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        if python:
            environment["PYSPARK_PYTHON"] = python
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [*prefix, str(_HOME / "bin" / "spark-class"), *command],
                env=environment,
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _told(self, name: str, pattern: str) -> str:
        patience = Patience(120)
        while patience:
            if found := re.search(pattern, self.log(name)):
                return found.group(1)
            assert self._processes[name].poll() is None, self.log(name)
            time.sleep(0.1)
        raise AssertionError(f"{name} does not start: {self.log(name)[-2000:]}")


def _free_port(host: str) -> int:
    with socket.socket() as free:
        free.bind((host, 0))
        return int(free.getsockname()[1])
