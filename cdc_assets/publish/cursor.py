"""Records of one topic in their order, those that come next known.

While a transaction's records are sent, and while its commit is waited for, the next ones are read and rendered in a thread: one
for all topics, so that a topic's own are made one after the other. What waits is bounded over all topics; a topic for which there
is no room makes its records when they are requested, which happens only while none of its own are under way.
"""

import logging
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Self

from cdc_assets.errors import LakeError, RetryableError, describe_error
from cdc_assets.publish.after import After, after_in
from cdc_assets.publish.feed import Topic
from cdc_assets.publish.offset import END_OF_WINDOW, PublishOffset
from cdc_assets.publish.records import RecordSlice, problem_record
from cdc_assets.publish.render import Renderer
from cdc_assets.publish.rows import between
from cdc_assets.publish.tombstones import undivided

log = logging.getLogger(__name__)

_AHEAD = 4
"""Runs that wait to be sent, over all topics."""


class ReadAhead:
    """Makes slices before they are requested, as long as its context; none is made after its end."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "read-ahead")
        self._free = _AHEAD

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def ask(self, slices: Iterator[RecordSlice], under_way: "deque[Future[RecordSlice | None]]") -> None:
        """Have slices made as far as there is room."""
        while self._free:
            self._free -= 1
            under_way.append(self._pool.submit(next, slices, None))

    def take(self, under_way: "deque[Future[RecordSlice | None]]") -> RecordSlice | None:
        """The oldest one; waits for it."""
        self._free += 1
        return under_way.popleft().result()


class TopicCursor:
    """Records of one topic, the next slice known."""

    def __init__(self, topic: Topic, slices: Iterator[RecordSlice], ahead: ReadAhead) -> None:
        self.topic, self._slices, self._ahead = topic, slices, ahead
        self._under_way: deque[Future[RecordSlice | None]] = deque()
        self.head = next(slices, None)

    @property
    def name(self) -> str:
        """The topic's name in the lake."""
        return self.topic.name

    def has(self, window: int | None) -> bool:
        """Whether the next record is of a window; None is any."""
        return self.head is not None and (window is None or self.head.window == window)

    def take(self, max_rows: int) -> RecordSlice:
        """The next records of `head`."""
        head = self.head
        if head is None:
            raise ValueError("There are no more records.")
        if len(head) > max_rows:
            self.head = head.slice(max_rows, len(head))
            return head.slice(0, max_rows)
        self.head = self._ahead.take(self._under_way) if self._under_way else next(self._slices, None)
        self.read_ahead()
        return head

    def read_ahead(self) -> None:
        """Have the slices after `head` made."""
        if self.head is not None:
            self._ahead.ask(self._slices, self._under_way)


class Unreadable:
    """Lets what ends the reading of a topic end that of no other: its topic stops with the reason.

    A table that cannot be read may have been rewritten meanwhile. So the first such error is raised, and all is opened again; from then on
    it stops its topic, until an attempt succeeds. What is sure to pass is raised each time.
    """

    def __init__(self) -> None:
        self._is_again = False

    def ended(self) -> None:
        """An attempt has succeeded."""
        self._is_again = False

    def guarded(self, slices: Iterator[RecordSlice], offset: PublishOffset, complete: int) -> Iterator[RecordSlice]:
        """A topic's records; in place of what cannot be read, why.

        Args:
            offset: how far the topic is published.
            complete: greatest window that is complete.
        """
        window = min(offset[0] + (offset[1] == END_OF_WINDOW), complete)  # in which what is missing may lie
        try:
            for found in slices:
                window = found.window
                yield found
        except Exception as error:
            if isinstance(error, RetryableError) or (isinstance(error, LakeError) and not self._is_again):
                self._is_again |= isinstance(error, LakeError)
                raise
            log.exception("Events after window %s cannot be published.", window)
            yield problem_record(window, "", describe_error(error))


def unpublished_slices(
    topic: Topic, renderer: Renderer, offset: PublishOffset, starts: After, until: str
) -> Iterator[RecordSlice]:
    """A topic's records behind its place.

    Args:
        starts: commit LSNs after which records are published, by database.
        until: commit LSN up to which they are; empty for all.
    """
    complete, after = topic.complete, after_in(starts, topic.database)
    is_behind = topic.newest is not None and (topic.newest < offset[0] or (topic.newest, END_OF_WINDOW) == offset)
    if topic.numbered and is_behind and topic.rows.has_nothing(offset, complete):  # a mark alone does not show that
        return
    low, high = after and after + END_OF_WINDOW, (until or END_OF_WINDOW) + END_OF_WINDOW
    until_window, newest = (complete, topic.newest) if topic.numbered else (None, None)
    batches = topic.rows.read(
        offset, until_window, newest, own=topic.own_rows, dictionaries=renderer.takes_dictionaries
    )
    # before they are rendered: what is not published cannot stop a topic
    if topic.divided is not None and starts:
        batches = topic.divided(batches, starts)
    if topic.numbered and (after or until):
        batches = (between(batch, low, high) for batch in batches)
    for batch in undivided(batches) if renderer.needs_deletes else batches:
        for one in (one for part in topic.described(batch) for one in renderer.slices(topic.name, part)):
            yield replace(one, partition=0) if topic.in_first_partition else one
