"""Publishes until nothing is new, or without end; a broker that is away only delays.

*A lake that cannot be read* (a file system that is not mounted or gives errors) does the same once publishing has begun, if it is to continue
without end; nothing of it is passed over, as places move with what is sent. At the start a second such error in a row ends it, as whoever
has started it can see the reason. A lake that is another one now, or an older copy, always ends it (`start`).
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from cdc_assets.core.interruption import check, sleep
from cdc_assets.core.outages import Outages
from cdc_assets.errors import CdcError, ConnectionLostError, FencedError, LakeError, RetryableError
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.publisher import Publisher

log = logging.getLogger(__name__)

_KAFKA = "Publishing to Kafka"
_POLL_S = 0.25
_STAMP_EVERY_S = 0.02
_AFTER_FENCE_S = 2.0
"""Time that another publisher has to write its first marker, before the marker is read for who has fenced this one."""


def publish(
    publisher: Publisher,
    feed: Feed,
    *,
    follow: bool,
    pause_s: float,
    max_retries: int,
    close: Callable[[], None],
    ends: Callable[[], bool] = lambda: False,
) -> None:
    """Publish what is complete in the lake.

    Args:
        follow: whether to wait for more.
        pause_s: pause before another attempt.
        max_retries: attempts in a row without any progress; -1 for no limit.
        close: ends the connections.
        ends: whether nothing more is to be waited for from now on, neither for events nor for the broker.

    Raises:
        FencedError: another publisher has taken over.
        CdcError: the lake cannot be read, or the broker was away for too long.
    """
    failures, former, outages, begun = 0, None, Outages(), False
    try:
        while True:
            try:
                publisher.open()
                begun = True
                while _turn(publisher, feed, follow=follow, ends=ends):
                    failures, former = 0, None
                    outages.end(_KAFKA)
            except (RetryableError, LakeError, FencedError) as error:
                failures += 1
                if ends() or not _may_succeed(error, former, failures, max_retries, waits=follow and begun):
                    raise
                if isinstance(error, FencedError) and _is_fenced(publisher, outages, pause_s, max_retries, ends):
                    raise
                if isinstance(error, LakeError):
                    feed.forget()
                former = error
                outages.report(log, _KAFKA, error, f"Retrying every {pause_s} s.")
                _pause(pause_s, ends)
            else:
                outages.end(_KAFKA)
                with suppress(ConnectionLostError):  # all is published
                    publisher.record_offset()
                return
    finally:
        close()


def _turn(publisher: Publisher, feed: Feed, *, follow: bool, ends: Callable[[], bool]) -> bool:
    """Publish until nothing is new; whether to look again, in a moment. Returns once anything was published or waited for."""
    check()
    last, stamp = not follow or ends(), feed.commit_stamp()
    if publisher.turn():
        return True
    if not last:
        _await_news(feed, stamp)
    return not last


def _await_news(feed: Feed, stamp: int | None) -> None:
    """Wait for a commit of the manifest since it had this stamp; at most until the next look is due, which sees all that is new."""
    until = time.monotonic() + _POLL_S
    while (left := until - time.monotonic()) > 0 and feed.commit_stamp() == stamp:
        sleep(min(left, _POLL_S if stamp is None else _STAMP_EVERY_S))


def _pause(seconds: float, ends: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not ends() and (left := until - time.monotonic()) > 0:
        sleep(min(left, _POLL_S))


def _may_succeed(error: CdcError, former: CdcError | None, failures: int, max_retries: int, *, waits: bool) -> bool:
    """Whether another attempt may succeed.

    A file that is gone was perhaps joined with others while it was read: the tables are opened again, once. A store that does not answer
    raises what is waited for, as a broker does.

    Args:
        waits: whether a lake that cannot be read is waited for, too.
    """
    if isinstance(error, FencedError) or (isinstance(error, LakeError) and not isinstance(former, LakeError)):
        return True
    return (waits or not isinstance(error, LakeError)) and (max_retries < 0 or failures <= max_retries)


def _is_fenced(
    publisher: Publisher, outages: Outages, pause_s: float, max_retries: int, ends: Callable[[], bool]
) -> bool:
    """Whether another publisher has ended this one, and not the broker. Who opens a broker without knowing ends the newer publisher, so
    the answer is waited for if the broker goes away meanwhile."""
    sleep(_AFTER_FENCE_S)
    for attempt in count(1):
        try:
            return publisher.is_fenced()
        except RetryableError as error:
            if ends() or 0 <= max_retries < attempt:
                raise
            outages.report(log, _KAFKA, error, f"Checking every {pause_s} s which publisher has fenced this one.")
            _pause(pause_s, ends)
    return True
