"""Random histories of a simulated server: work, hand-overs, clean-ups, and runs that die."""

from collections.abc import Sequence

from hypothesis import strategies as st

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.core.steps import listening
from cdc_assets_tests.crashes import PowerCutError, cut_after
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer


def run(server: SimulatedServer, config: CaptureConfig, cut: int | None, what: str) -> str:
    """A process that snapshots or streams; the step at which it died, if it did."""
    with listening(cut_after(cut or 0)):
        capture = make_capture(server, config)
        try:
            capture.snapshot() if what == "snapshot" else capture.stream()
        except PowerCutError as died:
            return str(died)
    return ""


class World:
    """A server with two tables, and what happens to it."""

    def __init__(self, path: str, **changes: object) -> None:
        self.server = SimulatedServer()
        self.config = make_config(path, max_iteration_transactions=3, slices=2, **changes)
        self.tables = [self.server.create("lines", rows=4), self.server.create("orders", rows=7)]
        self.server.idle_tick()
        self.made: list[CaptureInstance] = list(self.server.instances)
        self.next_key = 100

    def work(self, picks: Sequence[int]) -> None:
        """A transaction of so many changes, each chosen by a number."""
        changes: list[tuple[TableId, str, int, str]] = []
        alive = {table: set(self.server.rows[table]) for table in self.tables}
        for pick in picks:
            table = self.tables[pick % 2]
            what = ("insert", "update", "delete", "update")[pick // 2 % 4]
            if what == "insert" or not alive[table]:
                self.next_key += 1
                changes.append((table, "insert", self.next_key, f"note {pick}"))
                alive[table].add(self.next_key)
            else:
                key = sorted(alive[table])[pick % len(alive[table])]
                changes.append((table, what, key, f"note {pick}"))
                if what == "delete":
                    alive[table].discard(key)
        self.server.commit(*changes)

    def hand_over(self, pick: int) -> None:
        """A second instance with one column more; before a third, the oldest is dropped, once it was read."""
        table = self.tables[pick % 2]
        own = [instance for instance in self.server.instances if instance.table == table]
        if len(own) == 2:
            self.server.idle_tick()
            run(self.server, self.config, None, "stream")
            self.server.disable(own[0].name)
        self.server.add_column(table, f"extra_{len(self.made)}")
        self.made.append(self.server.enable(table, f"dbo_{table.table}_{len(self.made)}"))

    def clean_up(self, pick: int) -> None:
        """Remove the oldest part of the log."""
        commits = self.server.transactions
        if commits:
            self.server.clean_up(commits[pick % len(commits)])


WORK = st.tuples(st.just("work"), st.lists(st.integers(0, 63), min_size=1, max_size=6))
STREAM = st.tuples(st.just("stream"), st.one_of(st.none(), st.integers(1, 12)))
HAND_OVER = st.tuples(st.just("hand over"), st.integers(0, 1))
CLEAN_UP = st.tuples(st.just("clean up"), st.integers(0, 20))


def play(world: World, events: Sequence[tuple[str, object]]) -> None:
    for what, detail in events:
        if what == "work":
            world.work(detail)  # type: ignore[arg-type]
        elif what == "hand over":
            world.hand_over(detail)  # type: ignore[arg-type]
        elif what == "clean up":
            world.clean_up(detail)  # type: ignore[arg-type]
        else:
            run(world.server, world.config, detail, "stream")  # type: ignore[arg-type]
