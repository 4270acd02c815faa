"""All that is used of Dagster's private modules. Read at Dagster 1.13.27.

| name | why there is no public way |
|---|---|
| `DefinitionsLoadContext` | says whether definitions are loaded for a run, and passes what the load of the code location found out to that load: a run would query the server again for what its code location knows |
| `AssetCheckEvaluationTargetMaterializationData` | names the materialization to which a result belongs that is reported without a run; the public event takes one and exports no type for it |

`cdc_assets_tests/test_borrowed.py` keeps this list complete. Nothing of Dagster is changed.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData as Target,
)
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext


class CheckRecord(Protocol):
    """The newest record of a check, as `event_log_storage.get_latest_asset_check_execution_by_key` returns it."""

    @property
    def run_id(self) -> str:
        """The run that has planned or reported it; empty without a run."""

    @property
    def status(self) -> Any:
        """An enumeration; its `value` is `PLANNED`, `SUCCEEDED`, `FAILED`, …"""

    @property
    def evaluation(self) -> dg.AssetCheckEvaluation | None:
        """The result, or None if it was only planned."""

    @property
    def event(self) -> dg.EventLogEntry | None:
        """The event of it."""


def left_by_load() -> Mapping[str, Any] | None:
    """What the load of the code location has left for its runs; None if definitions are not loaded for a run."""
    context = DefinitionsLoadContext.get()
    return context.reconstruction_metadata if context.load_type.name == "RECONSTRUCTION" else None


def leave_for_runs(label: str, text: Callable[[], str]) -> None:
    """Pass a text to the loads of this code location's runs; it is not requested in other loads than the code location's."""
    context = DefinitionsLoadContext.get()
    if context.load_type.name == "INITIALIZATION":
        context.add_to_pending_reconstruction_metadata(label, text())


def newest_target(instance: dg.DagsterInstance, key: dg.AssetKey) -> Target | None:
    """An asset's newest materialization, as results of checks name it."""
    for found in instance.fetch_materializations(key, limit=1).records:
        return Target(storage_id=found.storage_id, run_id=found.event_log_entry.run_id, timestamp=found.timestamp)
    return None
