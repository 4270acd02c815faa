"""Spark as a Dagster resource."""

from typing import Any

from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr

from cdc_assets.adapters.spark.early import EarlyRunner
from cdc_assets.adapters.spark.runner import SparkTaskRunner
from cdc_assets.adapters.spark.session import LazySession, default_class_archive
from cdc_assets.adapters.spark.settings import spark_settings


class SparkResource(LazyPySparkResource):
    """A Spark session, started at its first use: local by default, a cluster or Spark Connect by configuration.

    The environment (`CDC_SPARK_MASTER`, `CDC_SPARK_REMOTE`, `CDC_SPARK_CONF`) overrides these fields, and they override
    `conf_file`. Sensors, checks and idle runs never use `spark_session`, so they start no JVM.
    """

    master: str = Field(default="", description="Spark master; if empty, spark.master, or else local[*].")
    remote: str = Field(default="", description="Spark Connect address such as sc://host:15002.")
    driver_memory: str = Field(default="1g", description="Heap size of the driver's JVM; rows do not pass through it.")
    tasks: int = Field(
        default=0, description="Number of tasks that run at once; 0: the local cores, or what the executors offer."
    )
    class_archive: str = Field(
        default_factory=default_class_archive, description="AppCDS archive of that JVM; used if the file exists."
    )
    spark_config: dict[str, Any] = Field(default={}, description="More Spark properties; they override all others.")
    conf_file: str = Field(default="", description="A file like spark-defaults.conf; used if it exists.")
    _lazy: LazySession | None = PrivateAttr(default=None)

    def lazy(self) -> LazySession:
        """The session of this resource, started or not.

        Raises:
            ConfigurationError: the configuration is invalid.
        """
        if self._lazy is None:
            settings = spark_settings(self.master, self.remote, self.tasks, self.spark_config, self.conf_file)
            self._lazy = LazySession(settings, self.driver_memory, self.class_archive, shared=True)
        return self._lazy

    def _init_session(self) -> None:
        self._spark_session = self.lazy().session()

    def properties(self, *java: str) -> dict[str, str]:
        """Spark properties in force, with additional Java options; for Connect only those that a session may set."""
        return self.lazy().properties(*java)

    def parallelism(self) -> int:
        """Number of tasks that run at once; starts no session if the settings contain it."""
        return self.lazy().parallelism()

    def runner(self) -> SparkTaskRunner:
        """The task runner of this session; a JVM started by it begins late with its optimizing compiler."""
        return self.lazy().runner()

    def early_runner(self) -> EarlyRunner:
        """What a capture runs its tasks by: this session; a small job that comes before it, in this process."""
        return self.lazy().early_runner()
