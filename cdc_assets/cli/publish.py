"""`cdc-assets publish`: writes the topics of the lake to Kafka."""

from typing import Annotated

import typer

from cdc_assets.assembly.publishing import forget_publisher, publish_topics
from cdc_assets.cli.console import DEFAULT_CONFIG, FAILED, ConfigOption, err, out, read_lake_config, show_logs
from cdc_assets.core.interruption import listening
from cdc_assets.core.lsn import Lsn
from cdc_assets.publish.publisher import Commit


def publish(
    config: ConfigOption = DEFAULT_CONFIG,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new events and publish them; end with Ctrl+C.")
    ] = False,
    from_lsn: Annotated[
        str,
        typer.Option(
            "--from-lsn", help="Begin after this commit LSN, in place of the whole history. At the first start alone."
        ),
    ] = "",
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Publish nothing; let retention of topics no longer wait for this publisher, which has ended.",
        ),
    ] = False,
) -> None:
    """Write the topics of the lake to Kafka as a connector would have, each event once for consumers that read committed.

    Can be stopped at any moment; the next run continues after the last committed transaction. The server is not asked.
    """
    show_logs()
    settings, _ = read_lake_config(config, "producer.")
    if forget:
        forget_publisher(settings)
        out.print("Retention of topics waits for no publisher. The next `cdc-assets publish` is waited for again.")
        return
    after = str(Lsn.parse(from_lsn)) if from_lsn else ""
    with listening():
        stopped = publish_topics(settings, _print_commit, follow=follow, after=after)
    for topic, reason in stopped.items():
        err.print(f"{topic} is not published further: {reason}", style="bold red", markup=False, soft_wrap=True)
    if stopped:
        raise typer.Exit(FAILED)
    out.print("All complete windows are published.")


def _print_commit(commit: Commit) -> None:
    behind = commit.complete - commit.window
    out.print(
        f"window {commit.window}: {commit.rows:,} events, {behind:,} windows behind", markup=False, soft_wrap=True
    )
