"""What happens to processes, server, store and broker, and how often."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from deltalake import DeltaTable

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.errors import DatabaseAwayError, LockTimeoutError, QueryError
from cdc_assets_tests.simulation.consumers import Consumers
from cdc_assets_tests.simulation.processes import MOST
from cdc_assets_tests.simulation.scheduler import Actor
from cdc_assets_tests.simulation.shared import HOURS
from cdc_assets_tests.unit.streaming.law import state_of

EVENTS: Final = {
    "go_on": 400,
    "work": 40,
    "scan": 40,
    "start": 40,
    "await_moment": 50,
    "crash": 6,
    "terminate": 3,
    "retry": 3,
    "sleep": 4,
    "later": 6,
    "calm": 6,
    "night": 1,
    "read_again": 2,
    "stretch": 30,
    "follow": 4,
    "alter": 2,
    "retype": 1,
    "hand_over": 3,
    "drop_instance": 1,
    "clean_up": 3,
    "optimize": 2,
    "lose_answer": 4,
    "lose_published": 2,
    "refuse_topic": 2,
    "accept_topic": 3,
    "leave_broker": 1,
    "refuse_reads": 1,
    "accept_reads": 3,
    "leave_database": 1,
    "hold_database": 1,
    "return_database": 3,
    "new_table": 2,
    "ask_for_rows": 24,
    "signal": 2,
    "behind_the_log": 1,
    "source_work": 8,
    "restart_connector": 4,
    "write_lines": 4,
    "rotate": 4,
    "lag_behind": 3,
    "follow_primary": 2,
    "fill_store": 1,
    "set_clock": 2,
    "set_server_clock": 1,
    "change_time_zone": 1,
    "send_events": 8,
    "compact_topic": 2,
    "trim_topic": 1,
    "add_partition": 1,
    "move_leader": 1,
    "back_up": 2,
    "restore": 1,
    "lose_new": 1,
    "fail_over": 2,
    "force_over": 1,
    "start_over": 1,
}
"""What a history is made of, and how often."""


class Weather(Consumers):
    """Events of a history, by name."""

    def go_on(self) -> None:
        """Somebody goes on to the next pause, and perhaps others after it."""
        before = len(self.scheduler.actors)
        for _ in range(self.rng.choice([1, 2, 4, 8, 16])):
            self.scheduler.step()
        if len(self.scheduler.actors) < before:
            self.remember()

    def start(self) -> None:
        """A process starts, beside those of its kind that sleep or run."""
        kind = self.rng.choices(list(self.mix.kinds), list(self.mix.kinds.values()))[0]
        running = len(self.scheduler.of(kind))
        if running < MOST[kind] and (not running or self.rng.random() < 0.3):  # one of a kind is the rule
            self.begin(kind)

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
            self._succeed(actor)

    def terminate(self) -> None:
        """A process is asked to end."""
        if (actor := self._anybody()) is not None:
            self.scheduler.terminate(actor)
            self._succeed(actor)

    def retry(self) -> None:
        """A run that has failed is queued again."""
        if self.scheduler.to_retry:
            kind = self.scheduler.to_retry.pop()
            if len(self.scheduler.of(kind)) < MOST[kind]:
                self.begin(kind)

    def sleep(self) -> None:
        """A process stands still for long."""
        if (actor := self._anybody()) is not None:
            self.scheduler.sleep(actor, self.rng.randrange(20, 300))
            self._succeed(actor)

    def _succeed(self, actor: Actor) -> None:
        """Often somebody starts another one in its place."""
        if self.rng.random() < 0.5 and len(self.scheduler.of(actor.kind)) < MOST[actor.kind]:
            self.begin(actor.kind)

    def work(self) -> None:
        """A transaction, often of tables that somebody asks for."""
        self.work_on(self.wanted_last if self.rng.random() < 0.3 else self.tables)

    def work_on(self, tables: Sequence[TableId]) -> None:
        """A transaction; writers of locked tables wait."""
        free = [table for table in tables if not self.server.locked[table]]
        if not free:
            return
        changes: list[tuple[TableId, str, int, str]] = []
        alive = {table: set(self.server.rows[table]) for table in free}
        for _ in range(self.rng.randrange(1, 5)):
            table = self.rng.choice(free)
            what = self.rng.choice(["insert", "update", "update", "delete"])
            note = self._note(table)
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

    def update_all(self, table: TableId) -> None:
        """A transaction changes each row of a table, unless its writers wait."""
        keys = sorted(self.server.rows[table])
        if keys and not self.server.locked[table]:
            lsn = self.server.commit(*((table, "update", key, self._note(table)) for key in keys))
            self.say(f"{lsn}: update of each row of {table.table}")

    def _note(self, table: TableId) -> str:
        return f"note {self.rng.randrange(2 if table in self.server.keyless else 1000)}"

    def scan(self) -> None:
        """A capture job reads some of the log, or all of it."""
        self.server.scan(self.rng.choice(self.config.connection.databases), self.rng.choice([1, 2, -1, None]))

    def later(self) -> None:
        """Time passes."""
        self.server.now += timedelta(hours=self.rng.choice([0.1, 1, HOURS, 2 * HOURS]))

    def alter(self) -> None:
        """A column is added or dropped; instances stay as they are."""
        table = self.rng.choice(self.tables)
        if not self.server.locked[table]:
            self._alter(table)

    def _alter(self, table: TableId) -> None:
        more = [column.name for column in self.server.schemas[table].columns[2:]]
        gone = sorted(self._dropped[table].difference(more))
        if more and self.rng.random() < 0.4:
            self._lose_column(table, self.rng.choice(more))
        elif gone and self.rng.random() < 0.5:
            self._get_numbers(table, self.rng.choice(gone))
        elif len(more) < 4:
            self._get_column(table)

    def _get_column(self, table: TableId) -> str:
        self._altered += 1
        column = f"extra_{self._altered}"
        self.say(f"{table} gets {column}")
        self.server.add_column(table, column)
        return column

    def _lose_column(self, table: TableId, column: str) -> None:
        self.say(f"{table} loses {column}")
        self.server.drop_column(table, column)
        self._dropped[table].add(column)

    def _get_numbers(self, table: TableId, column: str) -> None:
        """A column comes back with another type."""
        self.say(f"{table} gets {column} again, with numbers")
        self.server.add_column(table, column, is_number=True)
        self._dropped[table].remove(column)

    def retype(self) -> None:
        """A column is made, dropped, and made again with numbers; each time there is a new capture instance, to which the capture often
        comes before the next one."""
        table = self.rng.choice(self.tables)
        if self.server.locked[table]:
            return
        column = self._get_column(table)
        self._use_new_instance(table)
        if column in (one.name for one in self.server.schemas[table].columns):  # else somebody was quicker
            self._lose_column(table, column)
        self._use_new_instance(table)
        if column in self._dropped[table]:
            self._get_numbers(table, column)
        self._use_new_instance(table)

    def _use_new_instance(self, table: TableId) -> None:
        self._renew(table)
        self.work_on([table])
        self.server.scan_all()
        if self.rng.random() < 0.8:
            self.run_alone("capture")

    def hand_over(self) -> None:
        """A second capture instance with the columns that there are; before a third, the oldest is dropped."""
        table = self.rng.choice(self.tables)
        if self.server.locked[table]:
            return
        if self.rng.random() < 0.8:  # else another role or file group is wanted
            self._alter(table)
        self._renew(table)

    def _renew(self, table: TableId) -> None:
        """A capture instance with the columns that there are."""
        own = [instance for instance in self.server.instances if instance.table == table]
        if len(own) == 2:
            self._drop(own[0])
        made = self.server.enable(table, self.server.free_name(table))
        self.say(f"{made.name} is made with {', '.join(made.columns)}")

    def drop_instance(self) -> None:
        """The older of two instances is dropped, perhaps before it was read to its end."""
        table = self.rng.choice(self.tables)
        own = [instance for instance in self.server.instances if instance.table == table]
        if len(own) == 2 and not self.server.locked[table]:
            self._drop(own[0])

    def _drop(self, instance: CaptureInstance) -> None:
        self.hurt.add(instance.table)
        self.say(f"drops {instance.name}")
        self.server.disable(instance.name)

    def clean_up(self) -> None:
        """The clean-up job removes the oldest part of the log, or all of it before anybody has read that."""
        name = self.rng.choice(self.config.connection.databases)
        known = self.server.scanned[name]
        if self.rng.random() < 0.5:
            self.work()
            self.server.scan_all()
            known = [self.server.ends[name]]
        if known:
            self._clean_up(name, self.rng.choice(known))

    def _clean_up(self, name: str, lsn: Lsn) -> None:
        self.say(f"clean-up of {name} to {lsn}")
        self.hurt |= {table for table in [*self.tables, *self.signal_tables] if table.database == name}
        self.server.clean_up(lsn, name)

    def optimize(self) -> None:
        """Somebody rewrites the files of a table."""
        folders = sorted(found.parent for found in self.lake.glob("*/_delta_log"))
        if folders:
            self.rewrite(self.rng.choice(folders))

    def rewrite(self, folder: Path) -> None:
        """A stranger joins the files of a table."""
        self.say(f"a stranger rewrites {folder.name}")
        self.scheduler.let_be_fenced()
        with suppress(Exception):  # it may be refused
            DeltaTable(str(folder)).optimize.compact()

    def lose_answer(self) -> None:
        """The store's answer to a commit is lost, or a commit is refused."""
        self.store.next_fault, self.store.meant = self.rng.choice(["lost", "repeated", "refused"]), ""

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
        self.refuse_reads_of(self.rng.choice(self.tables))

    def refuse_reads_of(self, table: TableId) -> None:
        self.say(f"reads of {table} are refused")
        self.server.refusals[f"[dbo_{table.table}"] = QueryError("The SELECT permission was denied.", 229)

    def accept_reads(self) -> None:
        """It is given again."""
        self.server.refusals.clear()

    def leave_database(self) -> None:
        """A database goes away."""
        self.leave_database_of(self.rng.choice(self.tables))

    def leave_database_of(self, table: TableId) -> None:
        name = table.database
        if not self.has_begun:
            return
        self.say(f"{name} is away")
        self.server.troubles[name] = DatabaseAwayError(f"{name} is offline.")

    def hold_database(self) -> None:
        """Somebody changes the structure of a database, and does not commit: who asks about it waits in vain."""
        name = self.rng.choice(self.config.connection.databases)
        if self.has_begun:
            self.say(f"{name} is locked")
            self.server.held[name] = LockTimeoutError(f"A lock in {name} was not granted.")

    def return_database(self) -> None:
        """It is there again."""
        self.server.troubles.clear()
        self.server.held.clear()
        self.server.is_busy = False

    def end_faults(self) -> None:
        """Everything is there again, and nothing is refused."""
        self.end_surroundings()
        self.accept_topic()
        self.accept_reads()
        self.return_database()
        self.store.next_fault, self.cluster.lost_answers = "", 0

    def calm(self) -> None:
        """For a while nothing fails: all is caught up, and somebody looks; then perhaps more is done, time passes, and somebody looks again."""
        self.is_calm = True
        self.end_faults()
        self.server.now += timedelta(minutes=3)  # what was done before is due
        for table in self.tables:
            if not self.server.locked[table]:
                self._renew_if_altered(table)
        self.run_alone("capture")
        lost = [name for name, entry in state_of(self.config).tables.items() if not entry.streams or entry.gaps]
        if lost and self.rng.random() < 0.7:  # else what is lost is told
            self.say(f"reads {', '.join(map(str, lost))} again")
            self._run_to_end(self.scheduler.start("snapshot", lambda: self.open_capture().snapshot(lost)))
            self.run_alone("capture")
        self.run_alone("mirror", "publisher", "look")
        if self.rng.random() < 0.5:
            self.work()
            self.server.scan_all()
        self.server.now += timedelta(minutes=3)
        self.run_alone("look")
        self.is_calm = False
        self.server.replicas.begin_again(self.server)

    def _renew_if_altered(self, table: TableId) -> None:
        names = tuple(column.name for column in self.server.schemas[table].columns)
        newest = [instance for instance in self.server.instances if instance.table == table][-1]
        if newest.columns != names:
            self._renew(table)

    def night(self) -> None:
        """Captures run for a day, and not everybody reads what they write."""
        readers = self.rng.choice([(), ("mirror",), ("publisher",)])
        for hours in (HOURS, 2 * HOURS):
            self.work()
            self.server.scan_all()
            self.run_alone("capture", *readers)
            self.server.now += timedelta(hours=hours)
        self.run_alone("capture")

    def read_again(self) -> None:
        """A table whose mirror has all that is captured is read again while changes wait in the log; mirrors follow before all of these
        are captured."""
        table, known = self.rng.choice(self.tables), self.is_calm
        self.is_calm = True
        self.end_faults()
        self.run_alone("capture")
        self._capture_one(table)
        for _ in range(3):
            self.work_on([table])
        self.say(f"reads {table} again")
        self.go_alone(self.scheduler.start("snapshot", lambda: self.open_capture().snapshot([table])), 500)
        for _ in range(2):
            self._capture_one(table)
        self.remember()
        self.is_calm = known
        self.server.replicas.begin_again(self.server)

    def _capture_one(self, table: TableId) -> None:
        """A transaction comes, the oldest one that waits is captured, and mirrors follow."""
        self.work_on([table])
        self.server.scan(table.database, 1)
        for kind in ("capture", "mirror"):
            self.go_alone(self.begin(kind), 300)

    def follow(self) -> None:
        """Readers come to where the lake is, while all others stand still."""
        for kind in ("mirror", "publisher"):
            if not self.scheduler.of(kind):
                self.go_alone(self.begin(kind), 300)

    def restart_connector(self) -> None:
        """A connector is started again some times, and sends each time what it has sent last."""
        for _ in range(3):
            if len(self.scheduler.of("engine")) < MOST["engine"]:
                self.go_alone(self.begin("engine"), 100)
            self.source_work()

    def run_alone(self, *kinds: str) -> None:
        """Processes run, one after the other, while all others stand still."""
        for kind in kinds:
            self._run_to_end(self.begin(kind))

    def _run_to_end(self, actor: Actor) -> None:
        self.server.is_prompt = True
        self.go_alone(actor, 2000)
        self.server.is_prompt = False
        self.remember()  # what it has written may be dropped by the next one

    def go_alone(self, actor: Actor, turns: int) -> None:
        """One goes on for so many turns, or to its end, unless it falls asleep."""
        for _ in range(turns):
            if actor.has_ended or actor.asleep_until > self.scheduler.turn:
                return
            self.scheduler.go_on(actor)

    def new_table(self) -> None:
        """A table is enabled while all run."""
        if self.make_table() and self.rng.random() < 0.7:
            self._read_at_once(self.tables[-1])

    def make_table(self) -> bool:
        """A table is enabled, unless there are enough; whether it was."""
        if len(self.tables) >= 5:
            return False
        name = f"new_{len(self.tables)}"
        rows, is_keyless = self.rng.randrange(5), self.rng.random() < 0.3
        database = self.rng.choice(self.config.connection.databases)
        self.tables.append(self.server.create(name, rows=rows, keyless=is_keyless, database=database))
        self.say(f"{name} is captured, too")
        return True

    def _read_at_once(self, table: TableId) -> None:
        """A new table is read beside another one, while a publisher follows; its database may go away in the middle, while others go on."""
        tables, leaves = [table, self.rng.choice(self.tables[:-1])], self.rng.random() < 0.5
        self.say(f"reads {tables[0]} and {tables[1]}")
        actor = self.scheduler.start("snapshot", lambda: self.open_capture().snapshot(tables))
        for _ in range(500):
            self.go_alone(actor, 1)
            if actor.has_ended or actor.asleep_until > self.scheduler.turn:
                return
            if leaves and actor.at.startswith("behind a commit of round in"):
                self.scheduler.crash(actor)
                self.leave_database_of(table)
                self.hurt.update(
                    tables
                )  # who gives the snapshot up tells what comes between its READs and those of the next one
                for _ in range(3):
                    self.work_on([table])
                    self.work()
                self.run_alone("capture", *self.rng.choice([(), ("mirror",)]))
                self.return_database()
                return
            if actor.at.startswith("behind a commit of shop.__windows"):
                self.go_alone(self.begin("publisher"), 200)
