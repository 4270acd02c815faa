"""`cdc-assets capture` for another connector than SQL Server's, and for events that others wrote."""

from dataclasses import replace
from pathlib import Path

import typer

from cdc_assets.assembly.engine import run_engine
from cdc_assets.cli.console import FAILED, out, warn, with_warnings
from cdc_assets.cli.ending import give_up
from cdc_assets.cli.exported import exported
from cdc_assets.cli.follow import LOGIN, Retries, limits
from cdc_assets.config.engine import EngineConfig, load_engine_config
from cdc_assets.config.load import refers_to_file
from cdc_assets.connectors.engine.batch_metrics import parts_by_database
from cdc_assets.connectors.engine.ledger import Batch
from cdc_assets.connectors.engine.signalled_run import INCREMENTAL_NEEDS, why_no_incremental
from cdc_assets.core.interruption import listening
from cdc_assets.core.ran_on import count_of
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables

ENDED = {"idle": "Nothing new for a while.", "deadline": "Time is up."}


def capture_by_engine(place: Path, follow: bool, idle: float | None, metrics_port: int | None = None) -> None:
    """Run a connector into the lake until nothing is new.

    Args:
        place: of the configuration file.
        follow: never end for want of events.
        idle: end after so many seconds without an event; as configured if None.
        metrics_port: where metrics are served; as configured if None.
    """

    def read() -> EngineConfig:
        return replace(load_engine_config(place), **limits(follow, idle))

    config = with_warnings(read())
    if "signal.enabled.channels" in config.properties and (reason := why_no_incremental(config)):
        warn(f"Incremental snapshots that a signal requests will not continue: {reason}. Next: {INCREMENTAL_NEEDS}.")
    tables = TopicTables(Location.of(config.lake), config.topic_prefix, config.lake)
    retries = Retries(
        read,
        lambda found: found,
        lambda found: [found.properties.get(name) for name in LOGIN],
        lambda: refers_to_file(place, LOGIN),
    )

    def tell(batch: Batch) -> None:
        retries.progress()
        out.print(str(batch))
        for part in parts_by_database(config, batch):
            count(part)

    with listening(give_up), exported(config, read, metrics_port) as count:
        if follow:
            summary = retries.run(lambda now: run_engine(now, tables, tell))
        else:
            summary = run_engine(config, tables, tell)
    events = sum(summary.rows.values())
    out.print(f"{ENDED[summary.ended]} {count_of(summary.batches, 'batch')}, {count_of(events, 'event')}.")
    for trouble in summary.unread:
        warn(trouble)
    if summary.unread:
        raise typer.Exit(FAILED)
