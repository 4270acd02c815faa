"""Random workloads, crashes, clean-ups and hand-overs against the law.

`CDC_LAW_EXAMPLES` sets how many of them are tried.
"""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cdc_assets.ledger import manifest_rows
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.e2e.chains import CHECKPOINT
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.histories import CLEAN_UP, HAND_OVER, STREAM, WORK, World, play, run
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import check, state_of

LAW = settings(
    max_examples=int(os.environ.get("CDC_LAW_EXAMPLES", "12")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes minutes: each example writes real tables
)


@pytest.mark.law
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


@pytest.mark.law
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


def test_each_step_of_a_stream_may_be_the_last_also_of_folding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_rows, "_CHECKPOINT_EVERY", 2)
    world, reached = World(str(tmp_path)), set[str]()
    run(world.server, world.config, None, "snapshot")
    for cut in range(1, 60):
        for picks in ([1, 2, 3], [4, 5]):
            world.work(picks)
        died = run(world.server, world.config, cut, "stream")
        reached.add(died)
        if not died:
            break
    assert "" in reached
    for step in {*CHECKPOINT} - reached:  # which step is the n-th depends on how often the record is folded
        for picks in ([1, 2, 3], [4, 5]):
            world.work(picks)
        with pytest.raises(PowerCutError), cut_at(step):
            make_capture(world.server, world.config).stream()
    run(world.server, world.config, None, "stream")
    check(world.server, world.config, world.made)
