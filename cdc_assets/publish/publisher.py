"""Publishes complete windows, each event once.

*Why each event is there once.* Events and the marker that says how far they go are written in one transaction. So a consumer that
reads only committed records sees both or neither. Where to continue is read from the newest committed marker and
from nothing else, after every other producer of the same name was fenced and its open transaction ended. A crash at any
moment therefore repeats what no consumer has seen. If nobody knows whether a commit has succeeded, because the
connection broke, the broker is opened again, which waits for the outcome; then the marker tells.

*Numbers without events* are passed over when events of a later one are there, not before: so structures that are written late under
a number that nothing else has (`adoption`) are not missed.

*Topics whose database is ahead* of one that holds windows back (`feed`) have offsets of their own in the marker, as those in the
middle of a window have. So the marker's own number never passes a topic that is not complete, nor one that nobody knows of yet.

*What a transaction holds.* The events of one window, of several small ones, or of a part of a large one: it is committed when
it has enough rows, or has taken a third of the time that a broker allows by default. Parts are cut between two positions of a
topic, never between a delete and its tombstone, and the marker names the topics that are ahead of their window.

*A record that is refused for good* stops its topic at the record before it, or at the last transaction if the commit told it; other
topics continue. Whatever has stopped a topic, its place is in each marker, also of an attempt that is repeated because another topic was
refused; so no marker moves it, and retention keeps what is behind it. It is tried again at the next start, and every `_RETRY_AFTER_S` seconds.
So does whatever else ends the reading of one topic (`stream.Unreadable`).

*Events that were dropped* (`lake.topic.retention.hours`) are never passed over: retention waits for the place that the lake
was recorded last (`recorded`), which is never ahead of the marker. Where that cannot be recorded the first time, nothing is published. A first start that requests what is gone is refused; a topic
that was dropped from still, because it was published from a copy of the lake, is stopped.

*What is read ahead* (`cursor`) counts for nothing until it is handed over: places are noted then, and an attempt that ends waits for
its reader and drops what it made.

*Two publishers.* The newer one fences the older. A producer is also fenced by the broker itself when its transaction took too
long; the older one tells the two apart by the marker, which names its writer: each one writes it when it takes over. One that has
nothing to send learns nothing from the broker. So whatever has ended an attempt, the marker is read before the broker is opened again:
a writer that is neither this one nor the one that it has taken over from is newer, and is not ended. A marker that is gone names no
writer (`start`). A crash in between changes nothing, as nothing is written before the broker is open.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import monotonic
from uuid import uuid4

from cdc_assets.core.interruption import check
from cdc_assets.core.steps import step
from cdc_assets.errors import (
    LAKE_ERRORS,
    ConnectionLostError,
    FencedError,
    IncompleteReadError,
    LakeError,
    PreflightError,
)
from cdc_assets.publish.after import After, by_database
from cdc_assets.publish.cursor import ReadAhead, TopicCursor, Unreadable, unpublished_slices
from cdc_assets.publish.feed import Feed, Topic
from cdc_assets.publish.offset import END_OF_WINDOW, Published, PublishOffset, parse_published
from cdc_assets.publish.ports import Broker
from cdc_assets.publish.rate import Rate
from cdc_assets.publish.records import RecordSlice
from cdc_assets.publish.render import Renderer
from cdc_assets.publish.start import WHERE_IT_ENDED, Beginning, Start, foreign
from cdc_assets.publish.stops import Stops, dropped
from cdc_assets.publish.targets import Targets
from cdc_assets.publish.tombstones import event_of

log = logging.getLogger(__name__)

_RETRY_AFTER_S = 600.0
"""Seconds after which topics that are stopped are tried again."""
_RECORD_EVERY_S = 60.0
_LONGEST_S = 20.0
"""Seconds after which a transaction is committed though it could hold more."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction that was committed.

    Args:
        window: window up to which topics are published.
        complete: greatest window that is complete in the lake.
        rows: number of its events.
        lsn: commit LSN of the newest event of a table that is published; empty if there is none.
        stopped: why topics are not published further, by name.
    """

    window: int
    complete: int
    rows: int
    lsn: str = ""
    stopped: Mapping[str, str] = field(default_factory=dict)


class _Refused(Exception):  # noqa: N818 - ends an attempt; never leaves this module
    """The transaction is aborted, and repeated without the topics that are stopped now."""


class Publisher:
    """Publishes the topics of one capture.

    Args:
        max_rows: rows of a transaction, after which it is committed.
        on_commit: called after each transaction.
        beginning: where to begin.
    """

    def __init__(
        self,
        feed: Feed,
        broker: Broker,
        renderer: Renderer,
        max_rows: int,
        on_commit: Callable[[Commit], None],
        beginning: Beginning = WHERE_IT_ENDED,
    ) -> None:
        self._feed, self._broker, self._renderer, self._max_rows = feed, broker, renderer, max_rows
        self._on_commit, self._beginning, self._span = on_commit, beginning, beginning.span
        self._given = {"": after} if self._span and (after := self._span.after) else beginning.after
        self._after: After = {}
        self._several = False
        self._writer = uuid4().hex
        self._writers: set[str] = set()
        """Who may have written the newest marker if no other has taken over since; empty before the broker was open."""
        self._published = Published("")
        self._stops = Stops()
        self._targets, self._rate, self._unreadable = Targets(broker), Rate(), Unreadable()
        self._lsn = self._entry = ""
        self._rows, self._begun, self._begun_at, self._complete = 0, False, 0.0, -1
        self._places: dict[str, PublishOffset] = {}
        self._base = -1
        self._record, self._recorded_at = feed.recorded(), 0.0
        self._unfinished = ""

    def open(self) -> None:
        """Take over, and continue where the newest marker says.

        Raises:
            FencedError: another publisher has taken over since this one did.
            RetryableError: the broker is away.
            LakeError: the lake cannot be read.
            EventsDroppedError: topics no longer hold what is to be published first.
            ConfigurationError: a start was given, but the topics are published already; or its LSN has no database.
            PreflightError: the marker is gone, or of another lake.
        """
        self._require_newest()
        text = self._broker.open()
        self._writers = {self._writer, self._writer if text is None else parse_published(text).writer}
        complete, topics = self._read_feed()
        databases = self._feed.databases()
        given, without_marker = by_database(self._given, databases), self._beginning.without_marker
        start = Start(self._feed.lake(), databases, given, self._span, self._writer, without_marker)
        found = start.lost(self._record.read) if text is None else parse_published(text)
        known = found or start.first()
        if found is not None:
            known = start.continued(known)
        continued = self._is_continued(known.entry)
        start.check(known, complete, topics, new=found is None, continued=continued)
        with suppress(*LAKE_ERRORS):
            self._record.accept(known.entry)
        self._after = known.after
        per_second = self._rate.per_second()
        self._published = replace(known, writer=self._writer, written=time.time(), per_second=per_second)
        self._try_all()
        self._broker.begin()
        self._broker.commit(self._published.text())
        self.record_offset()
        self._beginning = replace(self._beginning, without_marker="")  # a marker that is lost later is another one

    def _require_newest(self) -> None:
        """Check that the broker can be opened again without the end of a newer publisher."""
        if not self._writers or (text := self._broker.newest(final=False)) is None:
            return
        if parse_published(text).writer not in self._writers:
            raise FencedError(
                "Another publisher has taken over these topics: the newest marker is of it. Next: nothing, if it is active; it continues "
                "from there."
            )

    def _try_all(self) -> None:
        """Try topics again that are stopped."""
        self._targets.forget()
        self._stops.begin(self._published.stopped)

    @property
    def stopped(self) -> Mapping[str, str]:
        """Why topics are not published further, by name."""
        return self._stops.now

    def require_whole(self) -> None:
        """Check that a range is published up to its end, apart from topics that are stopped.

        Raises:
            IncompleteReadError: the lake is not complete up to there.
        """
        if self._span is not None and self._unfinished:
            raise IncompleteReadError(
                f"The range {self._span.text()} is not published up to its end: the lake is complete up to {self._unfinished}. "
                "Next: the same command again, which continues, once `cdc-assets status` shows more"
            )

    def record_offset(self) -> None:
        """Tell the lake how far topics are published; if it cannot be written, it only knows less.

        Raises:
            RetryableError: the broker is away, and another publisher has recorded how far it is.
            LakeError: it would know of no publisher, and drop events that are not published.
        """
        self._recorded_at = monotonic()
        if self._span is not None:  # for which nothing waits
            return
        try:
            if self._is_newest():
                self._record.write(self._published)
        except LAKE_ERRORS as error:
            if self._feed.drops_events and not self._is_recorded():
                log.error(
                    "Nothing is published: the lake drops old events, and cannot record that there is a publisher."
                )
                raise
            log.warning("How far topics are published could not be recorded, so retention waits: %s", error)

    def _is_newest(self) -> bool:
        """Whether the lake does not know of a newer publisher, which has taken over while this one had nothing to send."""
        with suppress(LakeError):  # what it cannot tell, the broker does
            if (recorded := self._record.read()) is None or recorded.writer == self._writer:
                return True
        return not self.is_fenced()

    def _is_recorded(self) -> bool:
        """Whether the lake knows of a publisher, as far as that can be read."""
        with suppress(*LAKE_ERRORS):
            return self._record.read() is not None
        return True

    def is_fenced(self) -> bool:
        """Whether another publisher has taken over; else the broker ended a transaction that took too long."""
        text = self._broker.newest()
        return text is None or parse_published(text).writer != self._writer

    def turn(self) -> int:
        """Publish what is complete; return the number of events.

        Raises:
            FencedError: another producer has taken over.
            RetryableError: the broker is away: open it again.
            LakeError: the lake cannot be read.
            PreflightError: it is another lake now, or an older copy.
        """
        while True:
            try:
                return sum(self._attempt())
            except _Refused:
                self._broker.abort()
                self._begun = False

    def _attempt(self) -> Iterator[int]:
        """One pass over all that is new; yields the rows of each transaction."""
        if self._stops.is_due(_RETRY_AFTER_S):
            self._try_all()
        self._complete, topics = self._read_feed()
        self._entry = self._feed.entry()
        continued = self._is_continued(self._published.entry)
        if wrong := foreign(self._published, self._feed.lake(), self._complete, topics, continued=continued):
            raise PreflightError(wrong)
        with ReadAhead() as ahead:
            yield from self._publish(topics, ahead)
        self._unreadable.ended()

    def _is_continued(self, entry: str) -> bool:
        """Whether this is an older copy of the lake; recorded there, since its rows do not say so for long."""
        if not self._feed.is_continued(entry):
            return False
        with suppress(*LAKE_ERRORS):
            self._record.refuse(entry)
        return True

    def _publish(self, topics: Sequence[Topic], ahead: ReadAhead) -> Iterator[int]:
        self._begin_pass(topics)
        cursors = self._complete_ones([self._cursor(t, ahead) for t in topics if t.name not in self.stopped])
        for cursor in cursors:
            cursor.read_ahead()
        # topics are made outside of a transaction, because the broker may refuse them
        self._targets.prepare(cursors)
        # window by window over all topics, so that a marker can name one window for nearly all of them
        numbered = [cursor for cursor in cursors if cursor.topic.numbered]
        while live := [s for s in numbered if s.head is not None and s.name not in self.stopped]:
            window = min(cursor.head.window for cursor in live if cursor.head is not None)
            for cursor in live:
                yield from self._send(cursor, window)
            self._reached(numbered, window)
            if self._is_full():
                yield self._commit()
        # topics with numbers of their own belong to no window
        for cursor in cursors:
            if not cursor.topic.numbered and cursor.name not in self.stopped:
                yield from self._send(cursor, None)
        self._stops.passed([topic.name for topic in topics], [s.name for s in cursors if s.name not in self.stopped])
        # the rest is committed, and a topic that has stopped is recorded even if nothing was sent
        if self._begun or self._stops.reasons() != self._published.stopped:
            self._complete = self._base
            self._begin()
            yield self._commit()
        if monotonic() - self._recorded_at >= _RECORD_EVERY_S:
            with suppress(ConnectionLostError):  # to open again would end a publisher that has taken over
                self.record_offset()

    def _begin_pass(self, topics: Sequence[Topic]) -> None:
        """Note where each topic is: also one that is stopped keeps its place, whatever the others do."""
        self._base, self._lsn, self._places = self._published.window, self._published.lsn, dict(self._published.places)
        self._rows, self._begun = 0, False
        for topic in topics:
            self._places.setdefault(topic.name, self._published.of(topic.name, numbered=topic.numbered))
            if topic.name not in self.stopped and (reason := self._dropped(topic)):
                self._stops.add(topic.name, reason)

    def _complete_ones(self, cursors: Sequence[TopicCursor]) -> list[TopicCursor]:
        """Cursors of which nothing was dropped before their files were listed: the table says so before anything goes. Topics of the others
        stop."""
        readable = [cursor for cursor in cursors if cursor.head is None or not cursor.head.problem]
        for topic in (cursor.topic for cursor in readable if cursor.topic.numbered):
            if not topic.rows.has_nothing(self._published.of(topic.name), topic.complete) and (
                reason := self._dropped(self._feed.with_holds(topic))
            ):
                self._stops.add(topic.name, reason)
        return [cursor for cursor in cursors if cursor.name not in self.stopped]

    def _dropped(self, topic: Topic) -> str:
        return dropped(topic, self._published, self._after, several=self._several)

    def _read_feed(self) -> tuple[int, Sequence[Topic]]:
        """The greatest window to publish, and the topics; a replay has those whose events have an LSN."""
        complete, topics = self._feed.read()
        databases = self._feed.databases()  # perhaps in another letter case, once tables are known
        self._several, self._after = len(databases) > 1, by_database(self._after, databases)
        if self._span is None:
            return complete, topics
        self._unfinished = self._feed.unfinished(self._span)
        topics, last = [topic for topic in topics if topic.numbered], self._span.last
        if last is None:
            return complete, topics
        return min(complete, last), [replace(topic, complete=min(topic.complete, last)) for topic in topics]

    def _cursor(self, topic: Topic, ahead: ReadAhead) -> TopicCursor:
        """What a topic holds behind its place."""
        check()  # its first records are made here
        place = self._published.of(topic.name, numbered=topic.numbered)
        until = self._span.until if self._span else ""
        slices = unpublished_slices(topic, self._renderer, place, self._after, until)
        return TopicCursor(topic, self._unreadable.guarded(slices, place, topic.complete), ahead)

    def _reached(self, cursors: list[TopicCursor], window: int) -> None:
        """Note that a window is sent: all topics that are not stopped are published up to it, if it is complete in all of them; else those
        that had events in it, whose own places say so until the others come."""
        if window <= self._complete:
            self._base = max(self._base, window)
        else:
            cursors = [cursor for cursor in cursors if self._places[cursor.name][0] == window]
        for cursor in cursors:
            if cursor.name not in self.stopped:
                self._places[cursor.name] = max(self._places[cursor.name], (window, END_OF_WINDOW))

    def _send(self, cursor: TopicCursor, window: int | None) -> Iterator[int]:
        """Send a topic's records of one window, or all of them; yields the rows of transactions that are full."""
        last = ""
        while (head := cursor.head) is not None and cursor.has(window):
            check()
            if self._is_full() and event_of(head.first) != last:
                yield self._commit()
            self._begin()
            records = cursor.take(max(1, self._max_rows - self._rows))
            taken, reason = self._targets.send(cursor.name, records)
            if taken:
                done = records.slice(0, taken)
                last = event_of(done.last)
                self._note(cursor, done)
            if reason:
                refused = records.slice(taken, taken + 1).first
                what = f"the event at {refused} is refused" if refused else "what comes next cannot be read"
                self._stops.add(cursor.name, f"{what}: {reason}")
                if refused and event_of(refused) == last:
                    raise _Refused  # others share its position, and must not be there without it, nor a delete
                return

    def _begin(self) -> None:
        """Begin a transaction unless there is one."""
        if not self._begun:
            self._broker.begin()
            self._begun, self._begun_at = True, monotonic()

    def _is_full(self) -> bool:
        return self._rows >= self._max_rows or (self._rows > 0 and monotonic() - self._begun_at >= _LONGEST_S)

    def _note(self, cursor: TopicCursor, records: RecordSlice) -> None:
        """Count what was handed over; it is in the order of positions."""
        if cursor.topic.is_of_table:
            self._lsn = max(self._lsn, records.last.partition("/")[0])
        self._places[cursor.name] = records.window, records.last
        if not self._rows:
            step("publish-begun")
        self._rows += len(records)

    def _marker(self) -> Published:
        return replace(
            self._published.at(self._base, self._places),
            stopped=self._stops.reasons(),
            after=self._after,
            lsn=self._lsn,
            entry=self._entry if self._rows else self._published.entry,
            written=time.time(),
            per_second=self._rate.per_second(self._rows),
        )

    def _commit(self) -> int:
        marker, rows = self._marker(), self._rows
        step("publish-sent")
        if refused := self._broker.commit(marker.text()):
            for topic, reason in refused.items():
                for name in self._targets.senders(topic):
                    if name in self.stopped:  # by a record that was named when it was sent
                        continue
                    window, at = self._published.of(name)
                    where = f"window {window}" if at == END_OF_WINDOW else f"{at} of window {window}"
                    self._stops.add(name, f"an event after {where} is refused: {reason}")
            raise _Refused
        self._published = marker
        self._rows, self._begun = 0, False
        self._rate.add(rows)
        step("publish-complete")
        self._on_commit(Commit(marker.window, self._complete, rows, marker.lsn, marker.stopped))
        check()
        return rows
