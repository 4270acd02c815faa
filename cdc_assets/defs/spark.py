"""Spark as a Dagster resource."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from dagster import InitResourceContext, ResourceDependency
from dagster_pyspark import LazyPySparkResource, PySparkResource
from dagster_spark.utils import flatten_dict
from pydantic import Field, PrivateAttr

from cdc_assets.adapters.spark.early import EarlyRunner
from cdc_assets.adapters.spark.properties import default_class_archive
from cdc_assets.adapters.spark.runner import SparkTaskRunner
from cdc_assets.adapters.spark.session import LazySession
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
    spark_config: dict[str, Any] = Field(
        default={}, description="More Spark properties, nested or with dots; they override all others."
    )
    conf_file: str = Field(default="", description="A file like spark-defaults.conf; used if it exists.")
    _lazy: LazySession | None = PrivateAttr(default=None)

    def lazy(self) -> LazySession:
        """The session of this resource, started or not.

        Raises:
            ConfigurationError: the configuration is invalid.
        """
        if self._lazy is None:
            given = flattened(self.spark_config)
            settings = spark_settings(self.master, self.remote, self.tasks, given, self.conf_file)
            self._lazy = LazySession(settings, self.driver_memory, self.class_archive, shared=True)
        return self._lazy

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """Name the application after the run, if there is one: `cdc-assets shop_snapshot 1a2b3c4d`."""
        if context.run is not None:
            self.lazy().name = f"cdc-assets {context.run.job_name} {context.run.run_id[:8]}"

    @property
    def spark_session(self) -> Any:
        """The session; it is started if it was not."""
        return self.lazy().session()

    @property
    def spark_context(self) -> Any:
        """The session's context."""
        return self.spark_session.sparkContext

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


AnySparkResource: TypeAlias = SparkResource | PySparkResource | LazyPySparkResource
"""What captures may get their session from."""


def flattened(config: Mapping[str, Any]) -> dict[str, Any]:
    """Properties by their whole names, as dagster-pyspark has them nested or not."""
    return dict(flatten_dict(dict(config)))  # type: ignore[no-untyped-call]


def spark_of(given: AnySparkResource) -> SparkResource:
    """A resource of dagster-pyspark as captures use one: its session is requested when there is work, and left as it is.

    Dagster makes a `PySparkResource` ready, and so starts its session, before a step or a sensor needs one; so captures do not
    get it from Dagster, but have it made ready themselves. Whether it is local is known beforehand only if its `spark_config` names a
    master; otherwise every job waits for it, as for a cluster.
    """
    if isinstance(given, SparkResource) or not isinstance(given, (PySparkResource, LazyPySparkResource)):
        return given  # also one that Dagster is still to complete, from which it makes this resource again
    lazies: list[LazySession] = []

    class Given(SparkResource):
        """That resource; Dagster makes copies of this one, which share the session."""

        def setup_for_execution(self, context: InitResourceContext) -> None:
            """The application's name is its owner's."""

        def lazy(self) -> LazySession:
            """The session of that resource, started or not."""
            if not lazies:
                config = flattened(given.spark_config)
                settings = spark_settings(config=config, environment={})
                if not {"spark.master", "spark.remote"} & config.keys():
                    settings = replace(settings, master="")
                lazies.append(LazySession(settings, shared=True, given=session))
            return lazies[0]

    def session() -> Any:
        return given.process_config_and_initialize().spark_session

    return Given()


if TYPE_CHECKING:

    class SparkDependency:
        """A resource's field `spark`: takes `AnySparkResource`, gives `SparkResource`."""

        def __get__(self, holder: Any, owner: Any) -> SparkResource: ...
        def __set__(self, holder: Any, value: AnySparkResource) -> None: ...

else:
    SparkDependency = ResourceDependency[SparkResource]


class OnAnySpark:
    """For resources with a field `spark`: it may be any resource that captures accept."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields | {"spark": spark_of(fields["spark"])} if "spark" in fields else fields)
