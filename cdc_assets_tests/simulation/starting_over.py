"""A capture that is started again: all of its tables are moved away, and it begins as the first one did.

- What was moved away is of no concern any more: the law is that of a new lake, whose tables begin where they are read.
- What was published stays in Kafka until somebody removes it there; before that nobody publishes anything of the new lake.
"""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from cdc_assets.assembly.mirrors import MirrorTables
from cdc_assets.capture.new_lake import NewLake
from cdc_assets.capture.reset import Reset
from cdc_assets_tests.simulation import law
from cdc_assets_tests.simulation.adopting import Adopting
from cdc_assets_tests.simulation.asked import TurnClock

_WRITERS: Final = ("capture", "snapshot", "forget", "mirror", "rebuild", "reconcile")


class StartingOver(Adopting):
    """Starts captures again."""

    is_half_moved = False
    """Whether a reset has died before it was done."""
    former = ""
    """Of which lake Kafka has what was published, if it is a former one."""

    def start_over(self) -> None:
        """Runs are ended, and a capture is reset; that may die on its way, and be repeated when others have tried to go on."""
        self._end_all(_WRITERS)
        self.remember()
        if self.rng.random() < 0.4:
            actor = self.scheduler.start("forget", self._move_away)
            self.go_alone(actor, self.rng.randrange(30))
            if not actor.has_ended:
                self.scheduler.crash(actor)
            for kind in ("capture", "mirror", "publisher", "look"):
                self.go_alone(self.begin(kind), 100)
            self._end_all(_WRITERS)
        self._finish()

    def _end_all(self, kinds: tuple[str, ...]) -> None:
        for actor in [actor for actor in self.scheduler.actors if actor.kind in kinds]:
            self.scheduler.crash(actor)

    def _finish(self) -> None:
        """All is moved away, if nothing fails, and the law begins anew."""
        self.say("starts again")
        self.is_half_moved = True
        self.go_alone(self.scheduler.start("forget", self._move_away), 500)
        if self.is_half_moved:
            return
        self.lakes += 1
        self.files = law.Files()
        known: Sequence[dict[Any, Any]] = (
            *(self.ever, self.windows, self.reads, self.published, self.lost, self.left, self.read_from, self.begun),
            *(self._stamps, self.delivered, self.asked),
        )
        for one in known:
            one.clear()
        self.unsure.clear()
        self.to_read_again = set()
        self.former = self.former or self._published()
        if not self.former:
            self._end_all(("publisher",))  # it would begin to publish what is gone

    def _published(self) -> str:
        """Of which lake the marker is; empty if there is none."""
        return json.loads(self.cluster.marker)["lake"] if self.cluster.marker else ""

    def _move_away(self) -> None:
        self.server.now += timedelta(seconds=1)  # each reset has a folder of its own, named after the second
        reset = Reset(self.config, TurnClock(self.server, self.scheduler), [MirrorTables.of(self.config).tables])
        reset.check()
        if (removal := reset.removal()).directories:
            reset.move_away(removal)
        else:
            NewLake.of(self.config).begin()
        self.is_half_moved = False

    def end_faults(self) -> None:
        """What was begun is finished, and what was published from a former lake is removed."""
        super().end_faults()
        if self.is_half_moved:
            self._end_all(_WRITERS)
            self._finish()
        if self.former:
            assert self._published() == self.former, "topics of a former lake have events of this one"
            self._end_all(("publisher",))
            self.cluster.topics.clear()
            self.cluster.marker, self.former = None, ""
