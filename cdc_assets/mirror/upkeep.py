"""Removes files of mirrors that steps have replaced, and joins the small files of `history`.

A step replaces whole leaves, and each one adds a file to `history`. As for topics, replaced files stay for
`lake.retention.hours`, for readers that opened the table before; a loop looks for them after each tenth of that time.
Leaves are never joined here: their names tell their keys, so that is a matter of steps.

It runs after the commits of steps, in the process of the only writer. A step that failed leaves files that no commit
names; it writes them anew when it is repeated. *Crash between any two steps*: joining is a Delta commit that changes no
row and keeps the application transactions, and vacuum removes what no version within the retention names. What was not
done is done after a later step.
"""

from collections.abc import Iterable

from cdc_assets.config.settings import LakeSettings
from cdc_assets.lake.upkeep import Upkeep
from cdc_assets.mirror.delta import MirrorTables, current_directory, history_directory


def tidy(tables: MirrorTables, settings: LakeSettings, topics: Iterable[str]) -> None:
    """Join small files of `history`, and vacuum both tables of mirrors unless that was done a short time ago."""
    upkeep = Upkeep(tables.tables, settings)
    for topic in topics:
        upkeep.tidy([history_directory(topic)])
        for directory in (history_directory(topic), current_directory(topic)):
            upkeep.try_vacuum(directory)
