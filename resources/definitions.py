"""The one Dagster code location of this deployment."""

from pathlib import Path

import dagster as dg

from cdc_assets import SparkResource, build_definitions
from cdc_assets.config.load import configured_files

SAMPLE = Path(__file__).parent / "captures"
SPARK = Path(__file__).parent / "spark.conf"


@dg.definitions
def defs() -> dg.Definitions:
    """All captures whose configuration files `CDC_CONFIG` names, else the sample's; one Spark for all of them (`SPARK`)."""
    return build_definitions(*configured_files(SAMPLE), spark=SparkResource(conf_file=str(SPARK)))
