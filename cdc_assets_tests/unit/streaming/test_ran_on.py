"""Each window and round says where its jobs ran, and the manifest where those of the run did."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cdc_assets.core.jobs import Job
from cdc_assets.core.ran_on import NOWHERE, RanOn
from cdc_assets.errors import ConnectionLostError
from cdc_assets.ledger.fold import decode_state, encode_state
from cdc_assets.shared.progress import Progress
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.loop_runner import LoopRunner
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer


class FakeSpark(LoopRunner):
    """Runs tasks as Spark would, as far as is told; the first job of windows fails."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[str] = []

    def run(self, function: Callable[..., object], tasks: Sequence[object], job: Job) -> list:  # type: ignore[type-arg]
        if tasks:
            self.jobs.append(str(job))
            job.note(RanOn("local[2]", "local-1", jobs=1, tasks=len(tasks)))
        if len(self.jobs) == 2:
            raise ConnectionLostError("the server is gone")
        return super().run(function, tasks, job)


@pytest.mark.parametrize("spark", [True, False])
def test_windows_and_rounds_say_where_they_ran(tmp_path: Path, spark: bool) -> None:
    server, done = SimulatedServer(), list[Progress]()
    orders = server.create("orders", rows=3)
    server.idle_tick()
    config = make_config(str(tmp_path))
    runner: LoopRunner = FakeSpark() if spark else LoopRunner()
    capture = make_capture(server, config, runner, on_progress=done.append)
    capture.snapshot()
    for key in (10, 11):
        server.commit((orders, "insert", key, "a"))
        capture.stream()

    assert [progress.kind for progress in done] == ["snapshot", "stream", "stream"]
    if isinstance(runner, FakeSpark):
        assert [progress.ran_on.jobs for progress in done] == [1, 2, 1]  # the first window was tried twice
        assert runner.jobs[0] == "shop: snapshot round 2: SalesDb.dbo.orders"
        assert runner.jobs[-1].startswith("shop: window 4: ")
    else:
        assert [str(progress.ran_on) for progress in done] == ["this process: 1 task (a simulation)"] * 3
    recorded = state_of(config)
    assert set(recorded.ran_on) == {"snapshot", "window"}
    assert recorded.ran_on["window"] == sum((progress.ran_on for progress in done[1:]), NOWHERE)
    assert decode_state(encode_state(recorded)) == recorded
    make_capture(server, config).claim()
    assert state_of(config).ran_on == recorded.ran_on
