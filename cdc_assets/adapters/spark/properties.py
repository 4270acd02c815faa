"""Spark properties of sessions that are made here, and why each is set."""

import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark import __version__

from cdc_assets.adapters.spark.runner import SPECULATION
from cdc_assets.adapters.spark.settings import SparkSettings
from cdc_assets.adapters.spark.shipping import python_path

_LOGGING = Path(__file__).with_name("log4j2.properties")
"""For sessions of ours: without it Spark greets with a dozen lines."""

BASE_CONF: Mapping[str, str] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",  # a fresh worker per task costs 0.44 s (spec spark §1)
    "spark.python.daemon.module": "cdc_assets.adapters.spark.daemon",  # Spark's own, but silent when a reader has enough
    "spark.python.unix.domain.socket.enabled": "true",  # 30 ms less per task than loopback TCP
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default INT96 reads back as nanoseconds
    "spark.sql.shuffle.partitions": "4",
}
"""Reasons in spec spark §7 no. 7; a configuration value of the same name wins."""

LOCAL_CONF: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",  # other users of this machine reach its ports; Spark makes up a secret for each session
    "spark.ui.enabled": "false",  # a local session is there a moment earlier; on a cluster Spark serves its pages
}
"""Only this machine needs to reach the driver of a local session."""

CLUSTER_CONF: Mapping[str, str] = {
    # an executor that is cut off is given up within a minute, and its tasks run elsewhere; Spark's own values are 120 and 60
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "5s",
    "spark.python.worker.faulthandler.enabled": "true",  # a worker that native code kills leaves its stack in the error
}
"""Only for clusters."""

OWN_CONF: Mapping[str, str] = {SPECULATION: "false"}  # `runner` says why
"""Whatever is configured."""

QUICK = ("-XX:TieredStopAtLevel=1",)
"""Tasks leave the JVM nothing but planning, and most runs end after a few jobs: without the optimizing compiler the
session is there earlier, and start and first jobs take six tenths of the processor time. Long queries take twice as
long, so only sessions that nobody else gets are without it."""
PATIENT = tuple(
    f"-XX:Tier4{name}={10 * usual}"
    for name, usual in {
        "InvocationThreshold": 5000,
        "MinInvocationThreshold": 600,
        "CompileThreshold": 15000,
        "BackEdgeThreshold": 40000,
    }.items()
)
"""Where users may request the session, it has both compilers; if a capture's tasks start it, the optimizing one begins with what
is ten times as hot as usual, which saves a quarter of the start's processor time. `spark_config` may say otherwise."""


def default_class_archive() -> str:
    """Path of this environment's archive of JVM classes (`archive`), whether it exists or not."""
    return str(Path(sys.prefix) / f"spark-{__version__}.jsa")


def properties_of(settings: SparkSettings, driver_memory: str, class_archive: str, *java: str) -> dict[str, str]:
    """Properties in force; for Connect only those that a session may set.

    Args:
        driver_memory: heap of the driver's JVM.
        class_archive: AppCDS archive of that JVM; used if the file exists.
        java: more of its options.
    """
    own = dict(settings.config)
    if settings.remote:
        sql = {name: value for name, value in BASE_CONF.items() if name.startswith("spark.sql.")}
        return sql | {name: value for name, value in own.items() if name.startswith("spark.sql.")}
    options = ["-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr", *java]
    if class_archive and Path(class_archive).is_file():
        options.append(f"-XX:SharedArchiveFile={class_archive}")
    options.append(f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}")
    if settings.local:
        options.append("-XX:+UseSerialGC")
    driver = {"spark.driver.memory": driver_memory, "spark.driver.extraJavaOptions": " ".join(options)}
    if settings.local:
        return {**BASE_CONF, **driver, **LOCAL_CONF, **own, **OWN_CONF}
    path = "spark.executorEnv.PYTHONPATH"
    executors = {"spark.executor.extraJavaOptions": " ".join(java)} if java else {}
    shipped = {path: python_path(own.get(path, ""))}
    return {**BASE_CONF, **driver, **CLUSTER_CONF, **executors, **own, **shipped, **OWN_CONF}
