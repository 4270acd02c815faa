"""Spark sessions: a local one by default, a cluster or Spark Connect by configuration, on first use."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark import SparkContext, __version__
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc_assets.adapters.spark.runner import SparkTaskRunner
from cdc_assets.core.interruption import in_thread
from cdc_assets.errors import ConfigurationError

_LOGGING = Path(__file__).with_name("log4j2.properties").as_uri()
"""For local sessions: without it Spark greets with a dozen lines."""

BASE_CONF: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",  # a fresh worker per task costs 0.44 s (spec spark §1)
    "spark.python.daemon.module": "cdc_assets.adapters.spark.daemon",  # Spark's own, but silent when a reader has enough
    "spark.python.unix.domain.socket.enabled": "true",  # 30 ms less per task than loopback TCP
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default INT96 reads back as nanoseconds
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""Reasons in spec spark §7 no. 7; a configuration value of the same name wins."""


_QUICK = ("-XX:TieredStopAtLevel=1",)
"""Tasks leave the JVM nothing but planning, and most runs end after a few jobs: without the optimizing compiler the
session is there a second earlier, and start and first jobs take half the processor time. Long queries take twice as
long, so a session that is asked for itself, as IO managers do, has both compilers; `spark_config` may say otherwise."""


def stop_spark(wait_s: float = 30) -> None:
    """End this process's classic session, if there is one, and wait until its JVM is gone.

    Without this the JVM ends a moment after the process. A Connect session is left alone: to stop it would close its id
    for good, for whoever shares it.
    """
    context = SparkContext._active_spark_context
    if context is None:
        return
    gateway = context._gateway
    context.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(wait_s)
    SparkContext._gateway = SparkContext._jvm = None


def default_class_archive() -> str:
    """Where this environment's archive of JVM classes lies (`spark_archive`), whether it is there or not."""
    return str(Path(sys.prefix) / f"spark-{__version__}.jsa")


@dataclass
class LazySession:
    """A Spark session that is started when somebody needs it; of a capture that has nothing to read, never.

    Args:
        master: Spark master; ignored if `remote` is given.
        remote: Spark Connect address such as `sc://host:15002`.
        driver_memory: heap of the local JVM.
        tasks: how many run at once; 0 asks Spark.
        class_archive: AppCDS archive of the local JVM; used if the file is there.
        config: further Spark properties; they win.
    """

    master: str = "local[*]"
    remote: str = ""
    driver_memory: str = "1g"
    tasks: int = 0
    class_archive: str = field(default_factory=default_class_archive)
    config: Mapping[str, object] = field(default_factory=dict)
    _session: SparkSession | None = None

    def session(self, *java: str) -> SparkSession:
        """The session, started with these options of Java unless it runs already.

        Raises:
            ConfigurationError: Spark cannot be started, or not be reached.
        """
        if self._session is not None:
            return self._session
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName("cdc-assets")
        builder = builder.remote(self.remote) if self.remote else builder.master(self.master)
        for name, value in self.properties(*java).items():
            builder = builder.config(name, value)
        try:  # in the main thread pyspark would put its own handler of SIGINT in the place of ours, or of Dagster's
            self._session = in_thread(builder.getOrCreate)
        except PySparkException as error:
            raise ConfigurationError(
                "Spark session",
                self.remote or self.master,
                "a reachable Spark",
                "check Java (17 or newer) and the address",
            ) from error
        return self._session

    def properties(self, *java: str) -> dict[str, str]:
        """Spark properties in force, with further options of Java; for Connect only those that a session may set."""
        own = {name: str(value) for name, value in self.config.items()}
        if self.remote:
            return {name: value for name, value in BASE_CONF.items() if name.startswith("spark.sql.")} | own
        local = self.master.startswith("local")
        options = ["-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr", *java]
        if self.class_archive and Path(self.class_archive).is_file():
            options.append(f"-XX:SharedArchiveFile={self.class_archive}")
        if local:
            options += ["-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={_LOGGING}"]
        driver = {"spark.driver.memory": self.driver_memory, "spark.driver.extraJavaOptions": " ".join(options)}
        return BASE_CONF | driver | ({} if local else {"spark.log.level": "ERROR"}) | own

    def parallelism(self) -> int:
        """Tasks that run at once, without starting a session where the master's name tells it."""
        if self.tasks:
            return self.tasks
        if not self.remote and self.master.startswith("local"):
            inside = self.master.partition("[")[2].rstrip("]").split(",")[0] or "1"
            return os.cpu_count() or 1 if inside == "*" else int(inside)
        return int(self.session().range(1).sparkSession.conf.get("spark.default.parallelism", "4"))

    def runner(self) -> SparkTaskRunner:
        """The task runner of this session; started by it, the JVM compiles quickly rather than well (`_QUICK`)."""
        return SparkTaskRunner(lambda: self.session(*_QUICK), self.parallelism())
