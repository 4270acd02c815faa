"""Has a run look for commits of other programs, and record what they did to the capture's topics.

What others appended or removed is from then on expected of a topic (`lake.expected`). Rows that a rewrite was to keep and has lost,
and those of a commit that the log no longer has, are still expected. So the comparison of the topic with its mark finds the loss, at
once and, after a crash, at the next start.
A topic that others have vacuumed is compared, too: their vacuum may have taken files that were about to be committed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from cdc_assets.capture.losses import Losses
from cdc_assets.core.ports import Clock, TaskRunner
from cdc_assets.lake.expected import expected_rows
from cdc_assets.lake.foreign import ForeignCommit
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.topics import TopicTables
from cdc_assets.lake.watch import CHECK_EVERY_S, ForeignWatch
from cdc_assets.ledger.manifest import Manifest

_KEPT = 5
"""Number of sentences that are kept of a table."""


@dataclass(frozen=True, slots=True)
class _Marked:
    """The mark of a topic, and whether it has fewer rows than that says."""

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

    def check_when_due(self) -> None:
        """Search, unless that was done a short time ago.

        Raises:
            FencedError: another writer has taken over.
        """
        now = self._clock.elapsed()
        if self._checked_at is None or now - self._checked_at >= timedelta(seconds=CHECK_EVERY_S):
            self._checked_at = now
            self.check()

    def check(self) -> None:
        """Read what the logs of all topics have after the versions up to which they were read.

        Raises:
            FencedError: another writer has taken over.
        """
        marks = {**self._manifest.state.marks, **self._tables.fresh_marks()}
        for name, mark in self._manifest.state.marks.items():
            self._watch.checked.setdefault(name, mark.read_to)
        changed = self._watch.check(marks)
        changed |= {name: [] for name in self._watch.vacuumed - changed.keys()}
        for name, version in self._watch.checked.items():
            self._tables.note_checked(name, version)
        found = {name: self._marked(name, marks[name], commits) for name, commits in changed.items()}
        if found:
            now = self._clock.now()
            self._manifest.record_audit(
                now, (), {name: one.mark for name, one in found.items()}, self._manifest.state.next_window
            )
        for name in (name for name, commits in changed.items() if commits):
            self._tables.forget_marks({name: marks[name]})
            self._tables.expect(name, found[name].mark)
        if suspects := [name for name, one in found.items() if one.lacks or name in self._watch.vacuumed]:
            self._losses.compare(suspects)

    def _marked(self, name: str, mark: Mark, commits: Sequence[ForeignCommit]) -> "_Marked":
        """A topic after commits of other programs; of one with none, only its log is read further."""
        checked = self._watch.checked[name]
        if not commits:
            return _Marked(replace(mark, checked=checked))
        now = self._tables.recounted(name, mark)
        expected = expected_rows(self._tables, name, mark, now.counted)
        rows = expected.rows if expected.is_sure else min(mark.rows, now.rows + _lost(commits))
        foreign = (*mark.foreign, *map(str, commits))[-_KEPT:]
        return _Marked(replace(now, rows=max(now.rows, rows), checked=checked, foreign=foreign), rows > now.rows)


def _lost(commits: Sequence[ForeignCommit]) -> int:
    return sum(commit.rows for commit in commits if commit.kind == "lost")
