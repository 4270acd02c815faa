"""`cdc-assets reconcile`: compares a mirror with the table on the server, and has rows that differ read again."""

from collections.abc import Mapping
from typing import Annotated

import typer

from cdc_assets.assembly.reconciler import open_reconciler
from cdc_assets.cli.as_json import of_comparison, print_json
from cdc_assets.cli.capture import task_runner
from cdc_assets.cli.console import DEFAULT_CONFIG, FAILED, ConfigOption, JsonOption, out, read_config, show_logs
from cdc_assets.cli.ending import give_up
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.interruption import listening
from cdc_assets.reconcile.progress import Difference, Pass
from cdc_assets.reconcile.run import Wishes


def reconcile(
    table: Annotated[str, typer.Argument(help="`schema.table` or `database.schema.table`.")],
    config: ConfigOption = DEFAULT_CONFIG,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Let the capture read differing rows again (needs the signal table), and remove rows that are missing on the "
            "server from the mirror.",
        ),
    ] = False,
    ranges: Annotated[
        int | None,
        typer.Option("--ranges", min=1, help="Compare only the next N key ranges."),
    ] = None,
    anew: Annotated[bool, typer.Option("--anew", help="Start with the first key range instead of continuing.")] = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=1.0,
            help="How long to wait for the mirror to catch up with the read, or for another comparison of the table, in seconds.",
        ),
    ] = 600.0,
    local: Annotated[
        bool, typer.Option("--local", help="Run tasks in threads of this process, without Spark.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare a mirror with the table on the server, beside the stream, key range by key range.

    Can be stopped at any moment; the next call continues after the ranges that are done. The exit code is 1 if rows
    differ that were neither asked to be read again nor removed.
    """
    show_logs()
    settings = read_config(config)
    with (
        listening(give_up),
        task_runner(local, f"{settings.name} reconcile") as runner,
        open_reconciler(settings, runner) as (mirrors, reconciler),
    ):
        wishes = Wishes(ranges, repair, anew, timeout)
        on_group = _ignore if as_json else _print_group
        found = {one: reconciler.reconcile(one, wishes, on_group) for one in mirrors.named([table])}
    if as_json:
        print_json([of_comparison(name, one) for name, one in found.items()])
    else:
        for one in found.values():
            _print_comparison(one)
        out.print(f"ran on {reconciler.account.of('reconcile')}", markup=False, soft_wrap=True)
    if any(one.left for one in found.values()):
        raise typer.Exit(FAILED)


def _ignore(table: TableId, found: Pass) -> None:
    del table, found


def _print_comparison(found: Pass) -> None:
    for difference in found.first:
        _print_difference(difference)
    out.print(found.summary, markup=False, soft_wrap=True)


def _print_group(table: TableId, found: Pass) -> None:
    out.print(
        f"{table} at {found.lsn}: {found.done:,} of {len(found.ranges):,} key ranges, {found.rows:,} rows, "
        f"{found.differing:,} differ",
        markup=False,
        soft_wrap=True,
    )


def _print_difference(difference: Difference) -> None:
    def text(values: Mapping[str, str]) -> str:
        return ", ".join(f"{name}={value}" for name, value in values.items()) or "-"

    out.print(
        f"{difference.kind}: {text(difference.key)}\n  server: {text(difference.server)}\n  mirror: {text(difference.mirror)}",
        markup=False,
        soft_wrap=True,
    )
