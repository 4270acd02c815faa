"""What each snapshot mode decides (spec debezium-sqlserver §2.1)."""

from dataclasses import replace
from typing import Any, get_args

import pytest

from cdc_assets.config.settings import SnapshotMode, SnapshotSettings
from cdc_assets.config.snapshot_modes import RULES, Situation, decide

FIRST, LATER = Situation(False, has_history=False), Situation(True)
LOST, FORGOTTEN, DONE = Situation(True, available=False), Situation(True, has_history=False), Situation(True, done=True)
SITUATIONS = {"first": FIRST, "later": LATER, "lost": LOST, "forgotten": FORGOTTEN, "done": DONE}

NONE, STRUCTURE, ROWS = (False, False), (True, False), (True, True)
TABLE: dict[str, tuple[bool, dict[str, tuple[bool, bool]]]] = {
    # mode: streams, and per situation: structure, rows
    "always": (True, dict.fromkeys(SITUATIONS, ROWS) | {"done": NONE}),
    "initial": (True, dict.fromkeys(SITUATIONS, NONE) | {"first": ROWS}),
    "initial_only": (False, dict.fromkeys(SITUATIONS, NONE) | {"first": ROWS}),
    "no_data": (True, dict.fromkeys(SITUATIONS, NONE) | {"first": STRUCTURE}),
    "recovery": (True, dict.fromkeys(SITUATIONS, STRUCTURE) | {"done": NONE}),
    "when_needed": (True, dict.fromkeys(SITUATIONS, ROWS) | {"later": NONE, "done": NONE}),
    "when_needed_no_data": (True, dict.fromkeys(SITUATIONS, STRUCTURE) | {"later": NONE, "done": NONE}),
}


@pytest.mark.parametrize("mode", TABLE)
def test_mode(mode: SnapshotMode) -> None:
    streams, expected = TABLE[mode]
    decisions = {name: decide(SnapshotSettings(mode=mode), situation) for name, situation in SITUATIONS.items()}
    assert {name: (decision.schema, decision.data) for name, decision in decisions.items()} == expected
    assert {decision.stream for decision in decisions.values()} == {streams}
    assert all(mode in decision.reason for decision in decisions.values())


@pytest.mark.parametrize(
    ("booleans", "expected"),
    [
        ({"data": True}, dict.fromkeys(SITUATIONS, ROWS) | {"done": NONE}),
        ({"schema": True}, dict.fromkeys(SITUATIONS, STRUCTURE) | {"done": NONE}),
        ({"schema": True, "on_data_error": True}, dict.fromkeys(SITUATIONS, STRUCTURE) | {"done": NONE, "lost": ROWS}),
        ({"start_stream": True}, dict.fromkeys(SITUATIONS, NONE) | {"first": STRUCTURE}),
        (
            {"start_stream": True, "on_schema_error": True},
            dict.fromkeys(SITUATIONS, NONE) | {"first": STRUCTURE, "forgotten": STRUCTURE},
        ),
        (
            {"start_stream": True, "on_data_error": True},
            dict.fromkeys(SITUATIONS, NONE) | {"first": STRUCTURE, "lost": ROWS},
        ),
    ],
)
def test_mode_of_five_booleans(booleans: dict[str, Any], expected: dict[str, tuple[bool, bool]]) -> None:
    settings = replace(SnapshotSettings(mode="configuration_based"), **booleans)
    decisions = {name: decide(settings, situation) for name, situation in SITUATIONS.items()}
    assert {name: (decision.schema, decision.data) for name, decision in decisions.items()} == expected
    assert {decision.stream for decision in decisions.values()} == {booleans.get("start_stream", False)}


def test_every_mode_has_a_rule() -> None:
    assert {*RULES, "configuration_based"} == set(get_args(SnapshotMode))
