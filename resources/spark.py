"""Spark as the runner of tasks: one job per call, one task per item.

A task is a pickled function and its argument. `spark.range(0, n, 1, n)` gives n
partitions of one row each, and a user-defined function runs the task in the
Python worker of each. This form works on a classic session and over Spark
Connect, which has no RDDs, and needs no pandas, as `mapInArrow` does in Spark
4.3. The rows themselves never pass through the JVM: a task reads and writes
them with Arrow and returns a small description (design §1).

*Why errors come back as data.* A Python exception inside a task reaches the
driver as text in a `PythonException`: its class, and with it the answer to "may
I repeat this?", is lost. So a task catches, sends the exception's class,
arguments and attributes, and the driver raises the same error with the worker's
traceback as a note. A worker that dies (killed, out of memory) still fails the
Spark job; that becomes a retryable error.

*Repeating.* `local[n]` never retries a task and a cluster would retry one that
failed for good, so the retry is here: a task that fails with a retryable error
is run again, after a pause, by its own worker. Tasks must therefore be
repeatable, and they are: what they write counts only once the driver commits it.
"""

import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dagster_pyspark import LazyPySparkResource
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pydantic import Field, PrivateAttr
from pyspark import SparkContext, __version__, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import BinaryType

from cdc_assets.errors import ConfigurationError, RetryableError

T = TypeVar("T")
R = TypeVar("R")

_LOGGING = Path(__file__).with_name("log4j2.properties").as_uri()
"""For local sessions: without it Spark greets with a dozen lines."""

ATTEMPTS = 3
"""How often a task that fails with a retryable error is tried."""
PAUSE_S = 0.5
"""Seconds before the second attempt; doubled for each further one."""

BASE_CONF: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",  # a fresh worker per task costs 0.44 s (spec spark §1)
    "spark.python.daemon.module": "resources.spark_daemon",  # Spark's own, but silent when a reader has enough
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


class SparkTaskError(RetryableError):
    """A Spark job broke outside our code: a worker died, an executor was lost."""


class SparkTaskRunner:
    """`core.ports.TaskRunner` on a Spark session.

    Args:
        session: gives the session; called on the first job, so that an idle run never starts a JVM.
        parallelism: about how many tasks run at once.
    """

    def __init__(self, session: Callable[[], SparkSession], parallelism: int) -> None:
        self._session = session
        self.parallelism = parallelism

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """Run `function` on every task, as one Spark job.

        Raises:
            CdcError: what the first failing task (in task order) raised; no task is left running.
            SparkTaskError: the job broke outside the function.
        """
        if not tasks:
            return []
        payload = cloudpickle.dumps((function, list(tasks)))  # together: tasks share the plans of their tables
        frame = self._session().range(0, len(tasks), 1, len(tasks))
        execute = udf(lambda index: _attempt(payload, index), BinaryType(), useArrow=False).asNondeterministic()
        try:
            rows = frame.select("id", execute("id").alias("outcome")).collect()
        except (PySparkException, Py4JError) as error:
            raise SparkTaskError(
                f"A Spark job of {len(tasks)} tasks broke: {_summary(error)}. "
                "Next: look for a killed Python worker or lost executor in Spark's log; the window is repeated."
            ) from error
        return [_result(bytes(row["outcome"])) for row in sorted(rows, key=lambda row: row["id"])]


def _summary(error: Exception) -> str:
    """The telling line of a JVM error: the deepest cause that it names first, else its own first line."""
    lines = str(error).splitlines() or [type(error).__name__]
    causes = [line.partition("Exception: ")[2] for line in lines if "SparkException: " in line]
    return (causes[-1] if causes else lines[0]).rstrip(".")


def _attempt(payload: bytes, index: int) -> bytes:
    """In the worker: run one task, retryable errors up to `ATTEMPTS` times, and pack what came of it."""
    function, tasks = pickle.loads(payload)  # noqa: S301 - our own driver wrote it
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_S * 2 ** (attempt - 1))
        try:
            return bytes(cloudpickle.dumps((function(tasks[index]), None)))
        except Exception as error:  # noqa: BLE001 - the driver raises it again
            failure = _packed(error)
            if not getattr(error, "retryable", False):
                break
    return failure


def _packed(error: Exception) -> bytes:
    """An error as bytes; its own pickling is not used, for that calls `__init__` with the wrong arguments."""
    text = "".join(traceback.format_exception(error))
    try:
        return bytes(cloudpickle.dumps((None, (type(error), error.args, dict(vars(error)), text))))
    except Exception:  # noqa: BLE001 - what cannot be pickled travels as text
        return bytes(cloudpickle.dumps((None, (RuntimeError, (f"{type(error).__name__}: {error}",), {}, text))))


def _result(outcome: bytes) -> Any:
    """In the driver: the task's result, or its error raised again with the worker's traceback as a note."""
    result, failure = pickle.loads(outcome)  # noqa: S301 - our own worker wrote it
    if failure is None:
        return result
    kind, arguments, attributes, text = failure
    error: Exception = kind.__new__(kind, *arguments)
    error.args = arguments
    vars(error).update(attributes)
    error.add_note("In a Spark task:\n" + text)
    raise error


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


class SparkResource(LazyPySparkResource):
    """A Spark session on first use: local by default, a cluster or Spark Connect by configuration.

    Sensors, checks and idle runs never touch `spark_session` and so never pay for a JVM.
    """

    master: str = Field(default="local[*]", description="Spark master; ignored when `remote` is set.")
    remote: str = Field(default="", description="Spark Connect address such as sc://host:15002.")
    driver_memory: str = Field(default="1g", description="Heap of the local JVM; rows do not pass through it.")
    tasks: int = Field(default=0, description="Tasks that run at once; 0 asks: local cores, or Spark's default.")
    class_archive: str = Field(
        default_factory=default_class_archive, description="AppCDS archive of the local JVM; used if the file is there."
    )
    spark_config: dict[str, Any] = Field(default={}, description="Further Spark properties; they win.")
    _spark_session: SparkSession | None = PrivateAttr(default=None)

    def _init_session(self) -> None:
        self._start()

    def _start(self, *java: str) -> SparkSession:
        """The session, started with these options of Java unless it runs already."""
        if self._spark_session is not None:
            return self._spark_session
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName("cdc-assets")
        builder = builder.remote(self.remote) if self.remote else builder.master(self.master)
        for name, value in self.properties(*java).items():
            builder = builder.config(name, value)
        try:
            self._spark_session = builder.getOrCreate()
        except PySparkException as error:
            raise ConfigurationError(
                "Spark session",
                self.remote or self.master,
                "a reachable Spark",
                "check Java (17 or newer) and the address",
            ) from error
        return self._spark_session

    def properties(self, *java: str) -> dict[str, str]:
        """Spark properties in force, with further options of Java; for Connect only those that a session may set."""
        own = {name: str(value) for name, value in self.spark_config.items()}
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
        return int(self.spark_session.range(1).sparkSession.conf.get("spark.default.parallelism", "4"))

    def runner(self) -> SparkTaskRunner:
        """The task runner of this session; started by it, the JVM compiles quickly rather than well (`_QUICK`)."""
        return SparkTaskRunner(lambda: self._start(*_QUICK), self.parallelism())
