"""Where publishing begins, and whether what was published before is of this lake and of this range.

*An older copy of the lake* that was put in its place and continued has windows with the same numbers and other events. Once these numbers are
reached they show nothing. So a marker also names the newest entry of the manifest at that time: the copy has not reached its number, or has
another one under it. The manifest keeps about the newest thousand: so what was seen of a copy is recorded in it (`recorded`). One that nobody
looked at until that number was too old to be kept is not recognized.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from cdc_assets.errors import ConfigurationError, PreflightError
from cdc_assets.publish.after import After, after_in, by_database, options, require_databases
from cdc_assets.publish.feed import Topic
from cdc_assets.publish.offset import Published
from cdc_assets.publish.span import Span

log = logging.getLogger(__name__)

WithoutMarker = Literal["", "anew", "resume"]
"""What to do if the topic of markers is gone, though the lake knows of published topics: nothing, publish everything again, or resume
where the lake last recorded it."""
MARKER_GONE: Final = "The lake says that its topics were published, but there is no marker in Kafka that says how far"
WITHOUT_MARKER: Final = (
    "check that bootstrap.servers names the right brokers; if the topic of markers was deleted, run `cdc-assets publish --resume` once, which "
    "continues where the lake last recorded it (events of the last minute may come twice); if the topics were deleted too, "
    "`cdc-assets publish --anew`, which publishes everything again, or with --from-lsn what is after it"
)


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where publishing is to begin.

    Args:
        after: commit LSNs after which events are published, by database; empty for all. Only for topics that are not published yet.
        span: the range of a replay, in place of all that there is.
        without_marker: see `WithoutMarker`.
    """

    after: After = field(default_factory=dict)
    span: Span | None = None
    without_marker: WithoutMarker = ""


WHERE_IT_ENDED: Final = Beginning()


@dataclass(frozen=True, slots=True)
class Start:
    """What a publisher can be asked.

    Args:
        lake: identity of the manifest.
        databases: those of which the lake has tables, and those that are to be captured.
        after: commit LSNs after which events are published, as of `by_database`; empty for all.
        span: the range of a replay; None to publish everything.
        writer: identity of the process.
        without_marker: see `WithoutMarker`.
    """

    lake: str
    databases: Sequence[str]
    after: After
    span: Span | None
    writer: str
    without_marker: WithoutMarker = ""

    def first(self) -> Published:
        """What is published before anything is."""
        if self.span is None:
            return Published(self.lake, after=self.after)
        return Published(self.lake, self.span.first - 1, after=self.after, span=self.span.text())

    def lost(self, ask: Callable[[], Published | None]) -> Published | None:
        """Where to continue if there is no marker; None if nothing is published, or if this start says what to publish again.

        The start of the first time does not say so: it may be part of a service's command.

        Args:
            ask: asks the lake what it recorded last.

        Raises:
            LakeError: that cannot be read.
            PreflightError: something was published, and nobody has said what to do.
        """
        if self.span or self.without_marker == "anew" or (recorded := ask()) is None or not is_of(recorded, self.lake):
            return None
        if self._is_another(by_database(recorded.after, self.databases)):
            return None
        if self.without_marker == "resume":
            return recorded
        raise PreflightError(f"{MARKER_GONE}. Next: {WITHOUT_MARKER}.")

    def continued(self, known: Published) -> Published:
        """What is published, with LSNs by database: an earlier version recorded one for all, until a start names one for each."""
        after = by_database(known.after, self.databases)
        if "" not in after or len(self.databases) <= 1:
            return replace(known, after=after)
        if self.after and "" not in self.after:
            log.warning(
                "Windows up to %d were published after the LSN %s in all databases: what others had up to it stays left out. Next: "
                "publish them to other topics with --replay 0..%d --prefix.",
                known.window, after[""], known.window,
            )  # fmt: skip
            return replace(known, after=self.after)
        log.warning(
            "Topics of all databases are published after the LSN %s, though LSNs of two databases have no order: what another database "
            "has up to it is left out. Next: publish once with %s, each with an LSN of its own database.",
            after[""],
            options(dict.fromkeys(self.databases, "LSN")),
        )
        return replace(known, after=after)

    def _is_another(self, known: After) -> bool:
        """Whether LSNs are given that are not those of what is published; one without a database may have been given when there was one."""
        is_same = self.after == known or (bool(known) and set(known.values()) == {self.after.get("")})
        return bool(self.after) and not is_same

    def check(
        self, known: Published, complete: int, topics: Sequence[Topic], *, new: bool, continued: bool = False
    ) -> None:
        """Refuse what would not continue what is published.

        Args:
            known: what is published, as of `continued`.
            complete: greatest window that is complete in the lake.
            topics: that are published.
            new: whether nothing is published yet.
            continued: see `foreign`.

        Raises:
            PreflightError: it is of another lake.
            EventsDroppedError: topics no longer hold what is to be published first.
            ConfigurationError: a start or another range was given, but the topics are published already; or a range of which
                nothing is complete; or LSNs of no database.
        """
        if self.span and (self.span.after or self.span.until) and len(self.databases) > 1:
            expected = (
                f"numbers of windows, because LSNs of several databases ({', '.join(self.databases)}) have no order"
            )
            raise ConfigurationError("--replay", self.span.text(), expected, "copy them from `cdc-assets status`")
        if new or "" not in self.after:
            require_databases(self.after, self.databases)
        if known.span != (self.span.text() if self.span else ""):
            raise ConfigurationError(
                "--replay",
                self.span.text() if self.span else None,
                f"{known.span}, which was replayed into this prefix",
                "choose another prefix; a second range in the same topics could not be distinguished from the first",
            )
        if new and self.span and self.span.first > max(complete, 0):
            expected = f"a range of complete windows, windows up to {complete}"
            raise ConfigurationError("--replay", self.span.text(), expected, "copy one from `cdc-assets status`")
        if wrong := foreign(known, self.lake, complete, topics, continued=continued):
            raise PreflightError(wrong)
        for topic in topics if new else ():
            self._check_held(topic, known.after, topics)
        if not new and self.without_marker == "anew" and known.writer != self.writer:
            raise ConfigurationError(
                "--anew",
                None,
                f"nothing, because there is a marker: the topics are published up to window {known.window}",
                "leave it out; or delete the topics and the topic of markers first",
            )
        if not new and self._is_another(known.after) and known.writer != self.writer:
            raise ConfigurationError(
                "--from-lsn",
                options(self.after),
                f"nothing, because the topics are published up to window {known.window}",
                "leave it out; or delete the topics and the topic of markers, and publish again",
            )

    def _check_held(self, topic: Topic, starts: After, topics: Sequence[Topic]) -> None:
        after = after_in(starts, topic.database)
        if after >= topic.holds.after or (self.span and self.span.first > topic.holds.window):
            return
        wanted = f"events after {after}" if after else "all events"
        topic.holds.require(topic.name, after, wanted, self._what_is_held(starts, topics))

    def _what_is_held(self, starts: After, topics: Sequence[Topic]) -> str:
        """What can be published of what topics hold."""
        if self.span and len(self.databases) > 1:
            return f"replay {max(topic.holds.window for topic in topics) + 1}.."
        held = dict(starts)
        for topic in topics:
            if topic.holds.after > after_in(held, topic.database):
                held[topic.database] = topic.holds.after
        if len(self.databases) > 1:
            return f"publish with {options(held)}"
        newest = max(held.values())
        return f"replay {newest}.." if self.span else f"publish with {options({'': newest})}"


def foreign(known: Published, lake: str, complete: int, topics: Sequence[Topic], *, continued: bool = False) -> str:
    """Why what is published is not of a lake as it is now; empty if it is.

    Args:
        lake: identity of its manifest.
        complete: greatest window that is complete in it.
        topics: that it has.
        continued: whether it is an older copy that was continued since, so that its windows have the same numbers and other events.
    """
    is_ahead = any(topic.numbered and known.of(topic.name)[0] > topic.complete for topic in topics)
    if not continued and known.lake == lake and known.window <= complete and not is_ahead:
        return ""
    return (
        f"The topics were published from another lake, or from a newer copy of it (manifest {known.lake}, window "
        f"{known.window}; here {lake}, {complete}). Next: restore that lake; or delete the topics and the topic "
        "of markers, and publish again."
    )


def is_of(recorded: Published | None, lake: str) -> bool:
    """Whether a place that a lake has recorded says that something of it was published.

    Args:
        lake: identity of its manifest.
    """
    return recorded is not None and recorded.lake == lake and (recorded.window >= 0 or bool(recorded.places))
