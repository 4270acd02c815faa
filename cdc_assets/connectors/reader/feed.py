"""A source of messages as the feed of a run: chunks of columns, and the place of each partition or file after them.

*Why exactly once.* The run records the offsets of a batch with its files in one commit, and starts the next feed after
them (`engine.run`). An offset is a partition's, or a file's, so nothing is known of an order among them and none is
needed. Nothing is dropped for its position in the database: what a connector wrote twice is there twice.

*A record that cannot be read* stops its partition or file right before it, for this run: all before it goes into the lake,
and other partitions continue, and files that cannot hold events of the same topic. With `errors.tolerance=all` it becomes an
event of `<prefix>.rejected` instead.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from cdc_assets.connectors.engine.feed import Chunk, Offsets
from cdc_assets.connectors.reader.encode import Encoder
from cdc_assets.connectors.reader.messages import Message, Part, Schema, Unreadable, one_line
from cdc_assets.errors import LakeError

log = logging.getLogger(__name__)

Item = Message | Unreadable

_TEXT: Final = {"type": "string", "optional": True}
_REJECTED: Final[Schema] = {
    "type": "struct",
    "optional": False,
    "name": "cdc_assets.Rejected",
    "fields": [{**_TEXT, "field": name} for name in ("place", "topic", "reason", "key", "value")],
}


class Source(Protocol):
    """Where messages come from."""

    def read(self, timeout_s: float) -> Sequence[Item]:
        """Messages that are new, those of a stream in their order; none if nothing comes within this time."""

    @property
    def caught_up(self) -> bool:
        """Whether each stream that is read on has been read to its end once."""

    def begun(self) -> Mapping[str, int]:
        """Streams that are not read from their beginning, with their places; each is reported once."""

    def offset(self, stream: str, next_offset: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """What is recorded for a stream: which it is, and where to continue."""

    def stop(self, stream: str) -> None:
        """Read no more of a stream."""

    def waits(self, stream: str, stopped: str) -> bool:
        """Whether nothing more may come of a stream if another one, or itself, is stopped."""

    def committed(self, next_offsets: Mapping[str, int]) -> None:
        """All before these places is in the lake."""

    def close(self) -> None:
        """End the connections."""


Opening = Callable[[Offsets, Callable[[str, str], None]], Source]
"""Opens a source after offsets; it is given how to report a stream that it cannot read on."""


class Reader:
    """Starts feeds, and keeps what they could not read.

    Args:
        opening: opens the source.
        encoder: of this run.
        prefix: topic prefix.
        tolerant: whether records that cannot be read are put aside.
    """

    def __init__(self, opening: Opening, encoder: Encoder, prefix: str, *, tolerant: bool) -> None:
        self._opening, self._encoder, self._prefix, self._tolerant = opening, encoder, prefix, tolerant
        self.stopped: dict[str, str] = {}
        """Why streams were not read on."""

    def __call__(self, offsets: Offsets, history: Sequence[str]) -> "ReaderFeed":
        return ReaderFeed(self._opening(offsets, self.stop), self._encoder, self._aside, self.stop)

    def stop(self, stream: str, reason: str) -> None:
        """Note that a stream is not read on, and why."""
        reason = reason.rstrip(".")  # it becomes part of a sentence
        if stream not in self.stopped:
            log.error("%s is not read on: %s.", stream, reason)
            self.stopped[stream] = reason

    def check(self) -> None:
        """Report at the end of a run what was not read.

        Raises:
            LakeError: some stream was not read to its end.
        """
        if self.stopped:
            reasons = "; ".join(self.stopped.values())
            raise LakeError(
                f"{len(self.stopped)} of the partitions or files could not be read to the end: {reasons}. All else is in the "
                "lake. Next: see each reason; a record that cannot be read is corrected or removed where it is, or put into "
                f"{self._prefix}.rejected by errors.tolerance=all."
            )

    def _aside(self, item: Item, reason: str) -> Message | None:
        """What replaces a record that cannot be read; None if it stops its stream."""
        if not self._tolerant:
            return None
        log.warning("%s is put aside: %s.", item.place, reason)
        sides = (item.key, item.value) if isinstance(item, Message) else (None, None)
        texts = [None if part is None else part.text for part in sides]
        if isinstance(item, Unreadable):
            texts = [None, item.raw]
        shown = dict(
            zip(("place", "topic", "reason", "key", "value"), (item.place, item.topic, reason, *texts), strict=True)
        )
        value = {name: _printable(text) for name, text in shown.items()}
        part = Part(_REJECTED, one_line(value), value)
        return Message(item.stream, item.next_offset, item.place, f"{self._prefix}.rejected", None, part)


def _printable(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "replace").decode()


class ReaderFeed:
    """One run's feed.

    Args:
        source: of messages.
        encoder: of their columns.
        aside: what replaces a record that cannot be read; None if it stops its stream.
        stopped: called with the reason why a stream is not read on.
    """

    def __init__(
        self,
        source: Source,
        encoder: Encoder,
        aside: Callable[[Item, str], Message | None],
        stopped: Callable[[str, str], None],
    ) -> None:
        self._source, self._encoder, self._aside, self._stopped = source, encoder, aside, stopped
        self._number = 0
        self._next_offsets: dict[int, dict[str, int]] = {}

    @property
    def started(self) -> bool:
        """See `EngineFeed`: silence proves nothing before every stream was read to its end."""
        return self._source.caught_up

    @property
    def snapshot(self) -> bool:
        """See `EngineFeed`: a reader resumes anywhere."""
        return False

    def next(self, timeout_s: float) -> Chunk | None:
        """See `EngineFeed`."""
        items = list(self._source.read(timeout_s))
        lines: list[Any] = []
        while items:
            places = [place for place, item in enumerate(items) if isinstance(item, Message)]
            messages = [item for item in items if isinstance(item, Message)]
            lines, wrong = self._encoder.encode(messages)
            reasons = {places[place]: reason for place, reason in wrong.items()}
            reasons |= {place: item.reason for place, item in enumerate(items) if isinstance(item, Unreadable)}
            if not reasons:
                break
            items = self._without(items, reasons)
        next_offsets = {**self._source.begun(), **{item.stream: item.next_offset for item in items}}
        if not next_offsets:
            return None
        self._number += 1
        self._next_offsets[self._number] = next_offsets
        offsets = [self._source.offset(stream, place) for stream, place in next_offsets.items()]
        return Chunk(self._number, lines if items else [], len(items), offsets)

    def _without(self, items: Sequence[Item], reasons: Mapping[int, str]) -> list[Item]:
        """Items up to what cannot be read, or with something in its place."""
        found: list[Item] = []
        ended: set[str] = set()
        for place, item in enumerate(items):
            if any(self._source.waits(item.stream, stream) for stream in ended):
                continue
            kept: Item | None = item
            if place in reasons:
                kept = self._aside(item, reasons[place])
            if kept is not None:
                found.append(kept)
                continue
            ended.add(item.stream)
            self._stopped(item.stream, f"{item.place}: {reasons[place]}")
            self._source.stop(item.stream)
        return found

    def committed(self, number: int) -> None:
        """See `EngineFeed`."""
        next_offsets: dict[str, int] = {}
        for chunk in sorted(chunk for chunk in self._next_offsets if chunk <= number):
            next_offsets |= self._next_offsets.pop(chunk)
        self._source.committed(next_offsets)

    def close(self) -> None:
        """See `EngineFeed`."""
        self._source.close()
