"""A server, a lake, a broker, and everybody who works with them; what happens is chosen by a seed.

A history is a number of turns. In each one either an actor goes on to its next pause, or something happens: a transaction, a scan of
the capture job, a clean-up, a change of structure, a foreign OPTIMIZE, hours that pass, a process that starts, crashes or falls
asleep, an answer that is lost, a record that is refused. At the end faults stop, everybody wakes and ends, all kinds of processes run
once more, and the law is checked (`law`).
"""

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from deltalake import DeltaTable

from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import CaptureConfig, MirrorSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.steps import listening
from cdc_assets.errors import DatabaseAwayError, QueryError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.overview import CaptureOverview, report_of
from cdc_assets.overview.report import CaptureReport
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.follow import publish
from cdc_assets.publish.publisher import Publisher
from cdc_assets.publish.render import Renderer
from cdc_assets.retention.drop import Retention
from cdc_assets.run.capture import Capture
from cdc_assets_tests.simulation import law
from cdc_assets_tests.simulation.broker import Cluster
from cdc_assets_tests.simulation.scheduler import Actor, Scheduler
from cdc_assets_tests.simulation.server import Asked, AskedBulk, LaggingServer, TurnClock
from cdc_assets_tests.simulation.store import Store
from cdc_assets_tests.unit.streaming.captures import make_config
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import LoopRunner

DATABASES: Final = ("SalesDb", "StockDb")
HOURS: Final = 10
"""Age at which events are dropped, where retention is on."""

EVENTS: Final = {
    "go_on": 400,
    "work": 40,
    "scan": 40,
    "start": 30,
    "crash": 12,
    "sleep": 8,
    "later": 3,
    "hand_over": 2,
    "clean_up": 1,
    "optimize": 2,
    "lose_answer": 2,
    "lose_published": 2,
    "refuse_topic": 2,
    "accept_topic": 3,
    "leave_broker": 1,
    "refuse_reads": 1,
    "accept_reads": 3,
    "leave_database": 1,
    "return_database": 3,
    "new_table": 1,
}
"""What a history is made of, and how often."""

KINDS: Final = {"capture": 8, "mirror": 4, "publisher": 4, "snapshot": 1, "rebuild": 1, "look": 3}
"""Processes, and how often each is started."""

_MAX: Final = {"capture": 2, "mirror": 2, "publisher": 2, "snapshot": 1, "rebuild": 1, "look": 1}
"""Processes of a kind at once."""


class World:
    """One history.

    Args:
        lake: an empty folder.
        seed: chooses all that happens.
    """

    def __init__(self, lake: Path, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - a history that can be repeated
        self.lake, self.said = lake, list[str]()
        self.scheduler = Scheduler(random.Random(-1 - seed), self.say)  # noqa: S311 - the same
        self.server = LaggingServer(names=DATABASES)
        self.cluster = Cluster(self.scheduler)
        self.store = Store(self.scheduler, self.say)
        policy = self.rng.choice(["", "delete", "compact"])
        self.config = self._settings(policy)
        self.say(f"policy {policy or 'keep'}, {self.config.connection.databases}, {self.config.streaming.gap_policy}")
        self.tables = [self.server.create("lines", rows=4), self.server.create("orders", rows=7)]
        if len(self.config.connection.databases) > 1:
            self.tables.append(self.server.create("items", rows=3, database=DATABASES[1]))
        self.server.scan_all()
        self._next_key = 100
        self.ever: dict[TableId, set[str]] = {}
        """Positions of all events that were ever in a topic."""
        self.published: dict[str, set[tuple[str, str]]] = {}
        """LSNs at which the mirror of a topic has ever said that it is right."""
        self.hurt = set[TableId]()
        """Tables that may have lost changes."""

    def _settings(self, policy: str) -> CaptureConfig:
        found = make_config(
            str(self.lake),
            max_iteration_transactions=3,
            slices=2,
            max_retries=1,
            retry_wait_s=0.1,
            gap_policy=self.rng.choice(["fail", "fail", "ignore", "resnapshot"]),
            transaction_metadata=self.rng.random() < 0.3,
            topic_hours=HOURS if policy else 0,
            compact_after_files=self.rng.choice([2, 4, 200]),
            **({"topic_policy": policy} if policy else {}),
        )
        databases = DATABASES[: self.rng.choice([1, 2])]
        connection = replace(found.connection, databases=databases)
        return replace(found, mirror=MirrorSettings(enabled=True), connection=connection)

    def say(self, text: str) -> None:
        self.said.append(f"{self.scheduler.turn if hasattr(self, 'scheduler') else 0:5d} {text}")

    # ---- processes ---------------------------------------------------------------------------------------------

    def _capture(self) -> Capture:
        bulk = AskedBulk(self.server, scheduler=self.scheduler)
        tables = TopicTables.of(self.config)
        clock = TurnClock(self.server, self.scheduler)
        return Capture(
            self.config,
            Asked(self.server, self.scheduler),
            bulk,
            LoopRunner(),
            clock,
            run_id="run",
            tables=tables,
            retention=Retention,
        )

    def capture(self) -> None:
        """What is new is read; first what needs a snapshot."""
        capture = self._capture()
        capture.snapshot()
        capture.stream()

    def snapshot(self) -> None:
        """Tables are read again."""
        chosen = self.rng.sample(self.tables, 1)
        self.say(f"  reads {chosen[0]} again")
        self._capture().snapshot(chosen)

    def _mirrors(self) -> CaptureMirrors:
        return CaptureMirrors(self.config, LocalRunner(1), TurnClock(self.server, self.scheduler))

    def mirror(self, *, anew: bool = False) -> None:
        """Mirrors follow."""
        for topic, trouble in self._mirrors().catch_up(anew=anew).items():
            self.say(f"  the mirror of {topic}: {trouble}")

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
        begun, captured = (
            self.server.now,
            dict(self.server.ends),
        )  # a look that takes hours tells what was when it began
        if self._report().healthy:
            self.say("  it is healthy")
            self.check_healthy(begun, captured)

    def _report(self) -> CaptureReport:
        overview = CaptureOverview(self.config, Asked(self.server, self.scheduler))
        return report_of(overview, self.server.now, marker=lambda: self.cluster.marker)

    # ---- what happens ------------------------------------------------------------------------------------------

    def play(self, turns: int) -> None:
        """A history of so many turns, and its end in fair weather."""
        with listening(self.scheduler.pause), self.store.disturbed():
            for kind in ("capture", "mirror", "publisher"):
                self._begin(kind)
                self._end()
            for what in self.rng.choices(list(EVENTS), list(EVENTS.values()), k=turns):
                getattr(self, what)()
                self._note()
            self.end_in_fair_weather()

    def _note(self) -> None:
        """What topics and mirrors hold now; cheap, since it is only asked when somebody has ended."""

    def _begin(self, kind: str) -> Actor:
        return self.scheduler.start(kind, getattr(self, kind))

    def _end(self, most_turns: int = 5000) -> None:
        self.scheduler.end_all(most_turns)
        self.remember()

    def remember(self) -> None:
        """What topics hold now."""
        for table in self.tables:
            found = self.ever.setdefault(table, set())
            found |= set(law.Topic(self.lake, self.topic(table)).positions)
        for name, lsn, begin in law.published_of(self.lake):
            self.published.setdefault(name, set()).add((lsn, begin))

    def topic(self, table: TableId) -> str:
        return f"shop.{table}"

    def go_on(self) -> None:
        """Somebody goes on to the next pause."""
        before = len(self.scheduler.actors)
        self.scheduler.step()
        if len(self.scheduler.actors) < before:
            self.remember()

    def start(self) -> None:
        """A process starts, beside those of its kind that sleep or run."""
        kind = self.rng.choices(list(KINDS), list(KINDS.values()))[0]
        running = len(self.scheduler.of(kind))
        if running < _MAX[kind] and (not running or self.rng.random() < 0.3):  # one of a kind is the rule
            self._begin(kind)

    def _anybody(self) -> Actor | None:
        """Rather one at a commit: it is there that what is half done is seen by others."""
        actors = [actor for actor in self.scheduler.actors if actor.thread is not None and actor.thread.ident]
        weights = [8 if "commit" in actor.at else 1 for actor in actors]
        return self.rng.choices(actors, weights)[0] if actors else None

    def crash(self) -> None:
        """A process dies."""
        if (actor := self._anybody()) is not None:
            self.scheduler.crash(actor)
            self.remember()

    def sleep(self) -> None:
        """A process stands still for long."""
        if (actor := self._anybody()) is not None:
            self.scheduler.sleep(actor, self.rng.randrange(20, 300))

    def work(self) -> None:
        """A transaction."""
        changes: list[tuple[TableId, str, int, str]] = []
        alive = {table: set(self.server.rows[table]) for table in self.tables}
        for _ in range(self.rng.randrange(1, 5)):
            table = self.rng.choice(self.tables)
            what = self.rng.choice(["insert", "update", "update", "delete"])
            note = f"note {self.rng.randrange(1000)}"
            if what == "insert" or not alive[table]:
                self._next_key += 1
                changes.append((table, "insert", self._next_key, note))
                alive[table].add(self._next_key)
            else:
                key = self.rng.choice(sorted(alive[table]))
                changes.append((table, what, key, note))
                if what == "delete":
                    alive[table].discard(key)
        lsn = self.server.commit(*changes)
        self.say(f"{lsn}: {', '.join(f'{what} {table.table} {key}' for table, what, key, _ in changes)}")

    def scan(self) -> None:
        """A capture job reads some of the log, or all of it."""
        self.server.scan(self.rng.choice(self.config.connection.databases), self.rng.choice([1, 2, None]))

    def later(self) -> None:
        """Time passes."""
        self.server.now += timedelta(hours=self.rng.choice([0.1, 1, HOURS, 2 * HOURS]))

    def hand_over(self) -> None:
        """A second capture instance with one column more; before a third, the oldest is dropped."""
        table = self.rng.choice(self.tables)
        own = [instance for instance in self.server.instances if instance.table == table]
        if len(own) == 2:
            self.hurt.add(table)
            self.say(f"drops {own[0].name}")
            self.server.disable(own[0].name)
        self.server.add_column(table, f"extra_{self.scheduler.turn}")
        made = self.server.enable(table, f"dbo_{table.table}_{self.scheduler.turn}")
        self.say(f"{made.name} is made with a column more")

    def clean_up(self) -> None:
        """The clean-up job removes the oldest part of the log."""
        known = sorted({lsn for found in self.server.scanned.values() for lsn in found})
        if known:
            lsn = self.rng.choice(known)
            self.say(f"clean-up to {lsn}")
            self.hurt |= set(self.tables)
            self.server.clean_up(lsn)

    def optimize(self) -> None:
        """Somebody rewrites the files of a table."""
        folders = sorted(found.parent for found in self.lake.glob("*/_delta_log"))
        if folders:
            folder = self.rng.choice(folders)
            self.say(f"a stranger rewrites {folder.name}")
            with suppress(Exception):  # it may be refused
                DeltaTable(str(folder)).optimize.compact()

    def lose_answer(self) -> None:
        """The store's answer to a commit is lost, or a commit is refused."""
        self.store.next_fault = self.rng.choice(["lost", "lost", "refused"])

    def lose_published(self) -> None:
        """The answer of the next commit of a publisher is lost."""
        self.cluster.lost_answers = 1

    def refuse_topic(self) -> None:
        """The broker refuses what is sent to a topic."""
        name = self.topic(self.rng.choice(self.tables))
        self.cluster.refused[name] = self.rng.choice(["send", "commit"])
        self.say(f"{name} is refused at {self.cluster.refused[name]}")

    def accept_topic(self) -> None:
        """It does no longer."""
        self.cluster.refused.clear()
        self.cluster.is_away = False

    def leave_broker(self) -> None:
        """The broker is away."""
        self.cluster.is_away = True

    def refuse_reads(self) -> None:
        """The right to read a change table is taken away."""
        table = self.rng.choice(self.tables)
        self.say(f"reads of {table} are refused")
        self.server.refusals[f"[dbo_{table.table}"] = QueryError("The SELECT permission was denied.", 229)

    def accept_reads(self) -> None:
        """It is given again."""
        self.server.refusals.clear()

    def leave_database(self) -> None:
        """A database goes away."""
        name = self.rng.choice(self.config.connection.databases)
        self.say(f"{name} is away")
        self.server.troubles[name] = DatabaseAwayError(f"{name} is offline.")

    def return_database(self) -> None:
        """It is there again."""
        self.server.troubles.clear()

    def new_table(self) -> None:
        """A table is enabled while all run."""
        if len(self.tables) < 4:
            name = f"new_{len(self.tables)}"
            self.tables.append(self.server.create(name, rows=self.rng.randrange(5)))
            self.say(f"{name} is captured, too")

    # ---- the end -----------------------------------------------------------------------------------------------

    def end_in_fair_weather(self) -> None:
        """Faults stop, all is caught up, and the law holds."""
        self.say("fair weather")
        self.server.is_prompt = True
        self.accept_topic()
        self.accept_reads()
        self.return_database()
        self.store.next_fault, self.cluster.lost_answers = "", 0
        self._end()
        for _ in range(3):
            self.server.scan_all()
            self._run("capture")
            self._read_again([name for name, entry in state_of(self.config).tables.items() if not entry.streams])
        if self.config.streaming.gap_policy == "ignore":  # a snapshot repairs what was passed over
            self._read_again([name for name, entry in state_of(self.config).tables.items() if entry.gaps])
        self._run("mirror", "publisher")
        self.check()

    def _run(self, *kinds: str) -> None:
        for kind in kinds:
            self._begin(kind)
            self._end()

    def _read_again(self, tables: Sequence[TableId]) -> None:
        if tables:
            self.say(f"reads {', '.join(map(str, tables))} again")
            self.scheduler.start("snapshot", lambda: self._capture().snapshot(tables))
            self._end()
            self._run("capture")

    def check(self) -> None:
        """The law."""
        state = state_of(self.config)
        for table in self.tables:
            entry = state.tables[table]
            about = f"{table} ({entry.status}, {entry.position}, gaps {entry.gaps}, {entry.reason})"
            assert entry.status == "healthy", about
            self.check_events(table, about)
            self.check_mirror(table, about)
            law.check_published(self.cluster, self.topic(table), self.ever[table], about)
        self.check_healthy(self.server.now, self.server.ends)

    def check_events(self, table: TableId, about: str) -> None:
        """Every change is there, or marked as missing; together they make the server's rows."""
        entry = state_of(self.config).tables[table]
        topic = law.Topic(self.lake, self.topic(table))
        topic.check_once(about)
        assert entry.snapshot_lsn is not None
        assert entry.position is not None
        wanted = law.changes_of(self.server, table, entry.snapshot_lsn, entry.position)
        missing = [at for at in wanted if at not in self.ever[table]]
        unmarked = [at for at in missing if not any(a < Lsn.parse(at[:22]) <= b for a, b in entry.gaps)]
        assert not unmarked, f"{about}: lacks {unmarked[:5]}, which no gap tells"
        if table not in self.hurt:
            assert not missing, f"{about}: lacks {missing[:5]}"
        newest = max([change.lsn for change in self.server.history if change.table == table], default=entry.position)
        assert newest <= entry.position, f"{about}: changes up to {newest} are not read"
        if not entry.gaps and self.config.lake.topic_hours == 0:
            rows = law.fold(topic.rows, entry.position)
            assert rows == self.server.rows_at(table, entry.position), f"{about}: the fold is not the table"

    def check_mirror(self, table: TableId, about: str) -> None:
        """The mirror is the table, at each LSN that it has ever published since it was made anew last, also if a snapshot was
        still reading then."""
        known = self._mirrors().states()[self.topic(table)]
        assert known.lsn >= str(state_of(self.config).tables[table].position), f"{about}: the mirror is behind"
        ever = {*self.published[self.topic(table)], (known.lsn, known.begin)}
        published = sorted({lsn for lsn, begin in ever if begin == known.begin or lsn >= known.begin})
        law.check_mirror(self.server, self.lake, table, self.topic(table), published, about)

    def check_healthy(self, at: datetime, captured: Mapping[str, Lsn]) -> None:
        """What is called healthy at a moment has every change that was committed two minutes before it and is captured."""
        due = at - timedelta(minutes=2)
        held = {table: set(law.Topic(self.lake, self.topic(table)).positions) for table in self.tables}
        for table in self.tables:
            first = state_of(self.config).tables.get(table)
            if first is None or first.snapshot_lsn is None:
                continue
            for change in self.server.history:
                if change.table != table or change.operation == 3 or change.lsn <= first.snapshot_lsn:
                    continue
                if self.server.times[change.lsn] > due or change.lsn > captured[table.database]:
                    continue
                place = f"{change.lsn}/{change.command:08x}/{change.seqval}/{change.operation}"
                assert place in held[table] or place in self.ever.get(table, ()) or self._is_told(table, change.lsn), (
                    f"healthy, and {table} lacks {place}"
                )

    def _is_told(self, table: TableId, lsn: Lsn) -> bool:
        entry = state_of(self.config).tables[table]
        return any(after < lsn <= until for after, until in entry.gaps)
