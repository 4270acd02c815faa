"""SQL Server change data capture as Dagster assets on Spark and Delta.

What is named here is the library's public surface: it changes only as docs/stability.md promises. Each name is imported
at its first use, so `import cdc_assets` costs next to nothing and Spark's tasks never import Dagster.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from cdc_assets.core.collection import gc_paused
from cdc_assets.core.process_settings import set_up_process

if TYPE_CHECKING:
    from cdc_assets.adapters.spark.current_rows import current_rows
    from cdc_assets.adapters.spark.reading import create_views, read
    from cdc_assets.defs.alerts import Alert, alert_sensor
    from cdc_assets.defs.build import build_definitions
    from cdc_assets.defs.component import SqlServerCdcComponent
    from cdc_assets.defs.envelope_io import EnvelopeIOManager
    from cdc_assets.defs.schema_history_io import SchemaHistoryIOManager
    from cdc_assets.defs.spark import SparkResource
    from cdc_assets.defs.sqlserver import SqlServerCdcResource
    from cdc_assets.defs.translator import CdcTranslator
    from cdc_assets.lake.sink import Append

__version__ = "0.1.0"

__all__ = [
    "Alert",
    "Append",
    "CdcTranslator",
    "EnvelopeIOManager",
    "SchemaHistoryIOManager",
    "SparkResource",
    "SqlServerCdcComponent",
    "SqlServerCdcResource",
    "alert_sensor",
    "build_definitions",
    "create_views",
    "current_rows",
    "read",
]

_HOMES = {
    "Alert": "defs.alerts",
    "Append": "lake.sink",
    "CdcTranslator": "defs.translator",
    "EnvelopeIOManager": "defs.envelope_io",
    "SchemaHistoryIOManager": "defs.schema_history_io",
    "SparkResource": "defs.spark",
    "SqlServerCdcComponent": "defs.component",
    "SqlServerCdcResource": "defs.sqlserver",
    "alert_sensor": "defs.alerts",
    "build_definitions": "defs.build",
    "create_views": "adapters.spark.reading",
    "current_rows": "adapters.spark.current_rows",
    "read": "adapters.spark.reading",
}
"""The module of each public name, imported at its first use."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _HOMES[name].startswith("defs."):
        set_up_process()
    with gc_paused():
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
