"""Processes of the product, as actors play them."""

from typing import Final

from cdc_assets.assembly.retention import make_retention
from cdc_assets.capture.capture import Capture, RunOptions
from cdc_assets.capture.reset import Reset
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.errors import EventsDroppedError, MirrorError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.overview import CaptureOverview, report_of
from cdc_assets.overview.report import CaptureReport
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.follow import publish
from cdc_assets.publish.publisher import Publisher
from cdc_assets.publish.render import Renderer
from cdc_assets_tests.simulation.asked import Asked, AskedBulk, TurnClock
from cdc_assets_tests.simulation.scheduler import Actor
from cdc_assets_tests.simulation.signals import Signals
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.loop_runner import LoopRunner

KINDS: Final = {
    "capture": 8,
    "mirror": 6,
    "publisher": 4,
    "snapshot": 1,
    "rebuild": 1,
    "look": 3,
    "reconcile": 2,
    "engine": 3,
    "reader": 4,
    "consumer": 4,
    "forget": 1,
}
"""Processes, and how often each is started."""

MOST: Final = {
    "capture": 2,
    "mirror": 2,
    "publisher": 2,
    "snapshot": 1,
    "rebuild": 1,
    "look": 1,
    "reconcile": 1,
    "engine": 2,
    "reader": 2,
    "consumer": 2,
    "forget": 1,
    "replay": 1,
}
"""Processes of a kind at once."""


class Processes(Signals):
    """Bodies of actors, by kind."""

    def open_capture(self) -> Capture:
        bulk = AskedBulk(self.server, scheduler=self.scheduler)
        tables = TopicTables.of(self.config)
        clock = TurnClock(self.server, self.scheduler)
        return Capture(
            self.config,
            Asked(self.server, self.scheduler),
            bulk,
            LoopRunner(),
            clock,
            RunOptions("run", tables=tables, retention=make_retention),
        )

    def capture(self) -> None:
        """What is new is read; first what needs a snapshot."""
        capture = self.open_capture()
        capture.snapshot()
        capture.stream()

    def snapshot(self) -> None:
        """Tables are read again."""
        chosen = [self.rng.choice([*self.tables, *self.wanted_last * 4])]
        self.say(f"  reads {chosen[0]} again")
        self.open_capture().snapshot(chosen)

    def mirror(self, *, anew: bool = False) -> None:
        """Mirrors follow."""
        troubles = self.mirrors().catch_up(anew=anew)
        for topic, trouble in troubles.items():
            self.say(f"  the mirror of {topic}: {trouble}")
        told = (EventsDroppedError, MirrorError)
        self.to_read_again = {topic for topic, trouble in troubles.items() if isinstance(trouble, told)}

    def forget(self) -> None:
        """What is known of a table is forgotten, while others may be at work: it counts as new."""
        table = self.rng.choice(self.tables)
        self.say(f"  forgets {table}")
        found = Reset(self.config, TurnClock(self.server, self.scheduler))
        known = found.named([str(table)])
        self.hurt.add(table)
        found.forget([state.table for state in known])

    def rebuild(self) -> None:
        """Mirrors are made anew."""
        self.mirror(anew=True)

    def publisher(self) -> None:
        """What is complete is published."""
        feed = Feed(self.config, TopicTables.of(self.config))
        producer = self.cluster.producer()
        most = self.rng.choice([1, 5, 1000])
        found = Publisher(feed, producer, Renderer(self.config.kafka), most, lambda _: None)
        publish(found, feed, follow=False, pause_s=0, max_retries=2, close=producer.close)

    def look(self) -> None:
        """Somebody looks at the capture; what is called healthy is held against the law."""
        # a look that takes hours tells what was when it began
        begun, captured = self.server.now, self._captured()
        # who comes to a secondary that does not follow cannot know what the server has no more
        known = {} if self.server.replicas.are_suspended else self.lost
        lost, lake = {table: set(found) for table, found in known.items()}, (self.lakes, self.losses)
        mirrors = self.mirrors().states() if self.losses else {}
        report = self._report()
        self.looks[report.health] += 1
        self.say(f"  it is {report.headline}")
        self._check_restores(report)
        if report.healthy and (self.lakes, self.losses) == lake:
            self.check_healthy(begun, captured, lost)
            self.check_mirrors_healthy(mirrors)

    def _check_restores(self, report: CaptureReport) -> None:
        """Of no database is said, nor recorded, that it was restored, if it was not."""
        state = state_of(self.config)
        for database in self.config.connection.databases:
            said = [str(one) for one in report.troubles if f"Database {database} was restored" in str(one)]
            found = said or state.log(database).restored
            assert not found or self.server.breaks(database), found

    def _captured(self) -> dict[str, Lsn]:
        """How far each database is captured by what every secondary shows, and by what the lake has recorded: who knows that does not believe
        one that shows less."""
        found = dict(self.server.replicas.captured_everywhere(self.server))
        state = state_of(self.config)
        for database in found:
            window, read = state.in_flight(database), state.log(database).read
            found[database] = max(found[database], read or ZERO_LSN)
            if window is not None and window.kind == "stream" and window.reads:
                found[database] = max(found[database], window.until)
        return found

    def _report(self) -> CaptureReport:
        overview = CaptureOverview(self.config, Asked(self.server, self.scheduler))
        return report_of(overview, self.server.now - self.server.behind, marker=lambda: self.cluster.marker)

    def begin(self, kind: str) -> Actor:
        return self.scheduler.start(kind, getattr(self, kind))

    def end(self, most_turns: int = 20_000) -> None:
        self.scheduler.end_all(most_turns)
        self.remember()
