"""`cdc-assets mirror`: brings the tables of current rows and their history to where the topics are."""

import logging
from collections.abc import Callable, Mapping
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
from cdc_assets.cli.ending import give_up
from cdc_assets.core.interruption import listening, sleep
from cdc_assets.core.ran_on import count_of
from cdc_assets.errors import CdcError, RetryableError
from cdc_assets.mirror.ledger import MirrorState
from cdc_assets.mirror.work import StepReport

log = logging.getLogger(__name__)

_REPETITIONS = 3


def mirror(
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables (`schema.table`); all that have a mirror if none is named.")
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Rebuild them from their topics; their history starts again too.")
    ] = False,
    local: Annotated[
        bool, typer.Option("--local", help="Run tasks in threads of this process, without Spark.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring mirrors (current rows and their history in natural types) to where the topics are.

    Nothing is read from the server. Can be stopped at any moment; the next run continues.
    """
    show_logs()
    settings, _ = read_lake_config(config)
    with listening(give_up), task_runner(local, f"{settings.name} mirror") as runner:
        mirrors = open_mirrors(settings, runner, _ignore if as_json else _print_step)
        wanted = mirrors.named(tables) if tables else None
        troubles = _caught_up(
            lambda: mirrors.catch_up(wanted, anew=rebuild, suspected=wanted or ()), settings.streaming.retry_wait_s
        )
        states = mirrors.states()
    for topic, error in troubles.items():
        err.print(f"{topic}: {error}", style="bold red", markup=False, soft_wrap=True)
    if as_json:
        print_json(of_mirrors(states, troubles))
    else:
        _print_states(states)
    if troubles:
        raise typer.Exit(FAILED)


def _caught_up(attempt: Callable[[], Mapping[str, CdcError]], pause_s: float) -> Mapping[str, CdcError]:
    """The result of an attempt, begun again when it broke off: Spark may have been killed. What was recorded stays."""
    for _ in range(_REPETITIONS):
        try:
            return attempt()
        except RetryableError as error:
            log.warning("%s Retrying in %s s.", error, pause_s)
            sleep(pause_s)
    return attempt()


def _ignore(_: StepReport) -> None:
    pass


def _print_states(states: Mapping[str, MirrorState]) -> None:
    out.print(f"{count_of(len(states), 'mirror')}.")
    for topic, state in sorted(states.items()):
        out.print(f"{topic} is up to date {_known(state)}", markup=False, soft_wrap=True)


def _known(state: MirrorState) -> str:
    """The range of LSNs that a mirror has, for people."""
    found = (
        f"from {state.begin} to {state.lsn}"
        if state.begin
        else f"to {state.lsn}, but without rows that no snapshot has read"
    )
    if state.spans:
        low, high = state.spans[-1]
        more = f" and {count_of(len(state.spans) - 1, 'earlier time')}" if len(state.spans) > 1 else ""
        found += f", but not from {low} until {high}{more}, while a snapshot read the table or changes were lost"
    return f"{found}, lacks changes of {count_of(len(state.gaps), 'gap')}" if state.gaps else found


def _print_step(report: StepReport) -> None:
    out.print(
        f"{report.topic} step {report.step} to {report.lsn}: {count_of(report.events, 'event')}, {count_of(report.rows, 'row')}, "
        f"{count_of(report.rewritten, 'file')} written, {count_of(report.ended, 'version')} ended; ran on {report.ran_on}",
        markup=False,
        soft_wrap=True,
    )
