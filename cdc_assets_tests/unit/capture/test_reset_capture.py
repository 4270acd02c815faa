"""A reset of a whole capture that dies between two of its folders."""

from datetime import timedelta
from pathlib import Path

import pytest

from cdc_assets.capture.reset import Reset
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.e2e.chains import RESET
from cdc_assets_tests.unit.capture.refusing import two
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedClock


@pytest.mark.parametrize("step", RESET)
@pytest.mark.parametrize("times", range(1, 6))
def test_one_that_died_is_repeated_and_the_capture_begins_anew(tmp_path: Path, step: str, times: int) -> None:
    server, config, lines, other = two(tmp_path)
    make_capture(server, config).stream()

    def reset() -> None:
        found = Reset(config, SimulatedClock(server))
        found.move_away(found.removal())

    with cut_at(step, times), pytest.raises(PowerCutError):
        reset()
    server.now += timedelta(seconds=1)  # each reset has a folder of its own, named after the second
    reset()
    capture = make_capture(server, config)
    capture.snapshot()
    capture.stream()
    for table in (lines, other):
        assert [(event.op, event.key) for event in events_of(config, table)] == [("r", 1), ("r", 2), ("r", 50)]
