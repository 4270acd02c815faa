"""What a client of Spark Connect has to see to itself: a server that is away, and a server without executors.

pyspark repeats a call to a server that does not answer for ten minutes, without a word. A run has repetitions of its own
(`errors.max.retries`), which are logged; so a call is repeated for as long as a network is disturbed, and no longer.

A client cannot see executors, but the server reports how many tasks of a query run, each time that their number changes.
"""

import threading
from typing import Any

from pyspark.sql import SparkSession

_CALLS = 18
_LONGEST_PAUSE_MS = 2000
"""After pauses of 0.05, 0.2 and 0.8 s: half a minute."""
_READY_S = 20.0


def wait_until_ready(remote: str) -> None:
    """Return when what listens at an address speaks the protocol of a Connect server.

    Raises:
        TimeoutError: it does not.
        ImportError: the packages of the extra `connect` are missing.
    """
    import grpc  # type: ignore[import-untyped]
    from pyspark.sql.connect.client import DefaultChannelBuilder

    channel = DefaultChannelBuilder(remote).toChannel()
    try:
        grpc.channel_ready_future(channel).result(_READY_S)
    except grpc.FutureTimeoutError as error:
        raise TimeoutError(f"no Spark Connect server answers within {_READY_S:g} s") from error
    finally:
        channel.close()


def limit_repetitions(session: SparkSession) -> None:
    """Let calls of a Connect session fail when its server has been away for half a minute."""
    from pyspark.sql.connect.client.retries import DefaultPolicy  # it needs the packages of the extra `connect`

    session.client.set_retry_policies([DefaultPolicy(max_retries=_CALLS, max_backoff=_LONGEST_PAUSE_MS)])


def abandon(session: SparkSession) -> None:
    """Close the client of a Connect session that has ended, without waiting for its server."""
    session.client.set_retry_policies([])
    session.stop()


class Progress:
    """Whether a Connect server runs tasks of this session.

    Args:
        session: Connect session.
    """

    def __init__(self, session: SparkSession) -> None:
        self._lock, self._running = threading.Lock(), dict[str, int]()
        self.reported = False
        """Whether the server has reported anything; it may be configured not to."""
        session.registerProgressHandler(self._hear)

    @property
    def running(self) -> bool:
        """Whether tasks run, by the newest report of each query."""
        with self._lock:
            return any(self._running.values())

    def _hear(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        with self._lock:
            if done:
                self._running.pop(str(operation_id), None)
            else:
                self.reported = True
                self._running[str(operation_id)] = inflight_tasks
