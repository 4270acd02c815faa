"""A capture as a Dagster component: `defs.yaml` instead of Python."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from dagster.components.component_scaffolding import scaffold_component
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel, Field

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema
from cdc_assets.core.state_folder import STATE_VARIABLE
from cdc_assets.defs.build import build_definitions, in_trouble
from cdc_assets.defs.configuration import CaptureSource
from cdc_assets.defs.envelope_io import EnvelopeIOManager
from cdc_assets.defs.io_managers import IOManagers
from cdc_assets.defs.keys import Role
from cdc_assets.defs.schema_history_io import SchemaHistoryIOManager
from cdc_assets.defs.spark import AnySparkResource, SparkResource, spark_of
from cdc_assets.defs.translator import CdcTranslator
from cdc_assets.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class CapturedAsset:
    """Variables that `translation` in `defs.yaml` can use.

    Args:
        prefix: the capture's topic prefix.
        table: the captured table; `database`, `schema` and `table` are its parts.
        role: `source`, `snapshot` or `changes`.
    """

    prefix: str
    table: TableId
    role: Role


def _template_variables(asset: CapturedAsset) -> Mapping[str, Any]:
    table = asset.table
    return {
        "prefix": asset.prefix,
        "database": table.database,
        "schema": table.schema,
        "table": table.table,
        "role": asset.role,
    }


class TranslatedByComponent(CdcTranslator):
    """A translator that applies `translation` of `defs.yaml` to each spec.

    Args:
        translate: returns the changed spec for a default one.
    """

    def __init__(self, translate: TranslationFn[CapturedAsset]) -> None:
        self._translate = translate

    def asset_key(self, prefix: str, table: TableId, role: Role) -> dg.AssetKey:
        """The asset's key after `translation`."""
        plain = dg.AssetSpec(super().asset_key(prefix, table, role))
        return self._translate(plain, CapturedAsset(prefix, table, role)).key

    def spec(
        self, prefix: str, schema: TableSchema, role: Role, uri: str, deps: Sequence[dg.AssetKey] = ()
    ) -> dg.AssetSpec:
        """The asset spec after `translation`, except its key, which `asset_key` has translated already."""
        made = super().spec(prefix, schema, role, uri, deps)
        plain = made.replace_attributes(key=super().asset_key(prefix, schema.table, role))
        return self._translate(plain, CapturedAsset(prefix, schema.table, role))


class SparkOptions(dg.Model, dg.Resolvable):
    """Which Spark runs the tasks of a capture; a local session if neither this nor the environment sets one."""

    master: str = Field(default="", description="Spark master; if empty, spark.master, or else local[*].")
    remote: str = Field(default="", description="Spark Connect address such as sc://host:15002.")
    driver_memory: str = Field(default="1g", description="Heap size of the local JVM; rows do not pass through it.")
    config: dict[str, str] = Field(default={}, description="More Spark properties; they override all others.")
    conf_file: str = Field(default="", description="A file like spark-defaults.conf, relative to this folder.")


class ScaffoldOptions(BaseModel):
    """Options of `dg scaffold defs`; all of them can be changed in `defs.yaml` afterwards."""

    prefix: str = Field(
        default="",
        description="Prefix of all topic names and asset keys; if empty, the name of the component's folder.",
    )
    hostname: str = Field(default="127.0.0.1", description="Address of the SQL Server.")
    databases: str = Field(default="SalesDb", description="Databases to capture, separated by commas.")
    lake: str = Field(
        default="var/lake",
        description="Folder, also relative to the project's, or object-store URL of the Delta tables.",
    )


class SqlServerCdcScaffolder(dg.Scaffolder[ScaffoldOptions]):
    """Writes a `defs.yaml` that works once the login's name and password are in the environment."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldOptions]:
        """The scaffolder's options."""
        return ScaffoldOptions

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldOptions]) -> None:
        """Write the file."""
        given, root = request.params or ScaffoldOptions(), (request.project_root or Path.cwd()).absolute()
        properties = {
            "topic.prefix": given.prefix or request.target_path.name,  # two captures cannot have one prefix
            "database.hostname": given.hostname,
            "database.user": "${env:CDC_USER}",
            "database.password": "${env:CDC_PASSWORD}",
            "database.names": given.databases,
            "lake.path": given.lake if "://" in given.lake else str(root / given.lake),
        }
        scaffold_component(request, {"properties": properties})


@dg.scaffold_with(SqlServerCdcScaffolder)
class SqlServerCdcComponent(dg.Component, dg.Model, dg.Resolvable):
    """Captures tables of a SQL Server into Delta tables of Debezium envelopes, exactly once.

    Give Debezium connector properties inline, or name a file with them. Write secrets as `${env:NAME}` or
    `${file:/path}`, since Dagster shows the configuration of resources on its pages.
    """

    properties: dict[str, Any] | None = Field(
        default=None, description="Debezium connector properties and those of cdc-assets: see `cdc-assets properties`."
    )
    config_file: str | None = Field(
        default=None, description="A file with them instead (JSON, properties, YAML), relative to this folder."
    )
    spark: SparkOptions = Field(default_factory=SparkOptions, description="Which Spark runs the tasks.")
    translation: (
        Annotated[
            TranslationFn[CapturedAsset],
            TranslationFnResolver[CapturedAsset](template_vars_for_translation_fn=_template_variables),
        ]
        | None
    ) = Field(
        default=None,
        description="Attributes of the assets; may use prefix, database, schema, table, role and spec in {{ }}.",
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Assets, jobs, checks, sensor, schedule and resources of the capture; its page in trouble if a property is invalid, so that
        other components load."""
        source: CaptureSource = (
            str(self._file(context, self.config_file)) if self.config_file else self.properties or {}
        )
        spark = self.spark_resource(self._file(context, self.spark.conf_file) if self.spark.conf_file else "")
        state_dir = os.environ.get(STATE_VARIABLE) or context.project_root / "var"
        try:
            return build_definitions(
                source,
                spark=spark,
                translator=self.translator(),
                state_dir=state_dir,
                envelope_io=self.envelope_io(),
                schema_history_io=self.schema_history_io(),
            )
        except ConfigurationError as error:
            io_managers = IOManagers(spark_of(spark), self.envelope_io(), self.schema_history_io())
            return in_trouble(source, error, io_managers, self.translator(), state_dir)

    def translator(self) -> CdcTranslator:
        """The translator of the assets; override it to use your own."""
        return TranslatedByComponent(self.translation) if self.translation else CdcTranslator()

    def envelope_io(self) -> Callable[..., EnvelopeIOManager]:
        """The class of the topics' IO manager; override it to use your own."""
        return EnvelopeIOManager

    def schema_history_io(self) -> Callable[..., SchemaHistoryIOManager]:
        """The class of the schema history's IO manager; override it to use your own."""
        return SchemaHistoryIOManager

    def spark_resource(self, conf_file: str | Path = "") -> AnySparkResource:
        """The Spark session; override it to share one among several components, or to give a resource of dagster-pyspark."""
        spark = self.spark
        return SparkResource(
            master=spark.master,
            remote=spark.remote,
            driver_memory=spark.driver_memory,
            spark_config=spark.config,
            conf_file=str(conf_file),
        )

    def _file(self, context: dg.ComponentLoadContext, name: str) -> Path:
        folder = context.path if context.path.is_dir() else context.path.parent
        return folder / name
