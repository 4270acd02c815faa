"""Tables of the lake that somebody restores to an older version, or whose folder he deletes, beside a step that reads or replaces them.

- Nobody calls healthy what lacks a change, or whose mirror lacks a row at its LSN, unless that is told as a gap.
- When all is caught up, each mirror is right, and each change that is gone is told.

In some histories, in addition to their events; in the others nothing is different by it.
"""

import shutil
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final

from cdc_assets.core.identifiers import TableId
from cdc_assets_tests.quick_tables import forget_versions
from cdc_assets_tests.simulation import law
from cdc_assets_tests.simulation.moving import Moving
from cdc_assets_tests.simulation.scheduler import Actor
from cdc_assets_tests.simulation.shared import HOURS

_OFTEN: Final = 0.06
"""Chance that it is so in a history."""
_TIMES: Final = (1, 1, 2)
_LONGEST: Final = 400
"""Turns within which a process comes to a place."""
_OF_MIRRORS: Final = (
    "mirror-planned",
    "mirror-history-committed",
    "replacement-checked",
    "behind a commit of shop.__mirrors",
)
_OF_CAPTURES: Final = (
    "compaction-written",
    "retention-announced",
    "files-joined",
    "replacement-checked",
    "behind a commit of window",
)


class Losing(Moving):
    """Newest commits are lost."""

    def prepare_losses(self) -> None:
        """Choose behind which events of the history."""
        self._fate = Random(f"losses {self.seed}")  # noqa: S311 - a history that can be repeated
        self._lost_behind = set[int]()
        if self._fate.random() < _OFTEN:
            count = self._fate.choice(_TIMES)
            self._lost_behind = {self._fate.randrange(len(self.mix.events)) for _ in range(count)}

    def lose_behind(self, number: int) -> None:
        """Behind such an event a process stands in the middle of a step, and something is lost."""
        if number not in self._lost_behind:
            return
        known, self.rng = self.rng, self._fate
        try:
            if self.rng.random() < 0.7:
                self.calm()
            self.is_calm = True
            self.end_faults()
            self._lose(self.rng.choice(self.tables))
        finally:
            self.rng, self.is_calm = known, False

    def _lose(self, table: TableId) -> None:
        what = self.rng.choice(["topic beside a mirror", "topic beside a capture", "mirror"])
        for _ in range(self.rng.randrange(1, 4)):
            self.work_on([table])
            self.server.scan_all()
            self.run_alone("capture", *self.rng.choice([(), ("mirror",)]))
        self.work_on([table])
        self.server.scan_all()
        if what == "topic beside a capture":
            self.server.now += timedelta(hours=self.rng.choice([0, 2 * HOURS]))
            kind, places = "capture", _OF_CAPTURES
        else:
            self.run_alone("capture")
            kind, places = "mirror", _OF_MIRRORS
        actor = self._brought(kind, self.rng.choice(places))
        if not actor.has_ended and (what == "mirror" or self.rng.random() < 0.5):
            self.scheduler.crash(actor)
        self.remember()
        if what == "mirror":
            self._lose_mirror(table)
        else:
            self._lose_events(table)
        for kind in self.rng.sample(["look", "mirror", "capture", "look", "publisher"], self.rng.randrange(2, 6)):
            if not self.scheduler.of(kind):
                self.run_alone(kind)

    def _brought(self, kind: str, place: str) -> Actor:
        """A process that stands at a place, or has ended without having been there."""
        actor = self.begin(kind)
        for _ in range(_LONGEST):
            if actor.has_ended or place in actor.at:
                break
            self.go_alone(actor, 1)
        return actor

    def _lose_mirror(self, table: TableId) -> None:
        """Tables of a mirror are deleted, or lack their newest commits."""
        names = self.rng.choice([["current"], ["history"], ["current", "history"]])
        is_deleted = self.rng.random() < 0.4
        for folder in [self.lake / f"{self.topic(table)}.__{name}" for name in names]:
            if is_deleted and folder.exists():
                self.say(f"{folder.name} is deleted")
                shutil.rmtree(folder)
                self._forget(folder)
            else:
                self._lose_newest(folder)

    def _lose_events(self, table: TableId) -> None:
        """A topic lacks its newest commits."""
        folders = [folder for folder, _ in self.files.stamp(self.lake, self.topic(table))]
        before = law.Topic(self.lake, self.topic(table), self.files).positions
        self._lose_newest(self.rng.choice(folders))
        gone = set(before).difference(law.Topic(self.lake, self.topic(table), self.files).positions)
        self.say(f"  {len(gone)} events of {table} are gone")
        self.ever.setdefault(table, set()).difference_update(gone)
        self._stamps.pop(table, None)
        self.hurt.add(table)
        self.doubted.add(table)

    def _lose_newest(self, folder: Path) -> None:
        """The newest commits of a table, but never the first one, are gone, perhaps with their files."""
        commits = sorted((folder / "_delta_log").glob("*.json"))[1:][-self.rng.choice([1, 1, 2, 3]) :]
        if not commits:
            return
        self.say(f"{folder.name} loses versions from {int(commits[0].stem)} on")
        for commit in commits:
            commit.unlink()
        self._forget(folder)

    def _forget(self, folder: Path) -> None:
        self.losses += 1
        forget_versions(folder)
        self.files.forget(folder)
