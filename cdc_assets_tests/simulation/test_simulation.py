"""Random histories of everything at once.

The default run plays one fixed seed, and `make test-long` two more. `CDC_SIMULATE=FROM:TO` plays these instead; with
`CDC_SIMULATE_MINUTES` each of two workers plays one after the other, from a seed on (`CDC_SIMULATE_FROM`), for so long.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import cdc_assets
from cdc_assets_tests.simulation import shrink
from cdc_assets_tests.simulation.former_faults import FORMER_FAULTS
from cdc_assets_tests.simulation.playing import alone, play
from cdc_assets_tests.simulation.safeguards import MUTANTS, Mutant
from cdc_assets_tests.simulation.world import World

FIXED = (2, 5, 7)
ON_DELTA_RS = 7
WORKERS = 2
_SHOWN = 150
_HEALTHY = 0.3
"""Share of the looks that find the capture healthy; of looks that never do, the law of what is healthy says nothing."""
_LOOKS: dict[int, Counter[str]] = {}
"""What was said of the capture, by seed."""


def _seeds() -> list[Any]:
    first, _, end = os.environ.get("CDC_SIMULATE", "").partition(":")
    if first:
        return list(range(int(first), int(end or int(first) + 1)))
    return [FIXED[0], *(pytest.param(seed, marks=pytest.mark.long) for seed in FIXED[1:])]


def check(folder: Path, seed: int, *, on_delta_rs: bool = False) -> World:
    """One history; a failing one is told with its end."""
    with alone(on_delta_rs=on_delta_rs):
        world, fault = play(folder, seed)
    if fault is not None:
        said = "\n".join(world.said if os.environ.get("CDC_SIMULATE") else world.said[-_SHOWN:])
        again = f"CDC_SIMULATE={seed} plays it again, python -m {shrink.__name__} {seed} makes it shorter."
        raise pytest.fail.Exception(f"seed {seed}: {type(fault).__name__}: {fault}\n{said}\n{again}") from fault
    _LOOKS[seed] = world.looks
    return world


@pytest.mark.parametrize("seed", _seeds())
def test_law_holds(tmp_path: Path, seed: int) -> None:
    check(tmp_path, seed)


@pytest.mark.long
def test_looks_often_find_the_capture_healthy(tmp_path: Path) -> None:
    for seed in set(FIXED) - _LOOKS.keys():
        folder = tmp_path / str(seed)
        folder.mkdir()
        check(folder, seed)
    found = sum((_LOOKS[seed] for seed in FIXED), Counter[str]())
    assert found["healthy"] >= _HEALTHY * found.total(), found


_STAMP = re.compile(r"\b\d{14}-")
"""The machine's time, in names of files of requests."""


@pytest.mark.long
def test_a_history_is_the_same_on_delta_rs(tmp_path: Path) -> None:
    said = []
    for name, on_delta_rs in (("quick", False), ("delta", True)):  # of one length, since what is said is cut
        folder = tmp_path / name
        folder.mkdir()
        world = check(folder, ON_DELTA_RS, on_delta_rs=on_delta_rs)
        said.append([_STAMP.sub("", line.replace(str(folder), "")) for line in world.said])
    assert said[0] == said[1]


@pytest.mark.skipif("CDC_SIMULATE_MINUTES" not in os.environ, reason="make simulate plays for minutes")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("worker", range(WORKERS))
def test_law_holds_for_minutes(worker: int) -> None:
    minutes = float(os.environ["CDC_SIMULATE_MINUTES"])
    until, seed = time.perf_counter() + 60 * minutes, int(os.environ.get("CDC_SIMULATE_FROM", "1000")) + worker
    played, cores = 0, sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[worker % len(cores)]})  # threads that take turns do so a fifth faster on one core
    while time.perf_counter() < until:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            check(Path(folder), seed)
        played, seed = played + 1, seed + WORKERS
    print(f"{played} histories hold, the last one of seed {seed - WORKERS}")  # noqa: T201


@pytest.mark.parametrize("mutant", [*MUTANTS, *FORMER_FAULTS], ids=lambda mutant: mutant.what)
def test_each_mutant_is_of_the_product_as_it_is(mutant: Mutant) -> None:
    # one that is found by a name that is not there proves nothing
    names = [sys.executable, "-m", "ruff", "check", "--isolated", "--quiet", "--select", "F821", "-"]
    for path, before, after in mutant.edits:
        text = (Path(cdc_assets.__file__).parent / path).read_text()
        assert text.count(before) == 1
        checked = subprocess.run(names, input=text.replace(before, after), text=True, check=False, capture_output=True)
        assert checked.returncode == 0, checked.stdout


def test_a_history_is_shrunk_to_what_it_needs() -> None:
    def failure(without: frozenset[int]) -> str:
        return "" if without & {17, 340} else "both happened"

    assert list(shrink.shrunk(500, failure, 200)) == [17, 340]
