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
from cdc_assets_tests.simulation.processes import KINDS, MOST
from cdc_assets_tests.simulation.restores import Restores
from cdc_assets_tests.simulation.scheduler import Actor
from cdc_assets_tests.simulation.shared import HOURS
from cdc_assets_tests.simulation.weather import EVENTS

AT: Final = {
    "marker-written": {"lag_there": 5, "work_beside": 3, "scan_some": 1, "crash_there": 1},
    "read of chunk end": {"lag_there": 3, "work_beside": 3, "scan_some": 1},
    "chunk-read": {"work_beside": 3, "scan_there": 2, "leave_there": 1, "fill_there": 1},
    "signals-recorded": {"work_beside": 2, "scan_there": 2},
    "commit of READs": {"lose_there": 3, "crash_there": 4, "sleep_there": 2, "fill_there": 1},
    "reads-committed": {"crash_there": 2},
    "round-written": {"crash_there": 2, "work_beside": 1},
    "commit of round": {"crash_there": 4, "lose_there": 3, "sleep_there": 1, "work_beside": 1, "fill_there": 1},
    "round-planned": {"work_beside": 2, "crash_there": 1},
    "moment-fixed": {"work_beside": 3, "lag_there": 1},
    "read of rows": {"work_beside": 3, "lag_there": 2},
    "read of changes": {"leave_there": 3, "scan_some": 1, "work_beside": 1},
    "table-committed": {"crash_there": 2, "sleep_there": 1},
    "commit of window": {"sleep_there": 2, "leave_out_there": 4, "crash_there": 1, "lose_there": 3, "fill_there": 1},
    "commit of number left out": {"crash_there": 1},
    "files-joined": {"rewrite_there": 2, "sleep_there": 1, "fill_there": 1},
    "compaction-written": {"rewrite_there": 1, "sleep_there": 1},
    "replacement-checked": {"sleep_there": 5, "rewrite_there": 1},
    "commit of replacement": {"lose_there": 4, "sleep_there": 1, "crash_there": 1, "fill_there": 1},
    "mirror-history-committed": {"rewrite_there": 3, "crash_there": 1, "sleep_there": 1},
    "mirror-planned": {"crash_there": 1, "sleep_there": 1, "rewrite_there": 2, "fill_there": 1},
    "retention-announced": {"crash_there": 1, "sleep_there": 1},
    "checkpoint-prepared": {"sleep_there": 1, "rewrite_there": 1},
    "snapshot-complete": {"mirror_there": 3, "work_beside": 1, "fill_there": 1},
    "window-complete": {"follow_there": 3, "crash_there": 1},
    "publish-begun": {"overtake_there": 1, "refuse_there": 2},
    "publish-sent": {"overtake_there": 1, "lose_sent": 2, "refuse_there": 2, "time_out": 1},
}
"""Texts that places hold, and what may happen there, by its weight."""
STRETCHES: Final = {
    "rounds": (
        "capture",
        ["marker-written"] * 2
        + ["read of chunk end", "chunk-read", "commit of READs", "commit of READs", "read of changes"],
    ),
    "snapshot": (
        "snapshot",
        ["round-written", "commit of round", "commit of round", "read of rows", "snapshot-complete"],
    ),
    "windows": (
        "capture",
        ["commit of window", "table-committed", "read of changes", "files-joined", "replacement-checked"],
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


class Moments(Restores):
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
        if about == "rounds":
            self.ask_for_rows()
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
        return Waiting(place, what, self.rng.choice([0, 0, 1, 1, 2, 4]), self._random())

    def _await_readers(self) -> None:
        """Often somebody reads what a fault has left as soon as the next window is complete."""
        if self.rng.random() < 0.5:
            self._keep(Waiting("window-complete", "follow_there", 0, self._random()))

    def _keep(self, found: Waiting) -> None:
        self.waiting = [*self.waiting, found][-MOST_WAITING:]

    def _random(self) -> Random:
        return Random(self.rng.random())  # noqa: S311 - a history that can be repeated

    def _look_around(self, actor: Actor) -> None:
        """An actor pauses: what waits for that happens."""
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

    def work_beside(self, _: Actor) -> None:
        """Transactions of tables that somebody reads, rather than of others."""
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            self.work_on(self.wanted_last if self.rng.random() < 0.8 else self.tables)

    def lag_there(self, actor: Actor) -> None:
        """Capture jobs read all, and not what comes right after."""
        self.server.scan_all()
        self.work_beside(actor)

    def lose_answer(self) -> None:
        super().lose_answer()
        self._await_readers()

    def scan_there(self, _: Actor) -> None:
        """Capture jobs read all."""
        self.server.scan_all()

    def scan_some(self, _: Actor) -> None:
        """Capture jobs read some transactions, or all but some."""
        for name in self.config.connection.databases:
            self.server.scan(name, self.rng.choice([1, 2, -1, -2]))

    def crash_there(self, actor: Actor) -> None:
        """It dies; while it is dead something is done, and somebody else goes on."""
        self.scheduler.crash(actor)
        self.remember()
        self._await_readers()
        self.work_on(self.wanted_last)
        self.server.scan_all()
        if not self.scheduler.of(actor.kind):
            self.begin(actor.kind)

    def sleep_there(self, actor: Actor) -> None:
        """It stands still until another one is behind a commit of the same kind, or for long."""
        table = actor.at.rpartition(" ")[2] if "commit of" in actor.at else ""
        behind = self.rng.choice(
            ["", "behind a commit of", f"behind a commit of {self.rng.choice(['', 'number left out in '])}{table}"]
        )
        self.scheduler.sleep(actor, self.rng.randrange(100, 400), behind)
        if len(self.scheduler.of(actor.kind)) <= MOST[actor.kind]:
            self.begin(actor.kind)

    def leave_out_there(self, actor: Actor) -> None:
        """It stands still with files of a table that its successor has to leave out, and wakes when it has."""
        name = actor.at.rpartition(" ")[2].partition("@")[0]
        for table in self.tables:
            if self.topic(table) == name:
                self.scheduler.sleep(actor, 400)
                (self.refuse_reads_of if self.rng.random() < 0.5 else self.leave_database_of)(table)
                self.go_alone(self.begin("capture"), 200)
                self.scheduler.wake(actor)
                self.go_alone(actor, 3)

    def lose_there(self, actor: Actor) -> None:
        """The answer to this commit is lost, or it is refused; meanwhile something is done."""
        self.store.next_fault = self.rng.choice(["lost", "repeated", "repeated", "refused"])
        self.store.meant = actor.at.partition("commit of ")[2]
        self._await_readers()
        self.work_on(self.wanted_last)
        self.server.scan_all()

    def rewrite_there(self, _: Actor) -> None:
        """A stranger rewrites all topics and mirrors."""
        for table in self.tables:
            for folder in sorted(self.lake.glob(f"{self.topic(table)}*/_delta_log")):
                self.rewrite(folder.parent)

    def leave_there(self, _: Actor) -> None:
        """A database goes away."""
        self.leave_database()

    def fill_there(self, _: Actor) -> None:
        """From here on the store has no room for a while."""
        self.fill_store()

    def refuse_there(self, _: Actor) -> None:
        """The broker refuses what was sent just now to one topic, or what is sent next to another one."""
        if sent := sorted(self.cluster.sent_to):
            self.cluster.refused[self.rng.choice(sent)] = "commit"
        if self.rng.random() < 0.5:
            self.cluster.refused[self.topic(self.rng.choice(self.tables))] = "send"

    def time_out(self, _: Actor) -> None:
        """A transaction took too long: the broker fences its producer."""
        self.cluster.epoch += 1

    def lose_sent(self, _: Actor) -> None:
        """The answer to its commit is lost."""
        self.lose_published()

    def overtake_there(self, actor: Actor) -> None:
        """Another one of its kind starts, and comes some way while this one stands still."""
        self.go_alone(self.begin(actor.kind), self.rng.randrange(30))

    def follow_there(self, _: Actor) -> None:
        """Readers come to where the lake is."""
        self.follow()

    def mirror_there(self, _: Actor) -> None:
        """Mirrors follow while all others stand still."""
        if not self.scheduler.of("mirror"):
            self.scan_some(_)
            self.go_alone(self.begin("mirror"), 200)
