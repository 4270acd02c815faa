"""Checks, beside the connector, whether its database answers.

A connector whose network falls silent waits for ever and seems to have nothing new: no byte comes, and no error. So
a thread opens a connection of its own every few seconds. While the database does not answer, quiet proves nothing, and the
run is not idle; after a few vain checks it ends with a retryable error. Checks are counted, and not
time, which also passes while this process is stopped. Where the database shows whether somebody reads its log for this capture,
a connection that only the connector has lost is found, too.

Without a driver for the database nothing is watched; then only the connector reports what it notices.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from cdc_assets.connectors.engine.feed import Chunk, EngineFeed
from cdc_assets.connectors.engine.source import SourceProbe
from cdc_assets.errors import CdcError, ConnectionLostError, EngineError

log = logging.getLogger(__name__)

OpenProbe = Callable[[], AbstractContextManager[SourceProbe]]
_EVERY_S: Final = 4.0
_IN_VAIN: Final = 3
_NOT_READ: Final = 8
"""Checks after which a log without a reader means a lost connection; a connector pauses between two phases."""
_FRESH_S: Final = 15.0


class SourceWatch:
    """Checks until it is closed.

    Args:
        open_probe: a new connection to the database.
        every_s: seconds between two checks.
    """

    def __init__(self, open_probe: OpenProbe, every_s: float = _EVERY_S) -> None:
        self._open, self._every_s = open_probe, every_s
        self._closed = threading.Event()
        self._in_vain = self._not_read = self._strange = 0
        self._reason, self._answered = "", time.monotonic()
        self._blind = False
        threading.Thread(target=self._run, name="source-watch", daemon=True).start()

    @property
    def answers(self) -> bool:
        """Whether the database answered a moment ago, or cannot be queried at all."""
        return self._blind or (self._in_vain == 0 and time.monotonic() - self._answered < _FRESH_S)

    def trouble(self, *, streams: bool) -> str:
        """Why the connector's connection must be lost; empty if nothing speaks for it.

        Args:
            streams: whether the connector reads the log now.
        """
        if self._in_vain >= _IN_VAIN:
            return f"The database has not answered {self._in_vain} times in a row: {self._reason}"
        if streams and self._not_read >= _NOT_READ:
            return (
                "The database answers, but the connector has lost its connection and does not read the log. "
                "Next: check what lies between, such as a firewall that drops quiet connections."
            )
        self._not_read = self._not_read if streams else 0
        return ""

    def close(self) -> None:
        """Stop checking."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self._every_s):
            try:
                with self._open() as probe:
                    self._note(probe.check_replication())
            except EngineError as error:
                log.info("Whether the database answers is not watched: %s", error)
                self._blind = True
                return
            except ConnectionLostError as error:
                self._in_vain, self._reason = self._in_vain + 1, str(error)
            except CdcError:  # a refusal is an answer
                self._note(None)
            except Exception as error:  # noqa: BLE001 - of a driver's own: without this thread the run would never end
                self._strange += 1
                if self._strange < _IN_VAIN:  # a connection that breaks off may bring one, too, which proves nothing
                    continue
                log.warning("Whether the database answers is not watched any more: %s: %s", type(error).__name__, error)
                self._blind = True
                return
            else:
                self._strange = 0

    def _note(self, is_read: bool | None) -> None:
        self._not_read = self._not_read + 1 if is_read is False else 0
        self._in_vain, self._answered = 0, time.monotonic()


class WatchedFeed:
    """A feed that is not idle, and ends, while its database does not answer.

    Args:
        feed: the connector.
        watch: of its database; closed with the feed.
    """

    def __init__(self, feed: EngineFeed, watch: SourceWatch) -> None:
        self._feed, self._watch = feed, watch

    @property
    def started(self) -> bool:
        """Whether the connector reads its source, and the source answers."""
        return self._feed.started and self._watch.answers

    @property
    def snapshot(self) -> bool:
        """Whether the connector takes a snapshot."""
        return self._feed.snapshot

    def next(self, timeout_s: float) -> Chunk | None:
        """The next chunk.

        Raises:
            EngineError: the connector has ended.
            ConnectionLostError: the database does not answer, or the connector has lost it.
        """
        chunk = self._feed.next(timeout_s)
        if chunk is None:
            streams = self._feed.started and not self._feed.snapshot
            if text := self._watch.trouble(streams=streams):
                raise ConnectionLostError(text)
        return chunk

    def committed(self, number: int) -> None:
        """All chunks to this one are in the lake."""
        self._feed.committed(number)

    def close(self) -> None:
        """End the connector."""
        self._watch.close()
        self._feed.close()
