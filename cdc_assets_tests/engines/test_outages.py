"""A server that goes away while the engine streams, and comes back: nothing is lost or doubled, and nothing is called healthy."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cdc_assets_tests.beside import beside
from cdc_assets_tests.contract.source.proxy import Proxy, proxy
from cdc_assets_tests.engines.captures import log_of, ours, properties_of, topics
from cdc_assets_tests.engines.servers import MariaDb, Postgres, Server
from cdc_assets_tests.patience import Patience

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1200)]


def stopped(server: Server, link: Proxy, meanwhile: Callable[[], None]) -> None:
    server.stop(signal.SIGINT if isinstance(server, Postgres) else signal.SIGTERM)
    meanwhile()
    server.start()


def killed(server: Server, link: Proxy, meanwhile: Callable[[], None]) -> None:
    server.stop(signal.SIGKILL)
    meanwhile()
    time.sleep(2)  # PostgreSQL's other processes end by themselves
    server.start()


def silent(server: Server, link: Proxy, meanwhile: Callable[[], None]) -> None:
    """No byte arrives any more on any connection, and then no byte on the old ones."""
    link.until, link.answer_bytes = 0, 0
    time.sleep(2)
    server.execute("insert into items values (-1, 'written in silence')")
    meanwhile()
    time.sleep(25)
    link.until = link.accepted


@contextmanager
def writing(server: Server) -> Iterator[None]:
    """Transactions of several rows, as many as the server takes."""

    def write(over: threading.Event) -> None:
        number = 1
        while not over.is_set():
            rows = ", ".join(f"({number + more}, 'n')" for more in range(7))
            if server.try_execute(f"insert into items values {rows}").returncode:
                time.sleep(0.2)
            number += 7

    with beside(write):
        yield


def keys_of(folder: Path) -> list[int]:
    found = topics(folder / "lake")
    return [event["key"]["id"] for name, events in found.items() if name.endswith(".items") for event in events]


def until_complete(server: Server, folder: Path) -> list[int]:
    """Wait until the lake has all rows; their keys in the order of their events."""
    patience = Patience(120)
    expected = sorted(row["id"] for row in server.rows("items", ["id"]))
    while not set(expected) <= set(keys := keys_of(folder)):
        assert patience, f"{len(expected)} rows, {len(keys)} events: {log_of(folder)}"
        time.sleep(1)
    return keys


def status_of(folder: Path) -> dict[str, Any]:
    call = [sys.executable, "-m", "cdc_assets.cli.main", "status", "--json", "-c", str(folder / "capture.json")]
    begun = time.monotonic()
    found: dict[str, Any] = json.loads(subprocess.run(call, capture_output=True, text=True, check=False).stdout)
    assert time.monotonic() - begun < 60
    return found


@pytest.mark.parametrize("kind", [MariaDb, Postgres])
def test_a_stream_goes_on_when_the_server_is_back(kind: type[Server], tmp_path: Path) -> None:
    with kind(tmp_path / "server.log") as server, proxy(("127.0.0.1", server.port)) as link:
        server.execute("create table items (id int primary key, name varchar(60))")
        server.execute("insert into items values (0, 'first')")
        own = properties_of(server, 0) | {
            "lake.path": str(tmp_path / "lake"),
            "engine.heap": "512m",
            "engine.batch.ms": "300",
            "max.batch.size": "8",
            "database.port": str(link.port),
            "heartbeat.interval.ms": "500",
            "retriable.restart.connector.wait.ms": "1000",
        }
        process = ours(tmp_path, own, idle=None)

        def look() -> None:
            found = status_of(tmp_path)
            assert found["health"] == "not known"
            assert "cannot be queried" in found["headline"]

        try:
            while "batch 0" not in log_of(tmp_path):
                assert process.poll() is None, log_of(tmp_path)
                time.sleep(0.5)
            for outage in (stopped, killed, silent):
                with writing(server):
                    time.sleep(4)
                    outage(server, link, look)
                    time.sleep(4)
                keys = until_complete(server, tmp_path)
                assert process.poll() is None, log_of(tmp_path)
                assert len(keys) == len(set(keys)), f"twice after {outage.__name__}"
            patience = Patience(90)
            while (found := status_of(tmp_path))["health"] != "healthy":
                assert found["health"] == "working", found
                assert patience, found
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)
        assert sorted(keys_of(tmp_path)) == sorted(row["id"] for row in server.rows("items", ["id"]))
