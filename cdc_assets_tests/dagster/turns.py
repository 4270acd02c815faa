"""Turns of runs that no process carries out."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg

from cdc_assets.defs.turns import Turns


def turns_of(instance: dg.DagsterInstance, run: dg.DagsterRun, what: str, step: str = "step") -> Turns:
    """The turns of a step of a run at one thing."""
    op = SimpleNamespace(op_handle=SimpleNamespace(name=step))
    context: Any = SimpleNamespace(instance=instance, run=run, log=logging.getLogger("turns"), op_execution_context=op)
    return Turns(cast("dg.AssetExecutionContext", context), what)
