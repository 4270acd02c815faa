"""The one Dagster code location of this deployment."""

import os
from pathlib import Path

import dagster as dg

from cdc_assets import SparkResource, build_definitions
from cdc_assets.config.load import configured_files

SAMPLE = Path(__file__).parent / "captures"
SPARK = Path(__file__).parent / "spark.conf"
PAGES = {"spark.ui.enabled": "true"} if "DAGSTER_IS_DEV_CLI" in os.environ else {}
"""Under `dagster dev` Spark serves its pages, and materializations link to them."""


@dg.definitions
def defs() -> dg.Definitions:
    """All captures whose configuration files `CDC_CONFIG` names, else the sample's; one Spark for all of them (`SPARK`).

    There is nothing else here, so runs from assets have one process, and one JVM, too."""
    spark = SparkResource(conf_file=str(SPARK), spark_config=PAGES)
    captures = build_definitions(*configured_files(SAMPLE), spark=spark)
    return dg.Definitions.merge(captures, dg.Definitions(executor=dg.in_process_executor))
