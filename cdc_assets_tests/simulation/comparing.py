"""Comparisons of mirrors with the server, and rows that changed behind the log.

- A comparison finds no difference in a table of which every change is in the log, whatever runs beside it.
- Tables with other changes have mirrors like the server's rows once a comparison has repaired them; of their history nothing is asked.
"""

from collections import Counter
from collections.abc import Callable

from cdc_assets.core.identifiers import TableId
from cdc_assets.reconcile.progress import Pass
from cdc_assets.reconcile.run import Reconciler, Wishes
from cdc_assets_tests.simulation import law
from cdc_assets_tests.simulation.asked import Asked, AskedBulk, TurnClock
from cdc_assets_tests.simulation.processes import Processes
from cdc_assets_tests.simulation.scheduler import Scheduler
from cdc_assets_tests.simulation.server import LaggingServer, pair
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.loop_runner import LoopRunner


class BusyClock(TurnClock):
    """Something is done where time passes."""

    def __init__(self, server: LaggingServer, scheduler: Scheduler, meanwhile: Callable[[], None]) -> None:
        super().__init__(server, scheduler)
        self._meanwhile = meanwhile

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._meanwhile()


class Comparing(Processes):
    """Compares tables, and holds what is found against the law."""

    def behind_the_log(self) -> None:
        """Rows change that no log records, as a partition does that is switched in."""
        table = self.rng.choice(self.tables)
        rows = self.server.rows[table]
        if self.server.locked[table] or not rows:
            return
        self.touched.add(table)
        key, what = self.rng.choice(sorted(rows)), self.rng.choice(["changes", "goes"])
        self.say(f"row {key} of {table} {what} behind the log")
        if what == "goes":
            del rows[key]
        else:
            rows[key]["note"] = f"silent {self.rng.randrange(2)}"

    def reconcile(self) -> None:
        """A table is compared with the server."""
        table = self.rng.choice(self.tables)
        self.compare(table, Wishes(self.rng.choice([None, 1]), repair=self.rng.random() < 0.5, timeout_s=5.0))

    def compare(self, table: TableId, wishes: Wishes, meanwhile: Callable[[], None] = lambda: None) -> Pass:
        """A comparison, and what it may say.

        Args:
            meanwhile: called whenever it has waited for a while.
        """
        server, bulk = Asked(self.server, self.scheduler), AskedBulk(self.server, scheduler=self.scheduler)
        known = self._is_as_before(table), self.server.breaks(table.database)
        clock = BusyClock(self.server, self.scheduler, meanwhile)
        reconciler = Reconciler(self.config, server, bulk, LoopRunner(), clock, self.mirrors())  # type: ignore[arg-type]
        found = reconciler.reconcile(table, wishes)
        self.say(f"  {table} is compared: {found.summary}")
        if known == (True, self.server.breaks(table.database)) and not self._is_unread(table):
            assert table in self.touched or not found.differing, f"{table} differs from the server: {found.first}"
        return found

    def _is_unread(self, table: TableId) -> bool:
        """Whether another reader has delivered its rows, and no snapshot has read them: its mirror lacks them."""
        return table in self.delivered and not self.mirrors().states()[self.topic(table)].begin

    def _is_as_before(self, table: TableId) -> bool:
        """Whether no restore has taken anything of a table, or it was read again since."""
        entry = state_of(self.config).tables.get(table)
        if entry is None or not self.server.pasts_of(table):
            return True
        return (
            entry.streams
            and self.server.forks[table.database].identity == state_of(self.config).log(table.database).fork
        )

    def repair(self) -> None:
        """Tables that changed behind the log are repaired, while somebody captures."""
        for table in sorted(self.touched):
            self.compare(table, Wishes(repair=True, anew=True), self.capture)

    def check_repaired(self) -> None:
        """Their mirrors are the server's rows."""
        for table in sorted(self.touched):
            current = law.current_of(self.lake, self.topic(table), self.files)
            rows = Counter(map(pair, self.server.rows[table].values()))
            assert current == rows, f"{table} was repaired; its mirror has {current - rows}, lacks {rows - current}"
