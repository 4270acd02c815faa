"""The golden files, and two tables that their events are of."""

import json
from pathlib import Path
from typing import Any

from cdc_assets_tests.unit.envelope.building import column

GOLDEN = Path(__file__).parents[2] / "golden"
CUSTOMERS = [
    column("id", "int", nullable=False, identity=True),
    column("name", "varchar", nullable=False, length=50),
    column("created", "datetime2", scale=7),
    column("amount", "decimal", precision=10, scale=2),
]
ORDERS = [
    column("oid", "int", nullable=False),
    column("customer", "int", nullable=False),
    column("note", "nvarchar", length=40),
    column("qty", "int"),
]


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def same(actual: Any, expected: Any) -> None:
    """Equal in value and in the order of all fields."""
    assert actual == expected
    assert json.dumps(actual) == json.dumps(expected)
