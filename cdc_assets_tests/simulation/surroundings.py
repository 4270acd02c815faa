"""What is around the processes and does not behave: secondaries that lag, clocks, a store without room.

- Connections may come to secondaries (`replicas`). What none of them shows is not due to anybody who looks.
- The store has no room for a while: no commit and no file is written by anybody.
- The clock of the captures' machine, or the server's, is wrong by seconds to hours; summer time begins or ends on the server, whose log
  has local times. Nothing of the law is by these clocks. Both jump so that no change seems younger by more than a minute, unless the log
  shows the jump: the capture job notes the time right after one.
"""

from datetime import timedelta
from typing import Final

from cdc_assets_tests.simulation.connectors import Connectors

JUMPS: Final = (0, 5, -5, 30, -30, 3600, -3600, 7 * 3600, -7 * 3600)
"""Seconds by which a clock is wrong."""


class Surroundings(Connectors):
    """Events of them."""

    def lag_behind(self) -> None:
        """Connections may come to secondaries; one of them stands still."""
        replicas = self.server.replicas
        if not replicas:
            replicas.begin(self.rng.choice([1, 2]), self.server)
            self.say("connections may come to secondaries")
        elif self.rng.random() < 0.5:
            replicas.stop()
            self.say("a secondary stands still")

    def follow_primary(self) -> None:
        """Secondaries have all that there is."""
        self.server.replicas.go_on()

    def fill_store(self) -> None:
        """The store has no room for a while."""
        self.store.full_until = self.scheduler.turn + self.rng.randrange(20, 300)
        self.say(f"the store is full until turn {self.store.full_until}")

    def end_surroundings(self) -> None:
        """All is in order; clocks stay as they are."""
        self.server.replicas.end()
        self.store.full_until = 0

    def set_clock(self) -> None:
        """The clock of the captures' machine jumps."""
        self.server.behind = timedelta(seconds=-self.rng.choice(JUMPS))
        self.say(f"the captures' clock is {self.server.behind} behind")

    def set_server_clock(self) -> None:
        """The clock of the server jumps."""
        self.server.ahead = timedelta(seconds=self.rng.choice(JUMPS))
        self.say(f"the server's clock is {self.server.ahead} ahead")
        self._note_time()

    def change_time_zone(self) -> None:
        """Summer time begins or ends on the server."""
        self.server.offset = timedelta(hours=1) - self.server.offset
        self.say(f"the server's time is {self.server.offset} ahead of UTC")
        self._note_time()

    def _note_time(self) -> None:
        self.server.scan_all()
        self.server.replicas.begin_again(self.server)
