"""What happens at a named moment of a process: there, and not somewhere in the history, is where a fault needs it.

By chance alone two things seldom meet: a transaction that falls between the open marker and the close marker of a round, a crash between
two of its commits, a writer that sleeps until its successor has committed. So an event may wait for a moment: some pauses
behind a place at which a process pauses. What then happens has random numbers of its own, which came with the event.
"""

from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Final

from cdc_assets_tests.simulation.mix import Mix
from cdc_assets_tests.simulation.processes import KINDS
from cdc_assets_tests.simulation.scheduler import Actor
from cdc_assets_tests.simulation.shared import HOURS
from cdc_assets_tests.simulation.starting_over import StartingOver
from cdc_assets_tests.simulation.weather import EVENTS

AT: Final = {
    "marker-written": {"lag_there": 5, "work_beside": 3, "scan_some": 1, "crash_there": 1, "terminate_there": 1},
    "server.read of chunk end": {"change_all_there": 3},
    "read of chunk end": {"lag_there": 3, "work_beside": 3, "scan_some": 1},
    "chunk-read": {
        "work_beside": 3,
        "scan_there": 2,
        "clean_there": 3,
        "leave_there": 1,
        "fill_there": 1,
        "terminate_there": 1,
    },
    "signals-recorded": {"work_beside": 2, "scan_there": 2},
    "server.table_schemas": {"busy_there": 3},
    "snapshot-planned": {"busy_there": 3, "crash_there": 1, "terminate_there": 1, "hold_there": 1},
    "commit of READs": {
        "lose_there": 3,
        "refuse_reads_there": 3,
        "crash_there": 4,
        "sleep_there": 2,
        "fill_there": 1,
        "terminate_there": 1,
    },
    "reads-committed": {"crash_there": 2},
    "round-written": {"crash_there": 2, "work_beside": 1, "hold_there": 1},
    "commit of round": {
        "crash_there": 4,
        "lose_there": 3,
        "sleep_there": 1,
        "work_beside": 1,
        "fill_there": 1,
        "terminate_there": 1,
    },
    "round-planned": {"work_beside": 2, "crash_there": 1, "terminate_there": 1},
    "moment-fixed": {"work_beside": 3, "lag_there": 1},
    "read of rows": {"work_beside": 3, "lag_there": 2},
    "read of changes": {"leave_there": 3, "scan_some": 1, "work_beside": 1, "hold_there": 1},
    "table-committed": {"crash_there": 2, "sleep_there": 1, "hold_there": 1},
    "commit of window": {
        "sleep_there": 2,
        "leave_out_there": 4,
        "crash_there": 1,
        "lose_there": 3,
        "fill_there": 1,
        "terminate_there": 1,
        "hold_there": 1,
    },
    "commit of number left out": {"crash_there": 1},
    "files-joined": {"rewrite_there": 2, "sleep_there": 1, "fill_there": 1, "terminate_there": 1},
    "compaction-written": {"rewrite_there": 1, "sleep_there": 1},
    "replacement-checked": {"sleep_there": 5, "rewrite_there": 1},
    "commit of replacement": {
        "lose_there": 4,
        "sleep_there": 1,
        "crash_there": 1,
        "fill_there": 1,
        "terminate_there": 1,
    },
    "mirror-history-committed": {"rewrite_there": 3, "crash_there": 1, "sleep_there": 1},
    "mirror-planned": {"crash_there": 1, "sleep_there": 1, "rewrite_there": 2, "fill_there": 1, "terminate_there": 1},
    "retention-announced": {"crash_there": 1, "sleep_there": 1},
    "checkpoint-prepared": {"sleep_there": 1, "rewrite_there": 1},
    "snapshot-complete": {"mirror_there": 3, "work_beside": 1, "fill_there": 1},
    "window-complete": {"follow_there": 3, "crash_there": 1, "make_there": 3, "terminate_there": 1, "hold_there": 1},
    "publish-begun": {"overtake_there": 1, "refuse_there": 2},
    "publish-sent": {"overtake_there": 1, "lose_sent": 2, "refuse_there": 2, "time_out": 1, "terminate_there": 1},
}
"""Texts that places hold, and what may happen there, by its weight."""
STRETCHES: Final = {
    "rounds": (
        "capture",
        ["marker-written"] * 2 + ["server.read of chunk end", "read of chunk end", "chunk-read", "read of changes"],
    ),
    "READs": (
        "capture",
        ["commit of READs"] * 3 + ["chunk-read", "reads-committed", "signals-recorded"],
    ),
    "snapshot": (
        "snapshot",
        ["round-written", "commit of round", "commit of round", "read of rows", "snapshot-complete"],
    ),
    "blocking": (
        "capture",
        [
            "server.table_schemas",
            "snapshot-planned",
            "round-written",
            "commit of round",
            "read of rows",
            "snapshot-complete",
        ],
    ),
    "windows": (
        "capture",
        [
            "commit of window",
            "table-committed",
            "read of changes",
            "files-joined",
            "replacement-checked",
            "window-complete",
        ],
    ),
    "dropping": (
        "capture",
        ["compaction-written", "retention-announced", "replacement-checked", "commit of replacement"],
    ),
    "mirror": (
        "mirror",
        ["mirror-planned", "mirror-history-committed", "replacement-checked", "commit of replacement"],
    ),
    "publisher": ("publisher", ["publish-begun", "publish-sent"]),
}
"""Who works in a stretch of a history, and of which places two are waited for."""
MOST_WAITING: Final = 20
"""Events that wait; the oldest is given up for a newer one."""
_OFTEN: Final = 0.1
"""Chance that something happens at a place of the history's mix, though nothing waits for it."""
_LONGEST: Final = 200
"""Choices of who goes on in a stretch."""


@dataclass(frozen=True)
class Waiting:
    """An event that waits.

    Args:
        place: text in the name of a pause.
        left: so many pauses of whoever was there must follow.
    """

    place: str
    what: str
    left: int
    rng: Random


class Moments(StartingOver):
    """Events that wait for the state of a process."""

    def prepare_moments(self) -> None:
        """From now on pauses are looked at."""
        self.mix = Mix.of(self.rng, EVENTS, KINDS, list(AT), {name: places for name, (_, places) in STRETCHES.items()})
        self.waiting, self._near = list[Waiting](), list[tuple[Waiting, Actor, int]]()
        self.met = list[str]()
        self.is_fair = False
        self.scheduler.on_pause = self._look_around

    def await_moment(self) -> None:
        """Something is to happen at the next moment of a kind."""
        self._await(self.rng.choice(self.mix.places))

    def stretch(self) -> None:
        """For a while only processes of one kind go on, while transactions come, capture jobs work, and something happens at two moments."""
        about = self.rng.choice(self.mix.stretches)
        kind, places = STRETCHES[about]
        self.say(f"a stretch: {about}")
        if self.rng.random() < 0.7:  # else what is away stays away
            self.end_faults()
        for place in self.rng.sample(places, 2):
            self._await(place)
        if about in ("rounds", "READs"):
            self.ask_for_chunks()
        if about == "blocking":
            self.ask_for_blocking()
        if about == "snapshot":
            self.wanted_last = [self.rng.choice([*self.tables, *sorted(self.server.keyless) * 3])]
        if about == "dropping":
            self.server.now += timedelta(hours=2 * HOURS)
        self.work_on(self.wanted_last)
        self.server.scan_all()
        self.begin(kind)
        for _ in range(_LONGEST):
            awake = [actor for actor in self.scheduler.awake() if actor.kind == kind]
            if not awake:
                break
            self.go_alone(self.rng.choice(awake), self.rng.choice([2, 4, 8]))
            what = self.rng.random()
            if what < 0.15:
                self.work_on(self.wanted_last)
            elif what < 0.4:
                self.scan_some(awake[0])
        self.remember()

    def _await(self, place: str) -> None:
        self._keep(self._at(place))

    def _at(self, place: str) -> Waiting:
        what = self.rng.choices(list(AT[place]), list(AT[place].values()))[0]
        left = 0 if place.startswith("server.") else self.rng.choice([0, 0, 1, 1, 2, 4])
        return Waiting(place, what, left, self._random())

    def await_readers(self) -> None:
        """Often somebody reads what a fault has left as soon as the next window is complete."""
        if self.rng.random() < 0.5:
            self.await_at("window-complete", "follow_there")

    def await_at(self, place: str, what: str) -> None:
        self._keep(Waiting(place, what, 0, self._random()))

    def _keep(self, found: Waiting) -> None:
        self.waiting = [*self.waiting, found][-MOST_WAITING:]

    def _random(self) -> Random:
        return Random(self.rng.random())  # noqa: S311 - a history that can be repeated

    def _look_around(self, actor: Actor) -> None:
        """An actor pauses: what waits for that happens."""
        if actor.at == "snapshot-complete":
            self.note_begin()
        if actor.at == "round-planned":
            self.note_unsure()
        if self.is_calm:
            return
        found = [one for one in self.waiting if one.place in actor.at][:1]
        if found:
            self.waiting.remove(found[0])
        elif not self.is_fair and self.rng.random() < _OFTEN:
            found = [self._at(place) for place in self.mix.places if place in actor.at][:1]
        if found:
            self._near.append((found[0], actor, found[0].left))
        near, self._near = self._near, []
        for one, who, left in near:
            if who is not actor or left:
                self._near += [(one, who, left - (who is actor))] if not who.has_ended else []
            elif not actor.has_ended and not actor.has_crashed:
                self._happen(one, actor)

    def _happen(self, one: Waiting, actor: Actor) -> None:
        self.say(f"{actor.name} is at {actor.at}: {one.what}")
        self.met.append(f"{one.place}: {one.what}")
        known, self.rng = self.rng, one.rng
        try:
            getattr(self, one.what)(actor)
        finally:
            self.rng = known

    def end_moments(self) -> None:
        """Nothing waits any more, and nothing happens."""
        self.waiting, self._near, self.is_fair = [], [], True

    def lose_answer(self) -> None:
        super().lose_answer()
        self.await_readers()
