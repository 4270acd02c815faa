"""Every event example of the connectors' published pages comes out of the lake as it went in."""

import json
from pathlib import Path
from typing import Any

import pytest

from cdc_assets_tests.unit.connectors.reader.trial import Trial

EXAMPLES: dict[str, Any] = json.loads((Path(__file__).parents[3] / "golden" / "documents-2.1.json").read_text())
ROWS = ("create", "update", "delete")


def in_full(payload: dict[str, Any]) -> dict[str, Any]:
    """With the null that an optional field has that an example leaves out."""
    return {"before": None, "after": None} | payload


@pytest.mark.parametrize("database", ["mysql", "oracle"])
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_examples_come_out_as_they_went_in(tmp_path: Path, database: str, packed: str) -> None:
    trial, key = Trial(tmp_path, files__topic="customers"), EXAMPLES[f"{database}-key"]
    names = [name for name in (*ROWS, "truncate") if "schema" in EXAMPLES[f"{database}-{name}"]]
    events = [(None if name == "truncate" else key, EXAMPLES[f"{database}-{name}"]) for name in names]
    events.insert(3, (key, None))  # the tombstone, of which the pages tell without an example
    trial.write(f"a.json{packed}", *({"key": key, "value": value} for key, value in events))
    trial.run()
    found = trial.held("customers", schemas=True)
    assert [(event["key"], event["value"]) for event in found] == [
        (key, value and {**value, "payload": in_full(value["payload"])}) for key, value in events
    ]


@pytest.mark.parametrize("name", EXAMPLES)
def test_payloads_without_schemas_come_out_as_they_went_in(tmp_path: Path, name: str) -> None:
    trial, payload = Trial(tmp_path, files__topic="t"), EXAMPLES[name]["payload"]
    trial.write("a.json", {"key": None, "value": payload})
    trial.run()
    [event] = trial.held("t")
    assert without_nulls(event["value"]) == without_nulls(payload)


def without_nulls(value: Any) -> Any:
    """What was never anything but null has no type without a schema, and so no column."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return value
