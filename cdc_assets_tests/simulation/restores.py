"""Databases that are restored to an older state, and the way out that the product names.

- The lake holds changes that the server has no more: they are told as lost, and nothing is healthy before that.
- A server that takes over as planned has all of them: nobody says that anything is lost.
- One that takes over by force lacks the newest, as after a restore; who does not follow it shows them until somebody resumes that.
- Once the server's LSNs have passed them and the tables were read again, all holds as it did before.

*Not in it:* a restore before an earlier one of the same database was noticed, and one that nobody can notice because the fork is the same, or
the login does not see it, and the server has passed what was read. The product says that it cannot know of these (`shared.forks`).
"""

from collections.abc import Collection, Sequence
from random import Random

from cdc_assets.core.identifiers import TableId
from cdc_assets_tests.simulation import law
from cdc_assets_tests.simulation.restoring import Backup
from cdc_assets_tests.simulation.scheduler import Actor
from cdc_assets_tests.simulation.weather import Weather
from cdc_assets_tests.unit.streaming.law import state_of

_KEPT = 3
"""Backups of a database besides that of the beginning."""


class Restores(Weather):
    """Backs up and restores."""

    def prepare_restores(self) -> None:
        """Each database has a backup, and the login may see forks or not."""
        self.backups = {name: [self.server.back_up(name)] for name in self.config.connection.databases}
        self.server.shows_forks = self.rng.random() < 0.8
        self.unsure = set[str]()
        """Databases of which rows were read until nobody knew where in the log, when another server took them over."""

    def back_up(self) -> None:
        """A database is backed up."""
        self._back_up(self.rng.choice(self.config.connection.databases))

    def _back_up(self, name: str) -> None:
        self.say(f"{name} is backed up")
        first, *others = self.backups[name]
        self.backups[name] = [first, *others[1 - _KEPT :], self.server.back_up(name)]

    def restore(self) -> None:
        """A database is restored, often to its newest backup."""
        name = self.rng.choice(self.config.connection.databases)
        backups = self.backups[name]
        self._restore(self.rng.choice([*backups, *backups[-1:] * 2]))

    def restore_there(self, _: Actor) -> None:
        """A database is restored."""
        self.restore()

    def lose_new(self) -> None:
        """A database is restored that was backed up before the newest transactions, of which some or all are in the lake."""
        name = self.rng.choice(self.config.connection.databases)
        tables = [table for table in self.tables if table.database == name]
        if self.rng.random() < 0.5:
            self.server.scan(name)  # so that nothing else waits for the capture job
        self._back_up(name)
        self._go_beyond(name, tables)
        self._restore(self.backups[name][-1])

    def _go_beyond(self, name: str, tables: Sequence[TableId], share: float = 0.7) -> None:
        """Transactions of a database, of which some or all come into the lake, or none if nothing runs.

        Args:
            share: how often each kind of process runs.
        """
        for _ in range(self.rng.randrange(1, 4)):
            self.work_on(tables)
        self.server.scan(name, self.rng.choice([1, None]))
        for kind in ("capture", "mirror", "publisher"):
            if self.rng.random() < share:
                self.go_alone(self.begin(kind), self.rng.choice([30, 100, 300]))

    def force_over(self) -> None:
        """A secondary takes a database over that lacks the newest transactions; others show these until somebody lets them follow. Often
        none of them was read, so that the capture goes on, perhaps with who shows them."""
        name = self.rng.choice(self.config.connection.databases)
        tables = [table for table in self.tables if table.database == name]
        if not self.server.replicas:
            self.lag_behind()
        self.server.replicas.go_on()
        self.server.replicas.stop()
        known = self.server.back_up(name)
        share = self.rng.choice([0.0, 0.7])
        for _ in range(self.rng.randrange(1, 3)):
            self._go_beyond(name, tables, share)
        self._restore(known, is_forced=True)
        if self.server.replicas.are_suspended:
            self.return_database()
            for _ in range(3):
                self._go_beyond(name, tables, 1.0)

    def _restore(self, backup: Backup, *, is_forced: bool = False) -> None:
        name = backup.database
        if not self._is_noticed(name):
            return
        chance = Random(f"put back {self.seed} {len(self.server.pasts)}")  # noqa: S311 - a history that can be repeated
        is_put_back = not is_forced and chance.random() < 0.25
        is_seen_by_fork = self.server.shows_forks and not is_put_back
        if not is_seen_by_fork:
            self._settle()
        self.remember()
        gone = {table: table in self.server.keyless for table in self.server.schemas if table.database == name}
        past = self.server.force_over(backup) if is_forced else self.server.restore(backup, is_put_back=is_put_back)
        how = "taken over by force" if is_forced else "put back with its server" if is_put_back else "restored"
        self.say(f"{name} is {how}; its LSNs from {past.point} up to {past.end} are given away again")
        for table in gone:
            ever = self.ever.setdefault(table, set())
            places = {law.place_of(change) for change in past.lost(table)}
            self.lost.setdefault(table, set()).update(at for at in ever if at.removesuffix("t") in places)
            self.delivered.get(table, set()).difference_update(places, {f"{place}t" for place in places})
            topic = law.Topic(self.lake, self.topic(table), self.files)
            self.left.setdefault(table, set()).update(law.reads_behind(topic, past.point))
            self.hurt.add(table)
            if table not in self.server.schemas:
                self.say(f"  {table} is made anew")
                self.read_from.pop(table, None)  # what was read is of another table
                self.server.create(table.table, rows=self.rng.randrange(5), keyless=gone[table], database=name)
        self._forget_requests(name)
        if not is_seen_by_fork:
            self._settle()
        elif self.rng.random() < 0.3:
            self.leave_database_of(next(iter(gone)))

    def fail_over(self) -> None:
        """Another server takes a database over as planned: nothing is lost, and a secondary that lags does not know it yet."""
        name = self.rng.choice(self.config.connection.databases)
        if not self._is_noticed(name):
            return
        if not self.server.replicas:
            self.lag_behind()
        if self.rng.random() < 0.5:
            self.server.replicas.stop()
        self._note_unsure(name)
        self.server.fail_over(name)
        self.say(f"another server takes {name} over, on fork {self.server.forks[name]}")

    def note_unsure(self) -> None:
        """Rows are about to be read, perhaps of a secondary that does not know yet that another server has taken its database over."""
        for name in self.server.fail_overs:
            if state_of(self.config).log(name).fork != self.server.forks[name].identity:
                self._note_unsure(name)

    def _note_unsure(self, name: str) -> None:
        if self._is_being_read(name):
            self.unsure.add(name)
            self.hurt |= {table for table in [*self.tables, *self.signal_tables] if table.database == name}

    def _is_being_read(self, name: str) -> bool:
        """Whether nobody knows yet until where in the log rows of a snapshot were read: then the product cannot know that none is lost."""
        state = state_of(self.config)
        own = [one for table, found in state.readings.items() if table.database == name for one in found]
        return name in state.snapshots or any(one.high is None for one in own)

    def check_fail_overs(self) -> None:
        """Nothing is lost by them, and nobody says so."""
        restored = {past.database for past in self.server.pasts}
        for name in set(self.server.fail_overs) - restored - self.unsure:
            told = state_of(self.config).log(name).restored
            assert not told, f"{name} was taken over by another server, and is told to be restored: {told}"

    def _settle(self) -> None:
        """Nothing waits, and nobody is in the middle of anything: only so is it noticed by its LSNs alone."""
        known, self.is_calm = self.is_calm, True
        self.end_faults()
        self.server.is_prompt = True
        self.end()
        self.run_alone("capture")
        self.is_calm = known

    def _is_noticed(self, name: str) -> bool:
        """Whether the newest restore of a database was noticed."""
        log = state_of(self.config).log(name)
        fork = self.server.recovery_fork(name)
        return bool(log.restored) or fork is None or fork.identity == log.fork

    def _forget_requests(self, name: str) -> None:
        """Nobody asks any more what became of signals that a restore may have taken away."""
        for own_id, request in list(self.asked.items()):
            if any(table.database == name for table in [*request.above, *request.positions]):
                del self.asked[own_id]

    def calm(self) -> None:
        """Often the LSNs have passed what was lost."""
        if not all(map(self._is_noticed, self.backups)):
            self.end_faults()
            self.run_alone("capture")
        if self.rng.random() < 0.7:
            self.pass_lost()
        super().calm()

    def pass_lost(self) -> None:
        """The LSNs of all databases pass those that they had before a restore, if that was noticed."""
        for name in {past.database for past in self.server.pasts if self._is_noticed(past.database)}:
            pasts = [past for past in self.server.pasts if past.database == name]
            passed = max(int(past.end) for past in pasts) - min(int(past.point) for past in pasts)
            for _ in range(1 + (passed >> 16)):
                self.server.tick(name)
            self.server.scan(name)

    def end_restores(self) -> None:
        """What was restored is noticed and told; from now on tables can be read again."""
        if self.server.pasts or self.server.fail_overs:
            self.run_alone("capture")
            self.check_fail_overs()
            self.check_restores_told()
            self.pass_lost()

    def never_read(self) -> list[TableId]:
        """Tables of restored databases that were never read: they are read when somebody asks for it, as he is told."""
        state = state_of(self.config)
        tables = [table for table in [*self.tables, *self.signal_tables] if table not in state.tables]
        return [table for table in tables if state.log(table.database).restored]

    def begin_there(self, tables: Collection[TableId]) -> None:
        """The capture of tables of which no rows are read begins where it is now; of others it began at their READs."""
        state = state_of(self.config)
        for table in tables:
            if (entry := state.tables.get(table)) is not None and entry.position is not None:
                self.read_from.setdefault(table, entry.position)

    def check_restores_told(self) -> None:
        """A table with changes that the server has no more is not healthy, unless they are told."""
        for table, entry in state_of(self.config).tables.items():
            lost: Collection[str] = self.lost.get(table, ())
            if entry.status == "healthy":
                self.check_told(table, entry, lost, f"{table} (healthy)")
