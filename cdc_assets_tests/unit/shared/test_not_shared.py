"""Files that a task wrote where this process does not see them are never committed."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cdc_assets.core.jobs import Job
from cdc_assets.core.steps import listening
from cdc_assets.errors import LakeError
from cdc_assets.lake import presence
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.loop_runner import LoopRunner
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_LATE_S", 0.0)


def away(path: Path) -> None:
    path.rename(path.with_suffix(".elsewhere"))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


class OtherDisk(LoopRunner):
    """Runs tasks as a machine that has another disk at the lake's path, or one that is not written through."""

    def __init__(self, lake: Path, harm: Callable[[Path], object], topic: str = "*") -> None:
        super().__init__()
        self._lake, self._harm, self._topic = lake, harm, topic

    def run(self, function: Callable[..., object], tasks: Sequence[object], job: Job) -> list:  # type: ignore[type-arg]
        before = set(self._lake.glob("*/*.parquet"))
        results = super().run(function, tasks, job)
        for path in set(self._lake.glob(f"{self._topic}/w*.parquet")) - before:
            self._harm(path)
        return results


@pytest.mark.combinations
@pytest.mark.parametrize("harm", [away, cut])
@pytest.mark.parametrize(
    ("what", "topic"),
    [("snapshot", "*"), ("snapshot", "*.orders"), ("stream", "*"), ("stream", "*.orders"), ("stream", "*.transaction")],
)
def test_nothing_is_committed_and_nothing_lost(
    tmp_path: Path, what: str, topic: str, harm: Callable[[Path], object]
) -> None:
    server = SimulatedServer()
    tables = [server.create("lines", rows=3), server.create("orders", rows=3)]
    server.idle_tick()
    config = make_config(str(tmp_path), transaction_metadata=True)
    if what == "stream":
        make_capture(server, config).snapshot()
        server.commit(*((table, "insert", 50, "a") for table in tables))
    before = [events_of(config, table) for table in tables] if what == "stream" else None
    capture = make_capture(server, config, OtherDisk(tmp_path, harm, topic))
    with pytest.raises(
        LakeError, match=r"A task wrote w\d+-.*not shared between driver and executors.*lake\.path"
    ) as told:
        getattr(capture, what)()
    assert not told.value.retryable
    assert state_of(config).written is None, "nothing is recorded that is not there"
    if before is not None:
        assert [events_of(config, table) for table in tables] == before
    else:
        assert [(tmp_path / f"shop.{table}").exists() and events_of(config, table) for table in tables] == [[], []]

    make_capture(server, config).snapshot()
    assert make_capture(server, config).stream().troubled == ()
    for table in tables:
        found = events_of(config, table)
        assert {event.key for event in found} == set(server.rows[table])
        assert len({event.position for event in found}) == len(found)


def test_file_that_comes_late_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = SimulatedServer()
    orders = server.create("orders", rows=3)
    server.idle_tick()
    hidden: list[Path] = []

    def hide(path: Path) -> None:
        hidden.append(path.rename(path.with_suffix(".late")))

    def appear(_: float) -> None:
        for path in hidden:
            path.rename(path.with_suffix(".parquet"))
        hidden.clear()

    monkeypatch.setattr(presence.time, "sleep", appear)
    config = make_config(str(tmp_path))
    make_capture(server, config, OtherDisk(tmp_path, hide)).snapshot()
    assert len(events_of(config, orders)) == 3


def test_recorded_files_that_are_lost_before_their_commit_are_read_again(tmp_path: Path) -> None:
    server = SimulatedServer()
    lines, orders = server.create("lines", rows=3), server.create("orders", rows=3)
    server.idle_tick()
    config = make_config(str(tmp_path))

    def stop(step: str) -> None:
        if step == "round-written":
            raise KeyboardInterrupt

    with listening(stop), pytest.raises(KeyboardInterrupt):
        make_capture(server, config).snapshot()
    for path in (tmp_path / f"shop.{orders}").glob("*.parquet"):
        path.unlink()
    summary = make_capture(server, config).snapshot()
    assert {event.key for event in events_of(config, lines)} == {1, 2, 3}
    assert (set(summary.tables), summary.failed) == ({lines, orders}, ()), "it is read again"
    assert make_capture(server, config).stream().troubled == ()
    assert {event.key for event in events_of(config, orders)} == {1, 2, 3}
