"""`cdc-assets publish`: writes the topics of the lake to Kafka."""

from typing import Annotated

import typer

from cdc_assets.assembly.publishing import forget_publisher, publish_topics
from cdc_assets.cli.console import DEFAULT_CONFIG, FAILED, ConfigOption, err, out, read_lake_config, show_logs
from cdc_assets.cli.ending import give_up
from cdc_assets.core.interruption import listening
from cdc_assets.core.lsn import Lsn
from cdc_assets.errors import ConfigurationError
from cdc_assets.publish.publisher import Commit
from cdc_assets.publish.span import Replay, replay_of
from cdc_assets.publish.start import WithoutMarker


def publish(
    config: ConfigOption = DEFAULT_CONFIG,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep publishing new events; stop with Ctrl+C.")
    ] = False,
    from_lsn: Annotated[
        list[str] | None,
        typer.Option(
            "--from-lsn",
            help="Begin after this commit LSN instead of with the whole history; only at the first start. `database=LSN` if there are "
            "several databases.",
        ),
    ] = None,
    replay: Annotated[
        str,
        typer.Option(
            "--replay",
            help="Publish a range again, FROM..TO: windows, both included, or commit LSNs, the first not included. Needs --prefix.",
        ),
    ] = "",
    prefix: Annotated[str, typer.Option("--prefix", help="Topic prefix of a replay.")] = "",
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="If the topic of markers is gone: continue where the lake last recorded it. Events of the last minute may come twice.",
        ),
    ] = False,
    anew: Annotated[
        bool,
        typer.Option("--anew", help="If the topic of markers and the topics are gone: publish everything again."),
    ] = False,
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
    again = _replay(settings.events.topic_prefix, replay, prefix, other=follow or any(from_lsn or ()))
    given = [text.rpartition("=") for text in from_lsn or () if text]
    after = {database: str(Lsn.parse(lsn)) for database, _, lsn in given}
    lost = _without_marker(resume=resume, anew=anew, other=again is not None)
    with listening(give_up):
        stopped = publish_topics(settings, _print_commit, follow=follow, after=after, replay=again, without_marker=lost)
    for topic, reason in stopped.items():
        err.print(f"{topic} is not published further: {reason}", style="bold red", markup=False, soft_wrap=True)
    if stopped:
        raise typer.Exit(FAILED)
    out.print("All complete windows are published." if again is None else f"{replay} is published as {prefix}.")


def _without_marker(*, resume: bool, anew: bool, other: bool) -> WithoutMarker:
    """What to do if there is no marker."""
    if resume + anew + other > 1:
        name = "--resume" if resume else "--anew"
        raise ConfigurationError(name, None, "one of --resume, --anew, --replay", "give one of them")
    return "resume" if resume else "anew" if anew else ""


def _replay(own: str, text: str, prefix: str, *, other: bool) -> Replay | None:
    """The replay that is wanted; None if none is."""
    if not text and not prefix:
        return None
    if not (text and prefix) or other:
        raise ConfigurationError(
            "--replay", text or None, "with --prefix, without --follow and --from-lsn", "give a range and a prefix"
        )
    return replay_of(text, prefix, own)


def _print_commit(commit: Commit) -> None:
    behind = commit.complete - commit.window
    out.print(f"window {commit.window}: {commit.rows:,} events; {behind:,} windows wait", markup=False, soft_wrap=True)
