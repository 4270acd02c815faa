"""Random histories of everything at once.

`CDC_SIMULATE` plays these seeds, `FROM:TO`, in place of the few of the default run.
"""

import os
from pathlib import Path

import pytest

from cdc_assets.publish import follow
from cdc_assets_tests.simulation.serial import without_threads
from cdc_assets_tests.simulation.world import World

_FIRST, _, _END = os.environ.get("CDC_SIMULATE", "0:5").partition(":")
TURNS = int(os.environ.get("CDC_SIMULATE_TURNS", "600"))


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)
    monkeypatch.setattr(follow, "_AFTER_FENCE_S", 0.0)


@pytest.mark.parametrize("seed", range(int(_FIRST), int(_END)))
def test_law_holds(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    try:
        world.play(TURNS)
    except BaseException as fault:  # noqa: BLE001 - told with the history
        pytest.fail(f"seed {seed}: {type(fault).__name__}: {fault}\n" + "\n".join(world.said[-120:]), pytrace=True)
