"""The capture process of `python -m demo run`: both jobs of the shop through Dagster, in one process and one JVM.

Dagster's console log goes to the standard output; `demo.cli` shows the part that is meant for users.
"""

import sys
from collections.abc import Mapping
from typing import Any

import dagster as dg

from cdc_assets.adapters.spark.session import stop_spark
from cdc_assets.cli.console import DEFAULT_CONFIG
from cdc_assets.config.load import configured_files, load_config
from cdc_assets.defs.build import build_definitions
from cdc_assets.defs.names import Names
from cdc_assets.defs.partitions import all_ranges, range_partitions
from demo.cli import SNAPSHOT_DONE

_IDLE_S = 3.0


def main() -> None:
    """Run the snapshot job for tables that need it, then stream until there are no changes."""
    (file,) = configured_files(DEFAULT_CONFIG)
    config = load_config(file)
    names = Names(config.name)
    definitions = build_definitions(file)
    ranges = all_ranges(range_partitions(config.snapshot.partitions))
    with dg.DagsterInstance.get() as instance:
        _execute(definitions, instance, names.snapshot, {names.snapshot_op: {"due_only": True}}, ranges)
        sys.stdout.write(f"{SNAPSHOT_DONE}\n")
        sys.stdout.flush()
        _execute(definitions, instance, names.changes, {names.changes_op: {"idle_timeout_s": _IDLE_S}}, {})
    stop_spark()


def _execute(
    definitions: dg.Definitions,
    instance: dg.DagsterInstance,
    job: str,
    steps: Mapping[str, Mapping[str, Any]],
    tags: Mapping[str, str],
) -> None:
    run_config = {"ops": {name: {"config": dict(values)} for name, values in steps.items()}}
    result = definitions.resolve_job_def(job).execute_in_process(
        run_config=run_config, instance=instance, tags=dict(tags), raise_on_error=False
    )
    if not result.success:
        sys.exit(1)


if __name__ == "__main__":
    main()
