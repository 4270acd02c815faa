"""A job that sends signals to a connector through a channel of its own: its signal table, or its file.

The file is the one of the machine, or the container, in which the connector runs. So the job leaves a signal for it in the lake, and the
run with the connector writes it there (`engine.forwarded`).
"""

import dagster as dg

from cdc_assets.assembly.engine import inbox_of
from cdc_assets.connectors.engine.signal_targets import named_tables
from cdc_assets.connectors.engine.signalled_run import channels_of, require_incremental, signal_file
from cdc_assets.connectors.engine.topics import routes
from cdc_assets.core.signal import Signal
from cdc_assets.defs.engines.catalog import ConnectorCatalog
from cdc_assets.defs.engines.resource import ConnectorResource
from cdc_assets.defs.signals import job_that_sends
from cdc_assets.errors import CdcError, ConfigurationError, describe_error
from cdc_assets.signals.model import ExecuteSnapshot, ParsedSignal, StopSnapshot


def signal_job(catalog: ConnectorCatalog) -> dg.JobDefinition:
    """The signal job: a run of the connector takes the signal up."""
    return job_that_sends(catalog.names, _ABOUT, _send)


def _send(context: dg.OpExecutionContext, resource: ConnectorResource, composed: ParsedSignal) -> None:
    request = composed.request
    if isinstance(request, ExecuteSnapshot) and request.kind == "incremental":
        require_incremental(resource.settings())
    signal, unknown = composed.signal, _unknown(context, resource, composed)
    channel = send(resource, signal)
    context.log.info(
        f"Sent as signal {signal.id} by {channel}: {signal.type} {signal.data}. The sensor "
        "starts a run of the connector that takes it up, if none is running."
    )
    if unknown:
        context.log.error(unknown)


def _unknown(context: dg.OpExecutionContext, resource: ConnectorResource, composed: ParsedSignal) -> str:
    """What the signal names that is no captured table; empty too if the database does not say which tables it has.

    Raises:
        ConfigurationError: no captured table is named, or a condition is for none.
    """
    request, config = composed.request, resource.settings()
    if not isinstance(request, ExecuteSnapshot | StopSnapshot) or routes(config):
        return ""
    try:
        with resource.probe() as probe:
            tables = [schema.table for schema in probe.tables()]
        if isinstance(request, StopSnapshot):  # a table that waits for its snapshot may be captured no more
            tables += [table for table, _ in resource.overview().queue]
    except CdcError as error:
        context.log.warning(f"Whether captured tables have these names was not checked: {describe_error(error)}")
        return ""
    found = named_tables(config, request.collections, tables)
    found.require()
    for name, _ in request.conditions if isinstance(request, ExecuteSnapshot) else ():
        named_tables(config, [name], tables).require()
    return found.problem


def send(resource: ConnectorResource, signal: Signal) -> str:
    """Send a signal through the table if there is one, or else through the lake and the file; the way as text.

    Raises:
        CdcError: there is neither, or it cannot be written.
    """
    config = resource.settings()
    channels = channels_of(config)
    if "source" in channels and (table := config.properties.get("signal.data.collection")):
        with resource.probe() as probe:
            probe.signal(signal.id, signal.type, signal.data or "{}")
        return f"the table {table}"
    if "file" in channels:
        inbox_of(config).put(signal)
        return f"the lake and the connector's file {signal_file(config)}"
    raise ConfigurationError(
        "signal.enabled.channels",
        ",".join(channels),
        "source with a signal table (signal.data.collection), or file with signal.file",
        "configure one; a snapshot can also be requested by materializing the snapshot assets, which needs none",
    )


_ABOUT = (
    "Send a signal to the connector: snapshots of tables, incrementally or while streaming pauses; pause, resume or stop "
    "them; or log a message. Needs the connector's signal table or signal file; fill in the launchpad."
)
