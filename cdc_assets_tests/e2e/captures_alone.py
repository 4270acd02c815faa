"""The code location of a project that has captures and says nothing of an executor: Dagster's own starts a process for each step."""

import os

import dagster as dg

from cdc_assets import build_definitions


@dg.definitions
def defs() -> dg.Definitions:
    """One capture."""
    return build_definitions(os.environ["CDC_CONFIG"])
