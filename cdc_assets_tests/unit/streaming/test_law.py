"""Random workloads, crashes, clean-ups and hand-overs against the law."""

import tempfile
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.core.steps import listening
from cdc_assets_tests.crashes import PowerCutError, cut_after
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import check, state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer, make_capture, make_config


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


LAW = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes minutes: each example writes real tables
)


@LAW
@given(
    snapshot_cuts=st.lists(st.integers(1, 10), max_size=2),
    events=st.lists(st.one_of(WORK, WORK, STREAM, HAND_OVER), min_size=3, max_size=12),
)
def test_every_change_once_in_order_whatever_dies(snapshot_cuts: list[int], events: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as path:
        world = World(path)
        for cut in snapshot_cuts:
            run(world.server, world.config, cut, "snapshot")
            world.work([1, 2, 3])
        run(world.server, world.config, None, "snapshot")
        play(world, events)
        run(world.server, world.config, None, "stream")
        check(world.server, world.config, world.made)
        assert all(entry.status == "healthy" for entry in state_of(world.config).tables.values())


@LAW
@given(
    policy=st.sampled_from(["fail", "ignore"]),
    events=st.lists(st.one_of(WORK, WORK, STREAM, CLEAN_UP), min_size=4, max_size=12),
)
def test_what_was_cleaned_up_unread_is_marked_exactly(policy: str, events: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as path:
        world = World(path, gap_policy=policy)
        run(world.server, world.config, None, "snapshot")
        play(world, events)
        run(world.server, world.config, None, "stream")
        check(world.server, world.config, world.made)


@pytest.mark.parametrize("cut", range(1, 16))
def test_each_step_of_a_snapshot_may_be_the_last(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    world = World(str(tmp_path_factory.mktemp("lake")))
    run(world.server, world.config, cut, "snapshot")
    run(world.server, world.config, None, "snapshot")
    for table, rows in zip(world.tables, (4, 7), strict=True):
        events = events_of(world.config, table)
        assert sorted(event.key for event in events) == list(range(1, rows + 1))
    markers = [event.marker for table in world.tables for event in events_of(world.config, table)]
    assert markers[0] == "first"
    assert markers[3] == "last_in_data_collection"
    assert markers[4] == "first_in_data_collection"
    assert markers[-1] == "last"
    assert markers.count("true") == 7
