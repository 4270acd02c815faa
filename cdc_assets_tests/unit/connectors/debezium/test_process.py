"""The engine's process is stopped at any byte; the capture beside it still ends, and in time."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.config.engine import engine_config
from cdc_assets.connectors.debezium import engine
from cdc_assets.connectors.debezium.engine import DebeziumEngine
from cdc_assets.core.interruption import listening
from cdc_assets.errors import EngineError

CONFIG = engine_config(
    {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "topic.prefix": "shop",
        "lake.path": "/nowhere",
        "engine.watchdog.ms": "1000",
    }
)


@pytest.fixture(autouse=True)
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process is stopped as soon as it is there."""
    popen = engine.subprocess.Popen

    def stop(*given: Any, **more: Any) -> Any:
        found = popen(*given, **more)
        os.kill(found.pid, signal.SIGSTOP)
        return found

    monkeypatch.setattr(engine, "find_spec", lambda _: True)
    monkeypatch.setattr(engine.subprocess, "Popen", stop)


def test_a_process_that_does_not_take_its_start_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema history is longer than what the socket holds."""
    monkeypatch.setattr(engine, "_CLOSE_S", 1.0)
    feed = DebeziumEngine(CONFIG, [], ["x" * 1000] * 3000)
    with pytest.raises(EngineError, match=r"engine\.watchdog\.ms"):
        wait_for(feed)
    feed.close()


def test_a_killed_process_leaves_nothing_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(engine, "_CLOSE_S", 0.1)
    feed = DebeziumEngine(CONFIG, [], [])
    [folder] = tmp_path.iterdir()
    (folder / "offsets.dat").touch()
    feed.close()
    assert not list(tmp_path.iterdir())


def wait_for(feed: DebeziumEngine) -> None:
    for _ in range(100):
        assert feed.next(0.2) is None


def test_the_end_of_a_run_that_is_ended_meanwhile_does_not_wait_for_its_connector() -> None:
    """A run that is ended has ten seconds; one that ends by itself waits longer for its connector."""
    with suppress(KeyboardInterrupt), listening():
        feed = DebeziumEngine(CONFIG, [], [])
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        begun = time.monotonic()
        feed.close()
    assert time.monotonic() - begun < 9
