"""Publishes until nothing is new, or without end; a broker that is away only delays."""

import logging
import time
from collections.abc import Callable

from cdc_assets.core.interruption import check, sleep
from cdc_assets.core.outages import Outages
from cdc_assets.errors import CdcError, FencedError, LakeError, RetryableError
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.publisher import Publisher

log = logging.getLogger(__name__)

_KAFKA = "Publishing to Kafka"
_LOOK_EVERY_S = 0.25
_STAMP_EVERY_S = 0.02
_AFTER_FENCE_S = 2.0
"""Time that another publisher has to write its first marker, before the marker is asked who has fenced this one."""


def publish(
    publisher: Publisher,
    feed: Feed,
    *,
    follow: bool,
    pause_s: float,
    most_retries: int,
    close: Callable[[], None],
    ends: Callable[[], bool] = lambda: False,
) -> None:
    """Publish what is complete in the lake.

    Args:
        follow: whether to wait for more.
        pause_s: pause before another attempt.
        most_retries: attempts in a row without any progress; -1 for no limit.
        close: ends the connections.
        ends: whether nothing more is to be waited for from now on, neither for events nor for the broker.

    Raises:
        FencedError: another publisher has taken over.
        CdcError: the lake cannot be read, or the broker was away for too long.
    """
    failures, outages = 0, Outages()
    try:
        while True:
            try:
                publisher.open()
                while _turn(publisher, feed, follow=follow, ends=ends):
                    failures = 0
                    outages.end(_KAFKA)
            except (RetryableError, LakeError, FencedError) as error:
                failures += 1
                if ends():
                    raise
                _check_again(publisher, feed, error, failures, most_retries)
                outages.tell(log, _KAFKA, error, f"Trying again every {pause_s} s.")
                _pause(pause_s, ends)
            else:
                outages.end(_KAFKA)
                publisher.record_place()
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
    until = time.monotonic() + _LOOK_EVERY_S
    while (left := until - time.monotonic()) > 0 and feed.commit_stamp() == stamp:
        sleep(min(left, _LOOK_EVERY_S if stamp is None else _STAMP_EVERY_S))


def _pause(seconds: float, ends: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not ends() and (left := until - time.monotonic()) > 0:
        sleep(min(left, _LOOK_EVERY_S))


def _check_again(publisher: Publisher, feed: Feed, error: CdcError, failures: int, most_retries: int) -> None:
    """Raise the error unless another attempt may succeed.

    A file that is gone was perhaps joined with others while it was read: the tables are opened anew, once.
    """
    if isinstance(error, FencedError):
        sleep(_AFTER_FENCE_S)
        if publisher.is_fenced():
            raise error
    elif isinstance(error, LakeError):
        if failures > 1:
            raise error
        feed.forget()
    elif 0 <= most_retries < failures:
        raise error
