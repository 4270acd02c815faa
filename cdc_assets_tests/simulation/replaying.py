"""Ranges that are published again into topics of another prefix, while retention drops events.

- What a replay's marker tells as published is there, each event once, in order, and nothing besides the range.
- A replay that ends without a stopped topic has its whole range.

In some histories, in addition to their events; in the others nothing is different by it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from random import Random
from typing import Final

from cdc_assets.core.identifiers import TableId
from cdc_assets.lake.topics import TopicTables
from cdc_assets.publish.feed import Feed, Topic
from cdc_assets.publish.follow import publish
from cdc_assets.publish.offset import END_OF_WINDOW, parse_published
from cdc_assets.publish.publisher import Publisher
from cdc_assets.publish.render import Renderer
from cdc_assets.publish.span import Replay, replay_of
from cdc_assets.publish.start import Beginning
from cdc_assets_tests.simulation.broker import Cluster
from cdc_assets_tests.simulation.losing import Losing
from cdc_assets_tests.simulation.shared import HOURS
from cdc_assets_tests.unit.streaming.law import state_of

_OFTEN: Final = 0.06
"""Chance that it is so in a history."""
_TIMES: Final = (1, 2, 3)
_READ: Final = "manifest-read"
_LONGEST: Final = 1000
"""Turns of a replay and of those beside it."""


class PausingFeed(Feed):
    """Others take their turns when it has read the manifest."""

    pause: Callable[[], None]

    def read(self) -> tuple[int, Sequence[Topic]]:
        found = super().read()
        self.pause()
        return found


@dataclass
class Replayed:
    """A replay, and what it has written.

    Args:
        lakes: number of lakes that there had been.
    """

    replay: Replay
    cluster: Cluster
    lakes: int


class Replaying(Losing):
    """Publishes ranges again."""

    def prepare_replays(self) -> None:
        """Choose behind which events of the history."""
        self._again = Random(f"replays {self.seed}")  # noqa: S311 - a history that can be repeated
        self.replayed, self._replays_behind = list[Replayed](), set[int]()
        if self._again.random() < _OFTEN:
            count = self._again.choice(_TIMES)
            self._replays_behind = {self._again.randrange(len(self.mix.events)) for _ in range(count)}

    def replay_behind(self, number: int) -> None:
        """Behind such an event a range is replayed, often while old events are dropped."""
        if number not in self._replays_behind:
            return
        known, self.rng = self.rng, self._again
        try:
            if self.rng.random() < 0.8:
                self.calm()
            self.is_calm = True
            self.end_faults()
            self._replay_beside()
        finally:
            self.rng, self.is_calm = known, False

    def _replay_beside(self) -> None:
        if not self._begin_replay():
            return
        for _ in range(self.rng.randrange(3)):
            self.work()
        self.server.scan_all()
        self.run_alone("capture", *self.rng.choice([(), ("mirror", "publisher")]))
        self.server.now += timedelta(hours=self.rng.choice([0, 2 * HOURS, 2 * HOURS]))
        self.work()
        self.server.scan_all()
        actors = [self.begin("replay"), self.begin("capture")]
        if self.rng.random() < 0.5:  # it has read what topics hold, and has not opened them
            for _ in range(self.rng.choice([1, 2, 2])):
                self.go_alone(actors[0], 1)
                while not actors[0].has_ended and actors[0].at != _READ:
                    self.go_alone(actors[0], 1)
            self.go_alone(actors[1], _LONGEST)
        for _ in range(_LONGEST):
            awake = [actor for actor in actors if not actor.has_ended]
            if not awake:
                break
            what = self.rng.random()
            self.go_alone(actor := self.rng.choice(awake), self.rng.choice([1, 2, 4, 8, 16]))
            if what < 0.01 and actor.kind == "replay" and not actor.has_ended:
                self.scheduler.crash(actor)
                actors.append(self.begin("replay"))
            elif what < 0.03:
                self.replayed[-1].cluster.lost_answers = 1
        self.remember()

    def _begin_replay(self) -> bool:
        """Choose a range, if there is any, and a prefix of its own."""
        state = state_of(self.config)
        newest, places = state.complete_window, [entry.position for entry in state.tables.values() if entry.position]
        if newest < 0:
            return False
        some = self.rng.randrange(newest + 1)
        texts = ["0..", f"0..{newest}", f"{some}..", f"{some}..{newest}", f"0..{newest + 2}"]
        if len(self.config.connection.databases) == 1 and places:
            lsn = self.rng.choice(places)
            texts += [f"{lsn}..", f"..{lsn}"]
        text, prefix = self.rng.choice(texts), f"again{len(self.replayed)}"
        self.say(f"{text} is replayed as {prefix}")
        found = replay_of(text, prefix, self.config.events.topic_prefix)
        self.replayed.append(Replayed(found, Cluster(self.scheduler), self.lakes))
        return True

    def replay(self) -> None:
        """The newest replay begins, or continues."""
        if not self.replayed:
            return
        known = self.replayed[-1]
        feed, producer = PausingFeed(self.config, TopicTables.of(self.config)), known.cluster.producer()
        feed.pause = partial(self.scheduler.pause, _READ)
        renderer = Renderer(self.config.kafka, partial(known.replay.topic, self.config.events.topic_prefix))
        most, beginning = self._again.choice([1, 5, 1000]), Beginning(span=known.replay.span)
        found = Publisher(feed, producer, renderer, most, lambda _: None, beginning)
        publish(found, feed, follow=False, pause_s=0, max_retries=2, close=producer.close)
        self.say(f"  the replay stops {dict(found.stopped)}")
        if not found.stopped:
            found.require_whole()
            self.say("  the whole range is replayed")

    def check_replays(self) -> None:
        """What was told as replayed is there, once."""
        for known in self.replayed:
            if known.lakes == self.lakes and known.cluster.marker is not None:
                for table in [*self.tables, *self.signal_tables]:
                    self._check_replay(known, table)

    def _check_replay(self, known: Replayed, table: TableId) -> None:
        span, about = known.replay.span, f"{known.replay.prefix} ({known.replay.span.text()})"
        name = self.topic(table)
        assert known.cluster.marker is not None
        reached = parse_published(known.cluster.marker).of(name)
        records = known.cluster.topics.get(known.replay.topic(self.config.events.topic_prefix, name), [])
        found = [(record.window, record.position) for record in records]
        assert len(found) == len(set(found)), f"{about}: {name} is replayed twice"
        assert found == sorted(found), f"{about}: {name} is replayed in another order"
        low, high = span.after + END_OF_WINDOW if span.after else "", (span.until or END_OF_WINDOW) + END_OF_WINDOW
        wanted = {
            (window, at)
            for at, window in self.windows.get(table, {}).items()
            if at in self.ever.get(table, ())
            and (span.first, "")
            <= (window, at)
            <= min(reached, (span.last, END_OF_WINDOW) if span.last is not None else reached)
            and low < at <= high
        }
        lacking = sorted(wanted.difference(found))
        assert not lacking, f"{about}: {name} lacks {lacking[:5]}, and is told as replayed up to {reached}"
        beyond = [
            place
            for place in found
            if place[0] < span.first or (span.last is not None and place[0] > span.last) or not low < place[1] <= high
        ]
        assert not beyond, f"{about}: {name} has {beyond[:5]}, which are not in the range"
