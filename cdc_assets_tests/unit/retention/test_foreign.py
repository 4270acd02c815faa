"""Dropping and compacting beside other writers: nothing is announced or recorded that was not done, and no event comes twice."""

from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.steps import listening
from cdc_assets.errors import FencedError
from cdc_assets.lake import events
from cdc_assets.overview import CaptureOverview, report_of
from cdc_assets.overview.report import Trouble
from cdc_assets.retention import tasks
from cdc_assets_tests.unit.publish.memory import MemoryBroker
from cdc_assets_tests.unit.retention.world import HOURS, World, publish_all, require_published
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of

OF_THE_OTHER = {"delete": ("compaction-written", "topic-compacted"), "compact": ("topic-dropped",)}
"""Steps that a policy does not reach."""
AWAY = [Trouble("the server", "It is away.")]
TURNS = ([0, 1, 2, 3], [2, 3, 6, 7], [0, 1, 4, 5], [2, 3, 2, 3])


@pytest.fixture(scope="module", params=["delete", "compact"])
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(str(tmp_path_factory.mktemp("old") / "lake"), policy=request.param)
    for picks in TURNS:
        made.turn(picks)
    made.later(2 * HOURS)
    return made


@pytest.fixture
def world(old: World, tmp_path: Path) -> World:
    return old.copy(tmp_path / "lake")


def handle(world: World, table: TableId) -> DeltaTable:
    return DeltaTable(str(Path(world.config.lake.path) / world.topic(table)))


def optimize(world: World) -> None:
    for table in world.tables:
        with suppress(DeltaError):
            handle(world, table).optimize.compact()


def require_once(world: World) -> None:
    for table in world.tables:
        found = [event.position for event in events_of(world.config, table)]
        assert len(found) == len(set(found))
    world.check()
    assert not CaptureOverview(world.config, audit_s=None).losses


@pytest.mark.long
def test_what_could_not_be_removed_is_not_recorded_as_gone(world: World) -> None:
    """Another program rewrites the files between the record and the removal."""
    waiting = ["retention-announced"]
    marks = state_of(world.config).marks

    def rewrite(name: str) -> None:
        if name in waiting:
            waiting.remove(name)
            optimize(world)

    with listening(rewrite):
        world.stream()
    assert not waiting
    first = world.tables[0]
    assert len(events_of(world.config, first)) == len(world.ever[first]), "nothing went"
    assert not world.holds(first).compacted
    topic = world.topic(first)
    assert state_of(world.config).marks[topic].rows == marks[topic].rows
    require_once(world)
    world.turn([0, 1, 2, 3])
    world.later(2 * HOURS)
    world.stream()
    require_once(world)


@pytest.mark.long
def test_rows_that_users_appended_stay_when_a_topic_is_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no position, also if a rewrite has put them among events."""
    world = World(str(tmp_path), policy="compact")
    for picks in TURNS:
        world.turn(picks)
    table, rows = world.tables[0], pa.table({"position": pa.nulls(3, pa.string())})
    write_deltalake(handle(world, table), rows, mode="append", schema_mode="merge")
    handle(world, table).optimize.compact()
    for module in (events, tasks):
        monkeypatch.setattr(module, "_BATCH_ROWS", 2)
    for hours in (0, 2 * HOURS, 2 * HOURS):
        world.later(hours)
        world.work([0, 1, 2, 3])
        make_capture(world.server, world.config).stream()
        assert not world.mirror()
    assert world.holds(table).compacted
    assert handle(world, table).to_pyarrow_table(columns=["position"])["position"].null_count == 3


@pytest.mark.combinations
@pytest.mark.parametrize(
    ("mixed", "text"),
    [
        (False, None),
        (True, None),
        pytest.param(False, "0", marks=pytest.mark.long),
        (True, "0"),
        (False, "abc"),
        pytest.param(True, "abc", marks=pytest.mark.long),
    ],
)
def test_a_row_without_a_position_keeps_no_other_file(world: World, mixed: bool, text: str | None) -> None:
    """Somebody appends it, perhaps with a text that is none, and the capture joins its file with others; a page tells what stays for its
    sake."""
    is_compacted, table = world.config.lake.topic_policy == "compact", world.tables[0]
    row = pa.table({"position": pa.array([text], pa.string())})
    write_deltalake(handle(world, table), row, mode="append", schema_mode="merge")
    if mixed:
        world.compact()
    for hours in (0, 0, 2 * HOURS):
        world.later(hours)
        world.work([0, 1, 2, 3])
        make_capture(world.server, world.config).stream()
        assert not world.mirror()
    holds = world.holds(table)
    assert holds.after
    assert holds.after == (holds.compacted if is_compacted else str(world.server.transactions[-3]))
    assert handle(world, table).to_pyarrow_table(columns=["position"])["position"].to_pylist().count(text) == 1
    overview = CaptureOverview(world.config, audit_s=None)
    assert not overview.losses
    told = [text for text in report_of(overview, world.server.now, AWAY).advice if "no position" in text]
    assert len(told) == (not is_compacted)
    assert all(world.topic(table) in why and "Next: if these rows are not needed" in why for why in told)
    handle(world, table).delete("position IS NULL OR position NOT LIKE '%:%:%/%'")
    world.later(2 * HOURS)
    world.stream()
    assert not state_of(world.config).kept
    require_once(world)


@pytest.mark.long
def test_a_topic_from_which_another_program_has_deleted_is_compacted_and_read_further(
    tmp_path: Path,
) -> None:
    """It writes texts in another of Arrow's types."""
    world = World(str(tmp_path), policy="compact")
    table = world.tables[0]
    for picks in TURNS:
        world.turn(picks)
    write_deltalake(
        handle(world, table), pa.table({"position": pa.nulls(1, pa.string())}), mode="append", schema_mode="merge"
    )
    world.compact()
    handle(world, table).delete("position IS NULL")
    world.turn([0, 1])
    broker = MemoryBroker()
    publish_all(world, broker).record_offset()
    require_published(world, broker)
    world.later(2 * HOURS)
    world.stream()
    assert world.holds(table).compacted
    assert not state_of(world.config).kept
    world.rebuild(None)
    require_once(world)


@pytest.mark.combinations
@pytest.mark.parametrize(
    "step",
    [
        "compaction-written",
        "retention-recorded",
        "retention-announced",
        "replacement-checked",
        "topic-dropped",
        "topic-compacted",
    ],
)
@pytest.mark.parametrize("foreign", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_sleeper_loses_and_doubles_nothing(world: World, step: str, foreign: bool) -> None:
    """A run that is stopped at a step, and woken when another one has done its work."""
    waiting = [step]

    def overtake(name: str) -> None:
        if name in waiting:
            waiting.remove(name)
            if foreign:
                optimize(world)
            else:
                world.stream()
                world.turn([0, 1])

    with listening(overtake), suppress(FencedError):
        world.stream()
    assert bool(waiting) == (step in OF_THE_OTHER[world.config.lake.topic_policy])
    require_once(world)
    world.turn([0, 1, 2, 3])
    world.later(2 * HOURS)
    world.stream()
    require_once(world)
