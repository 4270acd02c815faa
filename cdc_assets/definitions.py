"""Composition root: the one Dagster code location of this project."""

from pathlib import Path

import resources

if Path(resources.__file__ or "").resolve().parent.parent != Path(__file__).resolve().parent.parent:
    raise ImportError(
        f"The package `resources` was imported from {Path(resources.__file__ or '').parent}, not from beside {Path(__file__).parent}: "
        "another distribution has the same name. Run from the project's folder with `working_directory: .`, or uninstall it."
    )

import dagster as dg

from cdc_assets.defs.build import build_definitions
from cdc_assets.defs.captures import configured_captures
from cdc_assets.defs.spark import SparkResource
from cdc_assets.defs.translator import CdcTranslator


@dg.definitions
def defs() -> dg.Definitions:
    """All captures whose configuration files `CDC_CONFIG` names; one Spark for all of them."""
    return build_definitions(configured_captures(), SparkResource(), CdcTranslator())
