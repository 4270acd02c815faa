"""Which topics are compacted, up to which LSN, and what of them may go (`compact`).

*Events of another key, or of a shortened one*, do not identify their rows (`mirror.exact_keys`). So nothing goes while one
of them counts. It counts no more once the whole table was read again and the mirror has taken that (`Limit.since`); when the reading is as
old as what may go, all of them go, unread.

*Where rows changed without an event* (`mirror.altered`), the table may have got another key, and has the newest one here: two rows of before
could be one by it. A mirror that has gone over the change knows since when events count. Without one they count since the reading that
followed: until that is as old as what may go, nothing goes, and then all events before it do.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.lake.events import EventRange, TopicDescription
from cdc_assets.lake.retained import Retained, retained
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.retention.files import TopicFile, latest, newest_in
from cdc_assets.retention.limits import Limit
from cdc_assets.retention.ports import Mirrors

log = logging.getLogger(__name__)

_NEVER = 2**62


@dataclass(frozen=True)
class CompactionPlan:
    """What is to be compacted.

    Args:
        files: that may hold events which go.
        newest: files with the newest event of their table, as directory and path.
        until: commit LSN up to which events may go.
        after: commit LSN up to which all of them go.
        whole: whether what stays makes the table's rows.
        unread: tables of the topic whose events do not identify their rows, and count no more.
    """

    topic: str
    about: TopicDescription
    former: Retained
    files: Sequence[TopicFile]
    newest: frozenset[tuple[str, str]]
    until: str
    after: str
    window: int
    whole: bool
    unread: frozenset[str] = frozenset()

    @property
    def may_go(self) -> EventRange:
        """Events that go unless they are chosen to stay."""
        return EventRange("", self.until, _NEVER, self.window)

    @property
    def telling(self) -> EventRange:
        """Events of which some stay."""
        return replace(self.may_go, after=self.after)


class CompactionPlanner:
    """Checks topics, and lists what is to be compacted.

    Args:
        tables: the lake's Delta tables.
        manifest: claimed.
        mirrors: know how events identify rows.
    """

    def __init__(self, tables: TopicTables, manifest: Manifest, mirrors: Mirrors) -> None:
        self._tables, self._manifest, self._mirrors = tables, manifest, mirrors

    def plan(
        self, table: TableId, topic: str, listed: Sequence[TopicFile], limit: Limit, oldest_ms: int
    ) -> CompactionPlan | None:
        """What is to be compacted of a topic now; None for nothing.

        Args:
            listed: the topic's files.
            oldest_ms: events of commits before it are old, in milliseconds since the epoch.

        Raises:
            LakeError: the lake cannot be read.
        """
        directories = self._tables.generations(topic)
        files = [file for file in listed if file.greatest]
        former = retained(self._tables, topic)
        until = self._until(files, former, limit, oldest_ms)
        if not until or until < max(former.after, former.compacted):
            return None
        chosen = [file for file in files if file.least <= until]
        new = sum(file.rows for file in chosen if file.until > former.compacted)
        if not former.is_begun and (until == former.compacted or new < sum(file.rows for file in chosen) - new):
            return None
        about = self._description(table, topic)
        if about is None:
            return None
        read = self._manifest.state.tables[table].snapshot_lsn
        unread = frozenset(directories[number] for number in about.coarse)
        last = max((file.until for file in files if file.directory in unread), default="")
        if last and (last > limit.since or read is None or str(read) > until):
            log.debug("%s is not compacted: %s", topic, next(iter(about.coarse.values())))
            return None
        altered = about.altered > max(limit.since, former.rows)
        if altered and (read is None or not about.altered <= str(read) <= until):
            log.debug(
                "%s is not compacted: the reading of its table since %s is young, or missing", topic, about.altered
            )
            return None
        known = not former.after or bool(former.rows)
        read_again = read is not None and former.after < str(read) <= until
        begin = str(read) if altered else limit.since
        after = max(_before(begin), "" if known or not read_again else former.after)
        window = _NEVER if limit.window is None else limit.window
        newest, whole = latest(self._tables.location, files), known or read_again
        return CompactionPlan(topic, about, former, chosen, newest, until, after, window, whole, unread)

    def _until(self, files: Sequence[TopicFile], former: Retained, limit: Limit, oldest_ms: int) -> str:
        """Commit LSN up to which events may go; empty for none."""
        until = ""
        for file in sorted(files, key=lambda file: (file.until, file.directory, file.path)):
            if not limit.allows(file.until):
                break
            if file.until > former.compacted:
                about = newest_in(self._tables.location, file)
                is_old = about.committed_ms < oldest_ms
                if not is_old or (limit.window is not None and about.window > limit.window):
                    break
            until = file.until
        return until

    def _description(self, table: TableId, topic: str) -> TopicDescription | None:
        """How events identify rows, with the columns that tell what may go; None if they do not."""
        about = self._mirrors.describe(table, topic)
        if isinstance(about, str):
            log.debug("%s is not compacted: %s", topic, about)
            return None
        shape = about.shape
        names = {part.name for part in shape.key} | set(shape.large)
        shape = replace(shape, columns=tuple(column for column in shape.columns if column.name in names))
        generations = [
            replace(one, columns=tuple(column for column in one.columns if column.name in names))
            for one in about.generations
        ]
        return TopicDescription(shape, tuple(generations), about.coarse, about.altered)


def _before(lsn: str) -> str:
    value = int(Lsn.parse(lsn)) if lsn else 0
    return str(Lsn.from_int(value - 1)) if value else ""
