"""What happens at a moment of a process, by name; `moments` says where and how often."""

from cdc_assets_tests.simulation.processes import MOST
from cdc_assets_tests.simulation.restores import Restores
from cdc_assets_tests.simulation.scheduler import Actor
from cdc_assets_tests.unit.streaming.law import state_of


class Happenings(Restores):
    """Each of them happens while an actor stands at a pause."""

    def await_at(self, place: str, what: str) -> None:
        """Something happens as soon as somebody is at a place."""

    def await_readers(self) -> None:
        """Somebody reads soon what a fault has left."""

    def work_beside(self, _: Actor) -> None:
        """Transactions of tables that somebody reads, rather than of others."""
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            self.work_on(self.wanted_last if self.rng.random() < 0.8 else self.tables)

    def lag_there(self, actor: Actor) -> None:
        """Capture jobs read all, and not what comes right after."""
        self.server.scan_all()
        self.work_beside(actor)

    def change_all_there(self, actor: Actor) -> None:
        """Capture jobs read all, and then stand still for long; right after it each row changes of tables that are read in rounds."""
        self.server.scan_all()
        self._change_all()
        self.go_alone(actor, 400)

    def _change_all(self) -> None:
        for signals in state_of(self.config).signals.values():
            if signals.queue and signals.queue[0].table in self.tables:
                self.update_all(signals.queue[0].table)

    def clean_there(self, _: Actor) -> None:
        """Each row changes that was read, and the clean-up job removes that before somebody looks for what has changed."""
        self._change_all()
        self.await_at("server.read of changed rows", "clean_up_there")

    def clean_up_there(self, _: Actor) -> None:
        """The clean-up job removes all that is captured."""
        for name in self.config.connection.databases:
            self._clean_up(name, self.server.ends[name])

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
        self.await_readers()
        self.work_on(self.wanted_last)
        self.server.scan_all()
        if not self.scheduler.of(actor.kind):
            self.begin(actor.kind)

    def terminate_there(self, actor: Actor) -> None:
        """It is asked to end, and another one is started as soon as its place is free."""
        self.scheduler.terminate(actor)
        if not [other for other in self.scheduler.of(actor.kind) if other is not actor]:
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
        self._fail(self.rng.choice(["lost", "repeated", "repeated", "refused"]), actor.at.partition("commit of ")[2])

    def refuse_reads_there(self, _: Actor) -> None:
        """The next READs of a round are refused: the same run has to commit them later, before it does anything else."""
        self._fail("refused", "READs in ")

    def _fail(self, fault: str, meant: str) -> None:
        self.store.next_fault, self.store.meant = fault, meant
        self.await_readers()
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

    def hold_there(self, _: Actor) -> None:
        """A database does not answer any more."""
        self.hold_database()

    def busy_there(self, actor: Actor) -> None:
        """A snapshot is planned, and what it asks next is the victim of a deadlock; before it asks again, a table of another database
        is handed over and captured."""
        if not (planned := state_of(self.config).snapshots):
            self.await_at("server.table_schemas", "busy_there")
            return
        self.server.is_busy = True
        if tables := [
            table for table in self.tables if table.database not in planned and not self.server.locked[table]
        ]:
            table = self.rng.choice(tables)
            self._alter(table)
            self._renew(table)
            self.work_on([table])
        self.server.scan_all()

    def make_there(self, _: Actor) -> None:
        """A table is enabled, and the server is busy when somebody begins to read it."""
        if self.make_table():
            self.await_at("server.table_schemas", "busy_there")

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
