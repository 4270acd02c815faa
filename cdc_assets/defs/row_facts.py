"""Metadata of every materialization about rows by operation and where jobs ran."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from cdc_assets.core.ran_on import RanOn

OPERATIONS = {
    "r": "reads",
    "c": "creates",
    "u": "updates",
    "d": "deletes",
    "t": "truncates",
    "tombstone": "tombstones",
}
"""Name in metadata of each envelope `op` (`rows_creates`)."""


def rows_facts(rows: Mapping[str, int]) -> dict[str, int]:
    """Metadata about rows by operation."""
    named = {f"rows_{OPERATIONS.get(op, op)}": count for op, count in sorted(rows.items())}
    return {"rows": sum(rows.values()), **named}


def ran_on_facts(ran_on: RanOn) -> dict[str, Any]:
    """Metadata about where jobs ran, with a link to Spark's pages if it serves any."""
    facts: dict[str, Any] = {"ran_on": str(ran_on)}
    return facts | ({"spark_pages": dg.MetadataValue.url(ran_on.pages)} if ran_on.pages else {})
