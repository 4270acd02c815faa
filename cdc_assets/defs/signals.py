"""A job by which people ask for snapshots in Dagster's launchpad."""

from enum import Enum

import dagster as dg
from pydantic import Field

from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.failures import as_failures
from cdc_assets.signals.requests import ask, compose
from cdc_assets.signals.tables import EXPECTED


class SignalType(Enum):
    """What can be asked for."""

    execute_snapshot = "execute-snapshot"
    stop_snapshot = "stop-snapshot"
    pause_snapshot = "pause-snapshot"
    resume_snapshot = "resume-snapshot"
    log = "log"


class SnapshotType(Enum):
    """How tables are read."""

    incremental = "incremental"
    blocking = "blocking"


class SignalConfig(dg.Config):
    """What to ask for."""

    type: SignalType = Field(default=SignalType.execute_snapshot, description="What to do.")
    tables: list[str] = Field(
        default=[],
        description="Regular expressions of `database.schema.table`, or of `schema.table`, letter case counting: "
        "what to read, or to stop.",
    )
    snapshot: SnapshotType = Field(
        default=SnapshotType.incremental,
        description="`incremental`: beside the stream; needs the signal table. `blocking`: the stream waits.",
    )
    conditions: dict[str, str] = Field(
        default={},
        description="By such an expression, which rows: a predicate; of a blocking snapshot, a whole SELECT.",
    )
    surrogate_key: str = Field(default="", description="Column to walk along in place of the key.")
    message: str = Field(default="", description="What `log` writes; `{}` stands for the position.")


def signal_job(catalog: CaptureCatalog) -> dg.JobDefinition:
    """The job. It claims nothing and holds no pool: it leaves a request for the run that follows the log."""
    names = catalog.names

    @dg.op(name=names.signal_op, required_resource_keys={names.resource})
    def ask_capture(context: dg.OpExecutionContext, config: SignalConfig) -> None:
        resource: CaptureResource = getattr(context.resources, names.resource)
        with as_failures():
            composed = compose(
                context.run.run_id,
                config.type.value,
                config.tables,
                config.conditions,
                snapshot=config.snapshot.value,
                surrogate=config.surrogate_key,
                message=config.message,
            )
            unknown = ask(resource.config(), composed)
        signal = composed.signal
        for pattern in unknown:
            context.log.warning(f"No captured table matches {pattern!r}: expected {EXPECTED}.")
        context.log.info(
            f"Asked, as signal {signal.id}: {signal.type} {signal.data}. The run that follows the log carries it out; "
            "if none is at work, the sensor starts one at its next tick."
        )

    @dg.job(name=names.signal, description=_ABOUT)
    def job() -> None:
        ask_capture()

    return job


_ABOUT = (
    "Ask the capture to read tables again, incrementally or with the stream waiting, to pause, resume or stop that, "
    "or to log a line: fill in the launchpad. A run of this job acts once."
)
