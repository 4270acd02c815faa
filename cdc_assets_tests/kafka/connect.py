"""A real Kafka Connect worker in standalone mode, from Maven Central, with Debezium's connectors as plugins."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Self

from cdc_assets_tests.conformance.engine import SQL_SERVER
from cdc_assets_tests.conformance.engine import jars as connector_jars
from cdc_assets_tests.engines.servers import free_port
from cdc_assets_tests.kafka.maven import Need, fetched
from mssql_standin.control import StandIn

VERSION = "4.3.0"
SINK_VERSION = "3.6.0.Final"
JDBC_SINK = "io.debezium.connector.jdbc.JdbcSinkConnector"
THEIRS = "theirs-"
"""Begins the names of a connector's topics that stand beside ours."""
ROUTE = {
    "transforms": "route",
    "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.route.regex": "(.*)",
    "transforms.route.replacement": f"{THEIRS}$1",
}
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_IN_THE_BROKER = {"group.id": "workers", "offset.storage.partitions": "1"} | {
    f"{what}.storage.{option}": text
    for what in ("config", "offset", "status")
    for option, text in (("topic", f"connect-{what}"), ("replication.factor", "1"))
}


def sink_plugin() -> Path:
    """Folder of Debezium's JDBC sink."""
    need = Need("io.debezium", "debezium-connector-jdbc", SINK_VERSION, "plugin")
    return fetched(f"jdbc-sink-{SINK_VERSION}", need) / "debezium-connector-jdbc"


def worker_classes() -> str:
    """Class path of the worker."""
    logger = Need("org.slf4j", "slf4j-simple", "1.7.36")
    return f"{fetched(f'connect-{VERSION}', Need('org.apache.kafka', 'connect-runtime', VERSION), logger)}/*"


class Worker:
    """A worker that lasts as long as its context; started again over the same folder, it goes on at its offsets.

    Args:
        folder: for offsets, plugins, schema history and log.
        servers: brokers.
        connectors: properties by name.
        heap: memory of its Java machine.
        options: of the worker.
        distributed: whether it keeps offsets, connectors and their states in the broker, as one of several workers does.
    """

    def __init__(
        self,
        folder: Path,
        servers: str,
        connectors: Mapping[str, Mapping[str, str]],
        *,
        heap: str = "1g",
        options: Mapping[str, str] | None = None,
        distributed: bool = False,
    ) -> None:
        self.folder, self._connectors, self._heap = folder, connectors, heap
        self._port, self._distributed = free_port(), distributed
        self.address = f"http://127.0.0.1:{self._port}"
        self._options = {
            "bootstrap.servers": servers,
            "offset.flush.interval.ms": "500",
            "key.converter": _JSON,
            "value.converter": _JSON,
            "listeners": self.address,
            "plugin.path": str(folder / "plugins"),
            "plugin.discovery": "only_scan",  # converters of others than Kafka declare no services
            "connector.client.config.override.policy": "All",
            **(_IN_THE_BROKER if distributed else {"offset.storage.file.filename": str(folder / "offsets.dat")}),
            **(options or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._install()
        files = [self._file("worker", self._options)]
        if not self._distributed:
            files += [self._file(name, {"name": name, **given}) for name, given in self._connectors.items()]
        command = ["java", f"-Xmx{self._heap}", "-Dorg.slf4j.simpleLogger.showDateTime=true", "-cp", worker_classes()]
        kind = "Distributed" if self._distributed else "Standalone"
        command += [f"org.apache.kafka.connect.cli.Connect{kind}", *files]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        if self._distributed:
            wait_until(lambda: self._asked("connectors") == [], self, "the worker")
            for name, given in self._connectors.items():
                self.add(name, given)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def add(self, name: str, properties: Mapping[str, str]) -> None:
        """Start another connector in the running worker."""
        body = json.dumps({"name": name, "config": dict(properties)})
        asked = HTTPConnection("127.0.0.1", self._port, timeout=120)
        asked.request("POST", "/connectors", body, {"Content-Type": "application/json"})
        answer = asked.getresponse()
        assert answer.status == 201, answer.read().decode()
        asked.close()

    def check(self) -> None:
        """Fail if the worker or a task has ended."""
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        for name in self._connectors:
            for task in (self._asked(f"connectors/{name}/status") or {}).get("tasks", ()):
                assert task["state"] != "FAILED", task["trace"]

    def log(self) -> str:
        """The end of the log."""
        return (self.folder / "log").read_text(errors="replace")[-4000:]

    def _asked(self, path: str) -> Any:
        asked = HTTPConnection("127.0.0.1", self._port, timeout=20)
        try:
            asked.request("GET", f"/{path}")
            return json.load(asked.getresponse())
        except (OSError, HTTPException, ValueError):  # not there yet, or not ready
            return None
        finally:
            asked.close()

    def _install(self) -> None:
        """Plugins are folders of links, each with a class loader of its own."""
        plugins = self.folder / "plugins"
        if plugins.exists():
            return
        classes = {given["connector.class"] for given in self._connectors.values()}
        (plugins / "debezium").mkdir(parents=True)
        for jar in connector_jars(SQL_SERVER):
            (plugins / "debezium" / Path(jar).name).symlink_to(jar)
        if JDBC_SINK in classes:
            (plugins / "jdbc").symlink_to(sink_plugin())

    def _file(self, name: str, properties: Mapping[str, str]) -> str:
        path = self.folder / f"{name}.properties"
        path.write_text("".join(f"{option}={_escaped(text)}\n" for option, text in properties.items()))
        return str(path)


def source(folder: Path, **properties: str) -> dict[str, str]:
    """Properties of the SQL Server connector, its schema history in a file."""
    return {
        "connector.class": SQL_SERVER,
        "driver.encrypt": "false",
        "poll.interval.ms": "100",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(folder / "history.dat"),
        **properties,
    }


def of_server(server: StandIn, database: str, prefix: str) -> dict[str, str]:
    """What a connector and a capture need to reach a server, and the prefix of their topics."""
    return {
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password,
        "database.names": database,
        "topic.prefix": prefix,
    }


def wait_until(done: Callable[[], bool], worker: Worker, what: str, seconds: float = 240) -> None:
    """Wait for a condition while the worker is well."""
    deadline = time.monotonic() + seconds
    while not done():
        worker.check()
        assert time.monotonic() < deadline, f"{what} did not come\n{worker.log()}"
        time.sleep(0.3)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace(os.linesep, "\\n")
