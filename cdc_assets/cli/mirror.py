"""`cdc-assets mirror`: brings the tables of current rows and their history to where the topics are."""

from collections.abc import Mapping
from typing import Annotated

import typer

from cdc_assets.assembly.mirrors import open_mirrors
from cdc_assets.cli.as_json import of_mirrors, print_json
from cdc_assets.cli.capture import task_runner
from cdc_assets.cli.console import (
    DEFAULT_CONFIG,
    FAILED,
    ConfigOption,
    JsonOption,
    err,
    out,
    read_lake_config,
    show_logs,
)
from cdc_assets.core.interruption import listening
from cdc_assets.mirror.ledger import MirrorState
from cdc_assets.mirror.work import StepReport


def mirror(
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables (`schema.table`); all that have a mirror if none is named.")
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make them anew from their topics; their history begins anew too.")
    ] = False,
    local: Annotated[
        bool, typer.Option("--local", help="Run tasks in threads of this process, without Spark.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring mirrors (current rows and their history in natural types) to where the topics are.

    The server is not asked. Can be stopped at any moment; the next run continues.
    """
    show_logs()
    settings, _ = read_lake_config(config)
    with listening(), task_runner(local) as runner:
        mirrors = open_mirrors(settings, runner, _ignore if as_json else _print_step)
        wanted = mirrors.named(tables) if tables else None
        troubles = mirrors.catch_up(wanted, anew=rebuild)
        states = mirrors.states()
    for topic, error in troubles.items():
        err.print(f"{topic}: {error}", style="bold red", markup=False, soft_wrap=True)
    if as_json:
        print_json(of_mirrors(states, troubles))
    else:
        _print_states(states)
    if troubles:
        raise typer.Exit(FAILED)


def _ignore(_: StepReport) -> None:
    pass


def _print_states(states: Mapping[str, MirrorState]) -> None:
    out.print(f"{len(states)} mirror{'' if len(states) == 1 else 's'}.")
    for topic, state in sorted(states.items()):
        gaps = f", lacks changes of {len(state.gaps)} gaps" if state.gaps else ""
        out.print(f"{topic} is right up to {state.lsn}{gaps}", markup=False, soft_wrap=True)


def _print_step(report: StepReport) -> None:
    out.print(
        f"{report.topic} step {report.step} to {report.lsn}: {report.events:,} events, {report.rows:,} rows, "
        f"{report.rewritten:,} files written, {report.ended:,} versions ended; ran on {report.ran_on}",
        markup=False,
        soft_wrap=True,
    )
