"""What a secondary does not show that stands still, though a run has planned to read it: the run dies, minutes pass, and somebody looks.

In some histories, in addition to their events; in the others nothing is different by it.
"""

from datetime import timedelta
from random import Random
from typing import Final

from cdc_assets_tests.simulation.moments import Moments

_OFTEN: Final = 0.05
"""Chance that it is so in a history."""
_LOOKS: Final = 4
"""So many people look, since each of them comes to any server."""
_LONGEST: Final = 400
"""Turns within which a run has planned a window."""


class Overlooked(Moments):
    """Somebody comes to a server that has less of the log than was planned."""

    def prepare_looks(self) -> None:
        """Choose behind which event of the history."""
        chance = Random(f"overlooked {self.seed}")  # noqa: S311 - a history that can be repeated
        self._chance, self._number = chance, -1
        if chance.random() < _OFTEN:
            self._number = chance.randrange(len(self.mix.events))

    def look_past_a_plan(self, number: int) -> None:
        """Behind that event all is caught up; then a run dies behind its plan."""
        if number != self._number:
            return
        known, self.rng = self.rng, self._chance
        try:
            self.calm()
            self.is_calm = True
            self.server.replicas.begin(1, self.server)
            self.server.replicas.stop()
            self.say("a secondary stands still")
            self.work()
            self.work()
            self.server.scan_all()
            if self._dies_behind_its_plan():
                self.server.now += timedelta(minutes=self.rng.choice([10, 60]))
                for _ in range(_LOOKS):
                    self.go_alone(self.begin("look"), _LONGEST)
        finally:
            self.rng, self.is_calm = known, False

    def _dies_behind_its_plan(self) -> bool:
        """Whether a run has planned a window before it ended, and was killed there."""
        run = self.begin("capture")
        for _ in range(_LONGEST):
            if run.has_ended:
                break
            if run.at == "window-planned":
                self.scheduler.crash(run)
                return True
            self.go_alone(run, 1)
        return False
