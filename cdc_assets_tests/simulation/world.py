"""A server, a lake, a broker, and everybody who works with them; what happens is chosen by a seed.

A history is a number of turns. In each one either an actor goes on to its next pause, or something happens: a transaction, a scan of
the capture job, a clean-up, a change of structure, a foreign OPTIMIZE, hours that pass, a process that starts, crashes or falls
asleep, an answer that is lost, a record that is refused. At the end faults stop, everybody wakes and ends, all kinds of processes run
once more, and the law is checked (`law`).
"""

from collections.abc import Collection, Sequence
from typing import Final

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.steps import listening
from cdc_assets.incremental import rounds
from cdc_assets.mirror import leaves
from cdc_assets_tests.simulation.replaying import Replaying
from cdc_assets_tests.unit.streaming.law import state_of

MAX_CHUNKS: Final = 2
"""Chunks of a round while faults come: there are several rounds of each table."""


LEAF_BYTES: Final = 2000
"""Size of a mirror's leaf in some histories: of a few rows, so that strangers have files to join."""


class World(Replaying):
    """One history."""

    def play(self, without: Collection[int] = ()) -> None:
        """A history, and its end in fair weather.

        Args:
            without: numbers of events that do not happen.
        """
        rounds.MAX_CHUNKS = MAX_CHUNKS
        leaves.LEAF_BYTES = self.rng.choice([LEAF_BYTES, leaves.LEAF_BYTES])
        with listening(self.store.reach), self.store.disturbed(), pytest.MonkeyPatch.context() as patch:
            self.prepare_moves()
            self.prepare_connectors()
            self.prepare_consumers(patch)
            self.prepare_moments()
            self.prepare_looks()
            self.prepare_losses()
            self.prepare_replays()
            self.store.on_replacement = self.remember_before
            self.prepare_restores()
            self.adopt()
            for kind in ("capture", "mirror", "publisher"):
                self.begin(kind)
                self.end()
            if not (
                self.lake / "shop.__publisher" / "published.json"
            ).exists():  # retention waits for one that it knows of
                self.end_faults()
                self.run_alone("publisher")
            self.has_begun = True
            for number, what in enumerate(self.mix.events):
                self.rng.seed(f"{self.seed} {number}")  # whatever else is left out
                if number not in without:
                    getattr(self, what)()
                self.look_past_a_plan(number)
                self.lose_behind(number)
                self.replay_behind(number)
            self.end_in_fair_weather()

    def end_in_fair_weather(self) -> None:
        """Faults stop, all is caught up, and the law holds."""
        self.say("fair weather")
        self.server.is_prompt = True
        self.end_moments()
        self.end_faults()
        rounds.MAX_CHUNKS = 8 * MAX_CHUNKS  # what is still asked for is read in few rounds
        self.end()
        self.end_restores()
        self.server.is_prompt = True
        for _ in range(3):
            self.server.scan_all()
            self.resume()
            self._run("capture")
            stopped = [name for name, entry in state_of(self.config).tables.items() if not entry.streams]
            unread = self.never_read()
            self._read_again([*stopped, *unread])
            self.begin_there(unread)
        if self.config.streaming.gap_policy == "ignore":  # a snapshot repairs what was passed over
            self._read_again([name for name, entry in state_of(self.config).tables.items() if entry.gaps])
        self._read_again([table for table in self.adopted_unread() if table not in self.signal_tables])
        self.ask_at_last()
        self._run("capture", "mirror")
        if tables := [table for table in self.tables if self.topic(table) in self.to_read_again]:
            self._read_again(tables)  # as somebody is told: its mirror cannot follow without that
            self._run(*["mirror"] * (1 + len(self.server.instances)))  # each goes on to the next change of structure
        if self.touched:
            self._run("capture", "repair")
        self._run("capture")
        self._run("mirror", "publisher", "engine", "reader", "consumer")
        self.check()
        if self.replayed:
            self._run("replay")
            self.check_replays()
        self.check_repaired()
        self.check_connectors()
        self.check_consumed()
        self.check_signals()

    def _run(self, *kinds: str) -> None:
        for kind in kinds:
            self.begin(kind)
            self.end()

    def _read_again(self, tables: Sequence[TableId]) -> None:
        if tables:
            self.say(f"reads {', '.join(map(str, tables))} again")
            self.scheduler.start("snapshot", lambda: self.open_capture().snapshot(tables))
            self.end()
            self._run("capture")
