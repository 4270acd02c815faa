"""A capture that continues after another reader, which has delivered a part of the log, perhaps to the middle of a transaction.

- What the other reader has delivered is not captured, and everything behind it is.
- Its tables have no READs until somebody reads them, so no mirror begins before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Final

from cdc_assets.adoption.offsets import ConnectorOffset
from cdc_assets.assembly.adoption import Adoption
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.shared.instances import before
from cdc_assets_tests.simulation import law
from cdc_assets_tests.simulation.happenings import Happenings
from cdc_assets_tests.simulation.server import LaggingServer
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import Change

_OFTEN: Final = 0.15
"""Chance that a history begins so."""


@dataclass(frozen=True)
class Times:
    """Times of a server's commits."""

    server: LaggingServer

    def time_of(self, database: str, lsn: Lsn) -> datetime | None:
        found = [stamp for known, stamp in self.server.entries[database] if known <= lsn]
        return found[-1] if found else None

    def lsn_of_time(self, database: str, time: datetime) -> Lsn | None:
        found = [known for known, stamp in self.server.entries[database] if stamp <= time]
        return found[-1] if found else None


class Adopting(Happenings):
    """Perhaps another reader was there before."""

    def adopt(self) -> None:
        """A capture begins where another reader has stopped in each database; it may die before it has recorded that."""
        chance = Random(f"adoption {self.seed}")  # noqa: S311 - a history that can be repeated
        if chance.random() >= _OFTEN:
            return
        for _ in range(4):
            self.work()
        self.server.scan_all()
        stops = {
            change.table.database: change for change in chance.sample(self.server.history, len(self.server.history))
        }
        offsets = {name: self._taken_over(name, change) for name, change in stops.items() if change.operation != 3}
        if not offsets:
            return
        self.is_calm = True  # whoever begins so waits until it is done
        actor = self.scheduler.start("capture", lambda: self._adopt(offsets))
        if chance.random() < 0.5:
            self.go_alone(actor, chance.randrange(60))
            if not actor.has_ended:
                self.scheduler.crash(actor) if chance.random() < 0.5 else self.scheduler.sleep(actor, 300)
            actor = self.scheduler.start("capture", lambda: self._adopt(offsets))
        self.go_alone(actor, 2000)
        self._capture_behind()
        self.is_calm = False

    def _adopt(self, offsets: Mapping[str, ConnectorOffset]) -> None:
        if any(entry.streams for entry in state_of(self.config).tables.values()):
            return  # the one that died had recorded it
        adoption = Adoption(self.open_capture())
        adoption.record(adoption.plan(offsets, Times(self.server)))

    def _taken_over(self, name: str, last: Change) -> ConnectorOffset:
        """Where the other reader stopped, behind a change."""
        self.say(f"another reader has delivered {name} up to {law.place_of(last)}")
        for table in [*self.tables, *self.signal_tables]:
            if table.database == name:
                own = [change for change in self.server.history if change.table == table]
                done = [
                    law.place_of(change) for change in own if (change.lsn, change.seqval) <= (last.lsn, last.seqval)
                ]
                self.delivered[table] = {*done, *(f"{place}t" for place in done)}
                self.read_from[table] = before(last.lsn)
        return ConnectorOffset(last.lsn, last.seqval, 2 if last.operation == 4 else 1)

    def _capture_behind(self) -> None:
        self.run_alone("capture")
        for table, delivered in self.delivered.items():
            twice = sorted(self.ever.get(table, set()) & delivered)
            assert not twice, f"{table}: the other reader has delivered {twice[:5]}"

    def adopted_unread(self) -> list[TableId]:
        """Tables that were taken over, and of which nobody has read the rows."""
        states = state_of(self.config).tables
        return [table for table in self.delivered if table in states and states[table].snapshot_lsn is None]
