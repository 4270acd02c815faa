"""Signals that wait in the lake, handed to a connector by its signal file.

Who sends a signal (Dagster's job, the launchpad) may be in another container than the run, and share no file with it. So the signal is
left in the lake, and the run that has the connector writes it into the file that this connector reads.

*When a signal is removed from the lake.* When the connector has emptied its file, as it does once it has read it. Until then the run is
not idle, but for so long only: a connector that reads no file must not keep a run for ever.

*The connector may read at any moment*, and empties its file then. So signals are written into an empty file only, all by one write; lines of a
run that died are left to be read.

*Crash between any two steps.* Before the line is written, and before it is read: the signal waits in the lake, and the next run writes
it, unless the file still has that line. Between the connector's reading and the removal: it is written again, so a snapshot may be
taken twice, and its READ events say the same state twice. What the connector has taken up and not recorded in its offsets is lost with
the run, as each line of its file is.
"""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from cdc_assets.connectors.engine.feed import Chunk, EngineFeed
from cdc_assets.connectors.engine.signalled_run import append_lines, holds_signals, signal_line
from cdc_assets.core.signal import Delivery, Signal, SignalChannel
from cdc_assets.errors import CdcError, InvalidValueError

log = logging.getLogger(__name__)

_EVERY_S: Final = 1.0
_GRACE_S: Final = 60.0


class ForwardedSignals:
    """A feed that hands on the signals of a channel while its connector reads the log.

    Args:
        feed: the connector.
        channel: where signals wait.
        path: the connector's signal file.
        every_s: seconds between two checks.
        patience_s: how long the run is not idle for signals that the connector has not read.
        on_handed: called with the signals that were written to it.
    """

    def __init__(
        self,
        feed: EngineFeed,
        channel: SignalChannel,
        path: Path,
        every_s: float = _EVERY_S,
        patience_s: float = _GRACE_S,
        on_handed: Callable[[Sequence[Signal]], None] = lambda _: None,
    ) -> None:
        self._feed, self._channel, self._path, self._on_handed = feed, channel, path, on_handed
        self._every_s, self._patience_s = every_s, patience_s
        self._checked_at: float | None = None
        self._written = 0.0
        self._delivery = Delivery()
        """What was written to the file, and is still in the lake."""

    @property
    def started(self) -> bool:
        """Whether the connector reads its source, and has read what it was handed: then nothing new is idleness."""
        return self._feed.started and self._checked_at is not None and not self._is_waited_for

    @property
    def snapshot(self) -> bool:
        """Whether the connector takes a snapshot, which it could not resume."""
        return self._feed.snapshot

    def next(self, timeout_s: float) -> Chunk | None:
        """The next chunk.

        Raises:
            EngineError: the connector has ended.
        """
        if self._feed.started and not self._feed.snapshot and self._is_due():
            try:
                self._hand_on()
            except CdcError as error:
                log.warning(
                    "Signals that wait in the lake could not be passed to the connector; this is retried: %s", error
                )
        return self._feed.next(timeout_s)

    @property
    def _is_waited_for(self) -> bool:
        return bool(self._delivery.signals) and time.monotonic() - self._written < self._patience_s

    def _is_due(self) -> bool:
        now = time.monotonic()
        if self._checked_at is not None and now - self._checked_at < self._every_s:
            return False
        self._checked_at = now
        return True

    def _hand_on(self) -> None:
        """Remove the signals that the connector has read, and write those that are new."""
        if self._delivery.reached:
            if holds_signals(self._path):
                return
            self._channel.forget(self._delivery)
            self._delivery = Delivery()
        found = self._channel.receive({})
        lines = list[str]()
        for signal in found.signals:
            try:
                lines.append(signal_line(signal))
            except InvalidValueError as error:
                log.warning("Signal %r is ignored: %s", signal.id, error)
        if append_lines(self._path, lines, alone=True):
            self._delivery, self._written = found, time.monotonic()
            self._on_handed(found.signals)

    def committed(self, number: int) -> None:
        """All chunks to this one are in the lake."""
        self._feed.committed(number)

    def close(self) -> None:
        """End the connector."""
        self._feed.close()
