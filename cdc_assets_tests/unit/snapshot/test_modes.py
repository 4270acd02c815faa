"""What each snapshot mode decides (spec debezium-sqlserver §2.1)."""

from typing import get_args

import pytest

from cdc_assets.config.settings import SnapshotMode
from cdc_assets.snapshot.modes import RULES, decide

FIRST, LATER, GONE = {"has_position": False}, {"has_position": True}, {"has_position": True, "available": False}

CASES = [
    ("initial", FIRST, (True, True, True)),
    ("initial", LATER, (False, False, True)),
    ("initial", GONE, (False, False, True)),
    ("initial_only", FIRST, (True, True, False)),
    ("initial_only", LATER, (False, False, False)),
    ("no_data", FIRST, (True, False, True)),
    ("no_data", LATER, (False, False, True)),
    ("always", LATER, (True, True, True)),
    ("always", LATER | {"done_in_run": True}, (False, False, True)),
    ("when_needed", LATER, (False, False, True)),
    ("when_needed", GONE, (True, True, True)),
    ("when_needed_no_data", GONE, (True, False, True)),
    ("recovery", LATER, (True, False, True)),
]


@pytest.mark.parametrize(("mode", "situation", "expected"), CASES)
def test_decision(mode: SnapshotMode, situation: dict[str, bool], expected: tuple[bool, bool, bool]) -> None:
    decision = decide(mode, **situation)
    assert (decision.schema, decision.data, decision.stream) == expected
    assert mode in decision.reason


def test_every_mode_has_a_rule() -> None:
    assert set(RULES) == set(get_args(SnapshotMode))
