"""A capture seen from outside, for the command line, sensors and checks.

Nothing is claimed and no JVM starts. The questions and the modules that answer them:

| question | module |
|---|---|
| is a table healthy, what does it lack, how far does it lag? | `tables`, from the manifest, the lake (`capture.losses`) and the server |
| what does the server report about a database? | `server` |
| what would a run have to do? | `work` |
| does a table differ from the structure of its events? | `drift` |
| how many events per second? | `rates` |
| what is wrong, and what is not known because no run goes on? | `troubles`, `idle` |
| how late is a database, what does a table do, how far is Kafka? | `lag`, `conditions`, `published` |
| all of it on one page, for people and machines | `report`, made by `report_builder` |
"""

from cdc_assets.overview.capture import CaptureOverview
from cdc_assets.overview.published import published_of
from cdc_assets.overview.report import CaptureReport
from cdc_assets.overview.report_builder import inspect_server, report_of
from cdc_assets.overview.tables import DatabaseOverview, Headroom, TableOverview

__all__ = [
    "CaptureOverview",
    "CaptureReport",
    "DatabaseOverview",
    "Headroom",
    "TableOverview",
    "inspect_server",
    "published_of",
    "report_of",
]
