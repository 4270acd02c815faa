"""Transforms make what the classes of Debezium and Kafka Connect make of the same events, byte for byte."""

import json
from typing import Any

import pytest

from cdc_assets_tests.unit.publish.transforms.rendered import results, with_schemas
from cdc_assets_tests.unit.publish.transforms.trials import GOLDEN, TRIALS, Trial

MADE: dict[str, Any] = json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
def test_what_comes_out_is_what_java_makes(trial: Trial) -> None:
    expected = [with_schemas(result, MADE["schemas"]) for result in MADE["trials"][trial.name]]
    found = results(trial)
    assert len(found) == len(expected)
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        if theirs is not None and "error" in theirs:
            assert "error" in mine, number
            continue
        assert (mine is None) == (theirs is None), number
        for name in theirs or ():
            if isinstance(theirs[name], dict):
                assert "error" in mine[name], (number, name)
            else:
                assert mine[name] == theirs[name], (number, name)
