"""What a loop leaves behind, put in order: small files joined, files that nobody needs removed.

Each window adds files: one per topic table and slice, two to the manifest. So it is done when a loop ends and, for one that
never does, every `lake.compact.after.files` windows, always between two windows.
"""

from collections.abc import Iterable
from dataclasses import replace

from cdc_assets.capture.context import Context
from cdc_assets.capture.progress import OnProgress, Progress
from cdc_assets.capture.system_topics import GROWING, system_topics
from cdc_assets.core.identifiers import TableId
from cdc_assets.envelope.naming import topic_name
from cdc_assets.lake.upkeep import Upkeep

_REPLACED_HOURS = 1
"""How long files are kept that the manifest has replaced by a fold: whoever reads it lists its files and reads them at once."""


class Housekeeper:
    """Hears of each window, passes it on, and tidies from time to time.

    Args:
        on_progress: who is told of windows.
    """

    def __init__(self, context: Context, on_progress: OnProgress) -> None:
        self._context, self._tell = context, on_progress
        self._often = context.config.lake.compact_after_files
        self._windows = 0
        self._tables: set[TableId] = set()

    def on_progress(self, progress: Progress) -> None:
        """A window or round is committed."""
        self._tell(progress)
        self._windows += 1
        self._tables.update(progress.tables)
        if self._often and self._windows >= self._often:
            self.tidy()

    def tidy(self) -> None:
        """Look after the tables that changed since the last time; if files wait for their commit, the next time."""
        if tidy(self._context, self._tables):
            self._windows = 0
            self._tables = set()


def tidy(context: Context, tables: Iterable[TableId]) -> bool:
    """Compact and vacuum the topics that a loop has written to, and vacuum the manifest if it was folded.

    Args:
        context: of the only writer, between two windows.
        tables: that have new events.

    Returns:
        False if nothing was done, because files wait for their commit.
    """
    if context.manifest.state.files_wait:
        return False
    topics = [topic_name(table, context.config.events) for table in tables]
    topics += [topic for name, topic in system_topics(context.config).items() if name in GROWING]
    upkeep = Upkeep(context.tables, context.config.lake)
    upkeep.tidy(directory for topic in topics for directory in context.tables.generations(topic))
    if context.manifest.folded:
        short = replace(context.config.lake, retention_hours=min(context.config.lake.retention_hours, _REPLACED_HOURS))
        Upkeep(context.tables, short).try_vacuum(context.manifest.directory)
    return True
