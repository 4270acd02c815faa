"""How a run that is asked to end does so: soon, at a safe point, and whatever it waits for.

SIGINT and SIGTERM only *ask*. Whoever is about to wait, or to give work away, says so here:

* `check` and `sleep` raise `Interrupted` in the thread that calls them;
* `cancelled_by` names what ends a wait that Python cannot end by itself: a statement of a driver, a job of Spark. It is
  called until the wait is over, for the work may begin only a moment after the first call;
* `in_thread` is for a wait that nothing can end, such as a login: it is left to itself.

*Why a handler that raises is not enough.* Python runs handlers in the main thread between two of its own instructions: a
driver that waits for the server keeps it from them for minutes, other threads never see it, and what is raised inside a
destructor is dropped. Libraries put handlers of their own in the place of ours, as pyspark does. So the request is taken
from the wake-up pipe, which C code writes to at once, whatever handler is in force.

*Safe points.* Each of these places is one at which the server or Spark may fail as well, so what follows is what follows
such an error: nothing is committed in part (`core.steps` names what is true at each step), and locks and sessions are
given back. A commit is never cut off.

A second signal raises at once, wherever the main thread is.
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
"""How long the block of `listening` may take to its end before `stuck` is called."""
_AGAIN_S = 0.25
"""Between two calls of what cancels."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LEFT = 0
"""Written to the pipe by the block's end; no signal has this number."""

T = TypeVar("T")


class Interrupted(KeyboardInterrupt):
    """The run was asked to end. As with `KeyboardInterrupt`, no `except Exception` holds it up."""


class _Request:
    """Whether this process was asked to end, and what must be cancelled then; signals are a process's, so there is one."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.signals = 0
        """That the main thread has handled."""
        self.listening = False
        self.lock = threading.Lock()
        self.cancels: dict[object, Callable[[], object]] = {}


_request = _Request()


def check() -> None:
    """Raise `Interrupted` if the run was asked to end."""
    if _request.asked.is_set():
        raise Interrupted


def sleep(seconds: float) -> None:
    """Wait, but not longer than until the run is asked to end; raises `Interrupted` then."""
    if _request.asked.wait(max(0.0, seconds)):
        raise Interrupted


@contextmanager
def cancelled_by(cancel: Callable[[], object]) -> Iterator[None]:
    """A block that waits for work elsewhere.

    Args:
        cancel: makes the block fail soon; called from another thread, repeatedly, also when nothing is to be cancelled.

    Raises:
        Interrupted: the run was asked to end, before the block or while it waited.
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
    """What a function returns or raises; if the run is asked to end, the function is left behind in its thread.

    Raises:
        Interrupted: it was.
    """
    if not _request.listening:
        return function()
    check()
    done, outcome = threading.Event(), list[T]()
    failure: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
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
def listening(stuck: Callable[[], None] = lambda: None) -> Iterator[None]:
    """A block that SIGINT and SIGTERM end at its next safe point. In a thread other than the main one they do not.

    Args:
        stuck: called, from another thread, if the block has not ended `PATIENCE_S` after it was asked to.
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
    finally:
        signal.set_wakeup_fd(wakes)
        for number, handler in handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        os.write(write, bytes([_LEFT]))
        watcher.join(_AGAIN_S * 4)
        os.close(write)
        _request.listening, _request.signals = False, 0
        _request.asked.clear()


def _handle(number: int, frame: FrameType | None) -> None:
    """The pipe has told the first signal already, perhaps: both do the same."""
    _request.signals += 1
    _request.asked.set()
    if _request.signals > 1:
        raise Interrupted


def _watch(read: int, wakes: int, stuck: Callable[[], None]) -> None:
    """Read the pipe until the block has left; once a signal came, see to it that the block leaves."""
    left = threading.Event()
    helper: threading.Thread | None = None
    while not left.is_set():
        for number in os.read(read, 64):
            if number == _LEFT:
                left.set()
            elif number in _SIGNALS and helper is None:
                _request.asked.set()
                log.warning("Asked to end (%s): this run ends at the next safe point.", signal.Signals(number).name)
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
            with suppress(Exception):  # there may be nothing left to cancel
                cancel()
        left.wait(_AGAIN_S)


def _lose_patience(left: threading.Event, stuck: Callable[[], None]) -> None:
    if not left.wait(PATIENCE_S):
        stuck()
