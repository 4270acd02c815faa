"""The capture process of `python -m demo mysql`: the shop's changes through Dagster, the first snapshot included.

Dagster's console log goes to the standard output; `demo.mysql` shows the part that is meant for users.
"""

import sys

import dagster as dg

from cdc_assets.config.engine import load_engine_config
from cdc_assets.defs.build import build_definitions
from cdc_assets.defs.names import Names
from demo.mysql import CONFIGURATION

_IDLE_S = 5.0


def main() -> None:
    """Run the connector until there are no changes."""
    names = Names(load_engine_config(CONFIGURATION).name)
    definitions = build_definitions(CONFIGURATION)
    with dg.DagsterInstance.get() as instance:
        result = definitions.resolve_job_def(names.changes).execute_in_process(
            run_config={"ops": {names.changes_op: {"config": {"idle_timeout_s": _IDLE_S}}}},
            instance=instance,
            raise_on_error=False,
        )
    sys.exit(0 if result.success else 1)


if __name__ == "__main__":
    main()
