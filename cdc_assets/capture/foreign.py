"""Has a run look for commits of other programs, and record what they did to the capture's topics.

What others appended or removed is from then on expected of a topic (`lake.expected`). Rows that a rewrite was to keep and has lost,
and those of a commit that the log no longer has, are still expected. So the comparison of the topic with its mark finds the loss, at
once and, after a crash, at the next start. Where the log has not all commits since the rows were counted, the comparison decides, too.
A topic that others have vacuumed is compared, too: their vacuum may have taken files that were about to be committed.

What was found is kept until it is recorded, and only then does a log count as read: if the store does not answer in between, the
next look records it, and after a crash the next run reads it again. A topic that Delta cannot read any more is compared at once, and
the others are recorded.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from cdc_assets.core.ports import Clock, TaskRunner
from cdc_assets.errors import LakeError
from cdc_assets.lake.expected import expected_rows
from cdc_assets.lake.foreign import ForeignCommit
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.topics import TopicTables
from cdc_assets.lake.watch import CHECK_EVERY_S, ForeignWatch
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.shared.losses import Losses

log = logging.getLogger(__name__)

_KEPT = 5
"""Number of sentences that are kept of a table."""


@dataclass(frozen=True, slots=True)
class _Marked:
    """The mark of a topic, and whether it has fewer rows than that says, or may have."""

    mark: Mark
    lacks: bool = False


class ForeignCommits:
    """Looks for commits of other programs; for the only writer, between two windows.

    Args:
        tables: the lake's Delta tables.
        manifest: claimed.
        losses: compares topics with their marks.
    """

    def __init__(
        self, tables: TopicTables, manifest: Manifest, losses: Losses, clock: Clock, runner: TaskRunner
    ) -> None:
        self._tables, self._manifest, self._losses, self._clock = tables, manifest, losses, clock
        self._watch = ForeignWatch(tables, runner, manifest.require_writer)
        self._checked_at: timedelta | None = None
        self._unrecorded: dict[str, list[ForeignCommit]] = {}
        """What was found and is not recorded yet, by directory; of a topic that was only vacuumed, nothing."""
        self._suspects: set[str] = set()
        """Topics that are to be compared with their marks, and were not yet."""

    def check_when_due(self) -> None:
        """Search, unless that was done a short time ago.

        Raises:
            FencedError: another writer has taken over.
            RetryableError: the store does not answer; what was found is recorded by the next call.
        """
        now = self._clock.elapsed()
        if self._checked_at is None or now - self._checked_at >= timedelta(seconds=CHECK_EVERY_S):
            self.check()
            self._checked_at = now

    def check(self) -> None:
        """Read what the logs of all topics have after the versions up to which they were read.

        Raises:
            FencedError: another writer has taken over.
            RetryableError: as for `check_when_due`.
        """
        marks = {**self._manifest.state.marks, **self._tables.fresh_marks()}
        for name, mark in self._manifest.state.marks.items():
            self._watch.checked.setdefault(name, mark.read_to)
        changed = self._watch.check(marks)
        for name in changed.keys() | self._watch.vacuumed:
            self._unrecorded.setdefault(name, []).extend(changed.get(name, ()))
        self._suspects |= self._watch.vacuumed
        self._record(marks)
        for name, version in self._watch.checked.items():
            if name not in self._unrecorded:
                self._tables.note_checked(name, version)
        if suspects := self._suspects & self._manifest.state.marks.keys():
            self._losses.compare(suspects)
        self._suspects.clear()

    def _record(self, marks: Mapping[str, Mark]) -> None:
        """Record what was found, except of topics that Delta cannot read any more: whether these lack something is for the comparison."""
        found = dict[str, _Marked]()
        self._unrecorded = {name: commits for name, commits in self._unrecorded.items() if name in marks}
        for name, commits in self._unrecorded.items():
            try:
                found[name] = self._marked(name, marks[name], commits)
            except LakeError as error:
                log.warning("What other programs did to %s cannot be recorded; it is tried again: %s", name, error)
                self._suspects.add(name)
        if found:
            now, next_window = self._clock.now(), self._manifest.state.next_window
            self._manifest.record_audit(now, (), {name: one.mark for name, one in found.items()}, next_window)
        for name, one in found.items():
            if self._unrecorded.pop(name):
                self._tables.forget_marks({name: marks[name]})
                self._tables.expect(name, one.mark)
        self._suspects |= {name for name, one in found.items() if one.lacks}

    def _marked(self, name: str, mark: Mark, commits: Sequence[ForeignCommit]) -> "_Marked":
        """A topic after commits of other programs; of one with none, only its log is read further."""
        checked = self._watch.checked.get(name, mark.checked)
        if not commits:
            return _Marked(replace(mark, checked=checked))
        # the answer of an earlier record may be lost
        news = [text for text in map(str, commits) if text not in mark.foreign]
        noted = replace(mark, checked=checked, foreign=(*mark.foreign, *news)[-_KEPT:])
        now = self._tables.recounted(name, mark)
        expected = expected_rows(self._tables, name, mark, now.counted)
        if not expected.is_sure:
            return _Marked(noted, lacks=True)
        rows = max(now.rows, expected.rows)
        return _Marked(replace(noted, rows=rows, counted=now.counted), lacks=rows > now.rows)
