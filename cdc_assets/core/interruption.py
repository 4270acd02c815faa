"""Ends a run soon and at a safe point when SIGINT or SIGTERM requests it, whatever it is waiting for.

The signals only set a request. Code that is about to wait, or to start work elsewhere, uses one of these:

* `check` and `sleep` raise `Interrupted` in the thread that calls them;
* `cancelled_by` takes a function that ends a wait which Python cannot end by itself: a statement of a driver, a job of
  Spark. It is called repeatedly until the wait is over, because the work may begin a moment after the first call;
* `in_thread` is for a wait that nothing can end, such as a login: its thread is abandoned.

A block that may not take longer (`limited`) is ended in the same way.

*Why a handler that raises is not enough.* Python runs handlers in the main thread between two bytecode instructions: a
driver that waits for the server delays them for minutes, other threads never see the exception, and one raised inside a
destructor is dropped. Libraries such as pyspark replace our handlers. So the request is read from the wake-up pipe,
which C code writes to at once, whatever handler is installed.

*Safe points.* The server or Spark may fail at each of these places as well, so an interruption has the consequences of
such an error: nothing is committed in part (`core.steps` names what is true at each step), and locks and sessions are
released. A commit is never interrupted.

A second signal raises at once, wherever the main thread is executing.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, TypeVar

log = logging.getLogger(__name__)

PATIENCE_S: Final = 20.0
"""Seconds the block of `listening` may take to end before `stuck` is called."""
_RETRY_AFTER_S = 0.25
"""Seconds between two calls of a cancel function."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LEFT = 0
"""Written to the pipe by the block's end; no signal has this number."""

T = TypeVar("T")


class Interrupted(KeyboardInterrupt):
    """The run was to end. As with `KeyboardInterrupt`, `except Exception` does not catch it."""


class _Request:
    """Whether this process is to end, and what must be cancelled then. Signals are per process, so there is one
    instance."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.signals = 0
        """Number of signals that the main thread has handled."""
        self.listening = False
        self.lock = threading.Lock()
        self.cancels: dict[object, Callable[[], object]] = {}


_request = _Request()


def is_requested() -> bool:
    """Whether the run is to end, for code that ends something first."""
    return _request.asked.is_set()


def check() -> None:
    """Raise `Interrupted` if the run is to end."""
    if _request.asked.is_set():
        raise Interrupted


def sleep(seconds: float) -> None:
    """Wait for `seconds`; raise `Interrupted` as soon as the run is to end."""
    if _request.asked.wait(max(0.0, seconds)):
        raise Interrupted


@contextmanager
def cancelled_by(cancel: Callable[[], object]) -> Iterator[None]:
    """Mark a block that waits for work elsewhere.

    Args:
        cancel: function that makes the block fail soon; called repeatedly from another thread, also when there is
            nothing to cancel.

    Raises:
        Interrupted: the run is to end, before the block or while it waited.
    """
    check()
    key = object()
    with _request.lock:
        _request.cancels[key] = cancel
    try:
        yield
    except Exception as error:
        if _request.asked.is_set():
            raise Interrupted from error
        raise
    finally:
        with _request.lock:
            del _request.cancels[key]


def in_thread(function: Callable[[], T]) -> T:
    """Call a function in a thread and return or raise its result; if the run is to end, abandon the thread.

    Raises:
        Interrupted: the run is to end.
    """
    if not _request.listening:
        return function()
    check()
    done, outcome = threading.Event(), list[T]()
    failure: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            failure.append(error)
        done.set()

    threading.Thread(target=work, name="interruptible", daemon=True).start()
    with cancelled_by(done.set):
        done.wait()
    if failure:
        raise failure[0]
    if not outcome:
        raise Interrupted
    return outcome[0]


@contextmanager
def limited(seconds: float | None) -> Iterator[threading.Event]:
    """End the run when a block has taken so long, at its next safe point, as a signal does.

    Args:
        seconds: None sets no limit.

    Yields:
        An event that is set when the time is over; code that has ended for that reason raises `Interrupted`.
    """
    over, left = threading.Event(), threading.Event()

    def wait() -> None:
        if not left.wait(seconds):
            over.set()
            _request.asked.set()
            _cancel(left)

    waiting = threading.Thread(target=wait, name="limit", daemon=True)
    waiting.start()
    try:
        yield over
    finally:
        left.set()
        waiting.join()
        if over.is_set() and not _request.signals:
            _request.asked.clear()


@contextmanager
def listening(stuck: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Let SIGINT and SIGTERM end a block at its next safe point. No effect outside the main thread.

    Args:
        stuck: function called from another thread if the block has not ended `PATIENCE_S` after the request.
    """
    if threading.current_thread() is not threading.main_thread() or _request.listening:
        yield
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    wakes = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    handlers = {number: signal.signal(number, _handle) for number in heard}
    watcher = threading.Thread(target=_watch, args=(read, wakes, stuck), name="interruption", daemon=True)
    _request.listening = True
    watcher.start()
    try:
        yield
        check()
    except Exception as error:
        if _request.asked.is_set():  # a failure that comes at the same moment must not be repeated in its place
            raise Interrupted from error
        raise
    finally:
        signal.set_wakeup_fd(wakes)
        for number, handler in handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        os.write(write, bytes([_LEFT]))
        watcher.join(_RETRY_AFTER_S * 4)
        os.close(write)
        _request.listening, _request.signals = False, 0
        _request.asked.clear()


def _handle(number: int, frame: FrameType | None) -> None:
    """Record the request. The pipe may have recorded the first signal already; both do the same."""
    _request.signals += 1
    _request.asked.set()
    if _request.signals > 1:
        raise Interrupted


def _watch(read: int, wakes: int, stuck: Callable[[], None]) -> None:
    """Read the pipe until the block has ended; after a signal, call the cancel functions until then."""
    left = threading.Event()
    helper: threading.Thread | None = None
    while not left.is_set():
        for number in os.read(read, 64):
            if number == _LEFT:
                left.set()
            elif number in _SIGNALS and helper is None:
                _request.asked.set()
                log.warning("%s received; stopping at the next safe point.", signal.Signals(number).name)
                helper = threading.Thread(target=_cancel, args=(left,), name="cancellation", daemon=True)
                helper.start()
                threading.Thread(target=_lose_patience, args=(left, stuck), name="patience", daemon=True).start()
            if number != _LEFT and wakes >= 0:
                with suppress(OSError):
                    os.write(wakes, bytes([number]))
    os.close(read)


def _cancel(left: threading.Event) -> None:
    while not left.is_set():
        with _request.lock:
            cancels = list(_request.cancels.values())
        for cancel in cancels:
            with suppress(Exception):  # there may be nothing to cancel any more
                cancel()
        left.wait(_RETRY_AFTER_S)


def _lose_patience(left: threading.Event, stuck: Callable[[], None]) -> None:
    if not left.wait(PATIENCE_S):
        stuck()
