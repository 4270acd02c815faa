"""A job that sends signals to a capture, such as requests for snapshots, from Dagster's launchpad."""

from collections.abc import Callable
from enum import Enum
from typing import Any

import dagster as dg
from pydantic import Field

from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.failures import as_failures
from cdc_assets.defs.names import Names
from cdc_assets.signals.model import ParsedSignal
from cdc_assets.signals.requests import ask, compose
from cdc_assets.signals.tables import EXPECTED


class SignalType(Enum):
    """Types of signals."""

    execute_snapshot = "execute-snapshot"
    stop_snapshot = "stop-snapshot"
    pause_snapshot = "pause-snapshot"
    resume_snapshot = "resume-snapshot"
    log = "log"


class SnapshotType(Enum):
    """How a snapshot reads its tables."""

    incremental = "incremental"
    blocking = "blocking"


class SignalConfig(dg.Config):
    """The signal to send."""

    type: SignalType = Field(default=SignalType.execute_snapshot, description="Type of the signal.")
    tables: list[str] = Field(
        default=[],
        description="Tables to read, or to stop reading: regular expressions for `database.schema.table` or "
        "`schema.table`, case-sensitive.",
    )
    snapshot: SnapshotType = Field(
        default=SnapshotType.incremental,
        description="`incremental`: while streaming continues; needs the signal table. `blocking`: the stream pauses.",
    )
    conditions: dict[str, str] = Field(
        default={},
        description="Rows to read, by such an expression: a predicate; for a blocking snapshot, a complete SELECT.",
    )
    surrogate_key: str = Field(default="", description="Column that orders the chunks, instead of the key.")
    message: str = Field(default="", description="Text that `log` writes; `{}` is replaced by the position.")

    def composed(self, id_: str) -> ParsedSignal:
        """The signal, under an id.

        Raises:
            InvalidValueError: it could not be carried out.
        """
        return compose(
            id_,
            self.type.value,
            self.tables,
            self.conditions,
            snapshot=self.snapshot.value,
            surrogate=self.surrogate_key,
            message=self.message,
        )


Send = Callable[[dg.OpExecutionContext, Any, ParsedSignal], None]
"""Sends a signal, given the capture's resource."""


def job_that_sends(names: Names, about: str, send: Send) -> dg.JobDefinition:
    """A job whose launchpad takes one signal. It claims nothing and uses no pool: another run carries the signal out."""

    @dg.op(name=names.signal_op, required_resource_keys={names.resource})
    def ask_capture(context: dg.OpExecutionContext, config: SignalConfig) -> None:
        with as_failures():
            send(context, getattr(context.resources, names.resource), config.composed(context.run.run_id))

    @dg.job(name=names.signal, description=about, executor_def=dg.in_process_executor)
    def job() -> None:
        ask_capture()

    return job


def signal_job(catalog: CaptureCatalog) -> dg.JobDefinition:
    """The signal job: it leaves a request for the streaming run."""
    return job_that_sends(catalog.names, _ABOUT, _send)


def _send(context: dg.OpExecutionContext, resource: CaptureResource, composed: ParsedSignal) -> None:
    unknown = ask(resource.config(), composed)
    signal = composed.signal
    for pattern in unknown:
        context.log.warning(f"No captured table matches {pattern!r}: expected {EXPECTED}.")
    context.log.info(
        f"Sent as signal {signal.id}: {signal.type} {signal.data}. The streaming run carries it out; "
        "if none is running, the sensor starts one at its next tick."
    )


_ABOUT = (
    "Request snapshots of tables, incrementally or while the stream pauses; pause, resume or stop them; "
    "or log a message: fill in the launchpad. Each run of this job sends one signal."
)
