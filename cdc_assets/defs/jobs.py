"""The jobs of a capture: each runs in one process, since another one would start a JVM of its own.

The executor is that of these jobs only. All other jobs of the code location have the one that it says, and so have runs that
are started from assets, which have no job.
"""

from typing import Any

import dagster as dg


def own_job(name: str, selection: dg.AssetSelection, description: str) -> Any:
    """A job over assets or checks of a capture."""
    return dg.define_asset_job(name, selection, description=description, executor_def=dg.in_process_executor)
