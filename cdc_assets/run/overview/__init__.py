"""A capture seen from outside: one answer to each question, for the command line, sensors, checks and whoever else asks.

Nothing is claimed and no JVM is started. The questions and who answers them:

| question | module |
|---|---|
| is a table healthy, what does it lack, how far behind is it? | `tables`, of the manifest, the lake (`capture.losses`) and the server |
| what does the server say of a database? | `server` |
| what would a run have to do? | `work` |
| has a table moved away from the structure of its events? | `drift` |
"""

from cdc_assets.run.overview.capture import CaptureOverview
from cdc_assets.run.overview.tables import DatabaseOverview, Headroom, TableOverview

__all__ = ["CaptureOverview", "DatabaseOverview", "Headroom", "TableOverview"]
