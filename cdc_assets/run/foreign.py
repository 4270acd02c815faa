"""Has a run look for commits of other programs, and record what they did to the capture's topics."""

from dataclasses import replace
from datetime import timedelta

from cdc_assets.core.ports import Clock, TaskRunner
from cdc_assets.lake.topics import TopicTables
from cdc_assets.lake.watch import LOOK_S, ForeignWatch
from cdc_assets.ledger.manifest import Manifest

_KEPT = 5
"""Number of sentences that are kept of a table."""


class ForeignCommits:
    """Looks for commits of other programs; for the only writer, between two windows.

    Args:
        tables: the lake's Delta tables.
        manifest: claimed.
    """

    def __init__(self, tables: TopicTables, manifest: Manifest, clock: Clock, runner: TaskRunner) -> None:
        self._tables, self._manifest, self._clock = tables, manifest, clock
        self._watch = ForeignWatch(tables, runner, manifest.require_writer)
        self._looked: timedelta | None = None

    def look_when_due(self) -> None:
        """Look, unless that was done a short time ago.

        Raises:
            FencedError: another writer has taken over.
        """
        now = self._clock.elapsed()
        if self._looked is None or now - self._looked >= timedelta(seconds=LOOK_S):
            self._looked = now
            self.look()

    def look(self) -> None:
        """Read what the logs of all topics have behind the versions up to which they were read.

        Raises:
            FencedError: another writer has taken over.
        """
        marks = {**self._manifest.state.marks, **self._tables.fresh_marks()}
        for name, mark in self._manifest.state.marks.items():
            self._watch.checked.setdefault(name, mark.read_to)
        changed = self._watch.look(marks, {name: self._tables.own_versions(name) for name in marks})
        for name, version in self._watch.checked.items():
            self._tables.note_checked(name, version)
        found = {
            name: replace(
                marks[name],
                rows=self._tables.rows_of(name),
                checked=self._watch.checked[name],
                foreign=(*marks[name].foreign, *map(str, commits))[-_KEPT:],
            )
            for name, commits in changed.items()
        }
        if found:
            self._manifest.record_audit(self._clock.now(), (), found, self._manifest.state.next_window)
