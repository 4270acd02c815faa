"""SIGINT and SIGTERM end a run at its next safe point, whatever it waits for and whoever takes the handler away."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from cdc_assets.core import interruption
from cdc_assets.core.interruption import Interrupted, cancelled_by, check, in_thread, limited, listening, sleep
from cdc_assets.errors import ConnectionLostError

SIGNALS = [signal.SIGINT, signal.SIGTERM]


def soon(number: int = signal.SIGINT) -> None:
    """Send this process a signal in a moment."""
    threading.Timer(0.05, os.kill, (os.getpid(), number)).start()


@contextmanager
def ended(stuck: Callable[[], None] = lambda: None) -> Iterator[None]:
    """A block that listens, and ends because of a signal."""
    with pytest.raises(Interrupted), listening(stuck):
        yield


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Every block gives back what it found, and forgets that it was asked."""
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    assert [signal.getsignal(number) for number in SIGNALS] == before
    assert signal.set_wakeup_fd(-1) == -1
    check()


@pytest.mark.parametrize("number", SIGNALS)
def test_sleep_is_cut_short(number: int) -> None:
    started = time.monotonic()
    with ended():
        soon(number)
        sleep(30)
    assert time.monotonic() - started < 10


def test_nothing_is_raised_between_safe_points() -> None:
    done = []
    with ended():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        done.append("committed")
        check()
        done.append("not reached")
    assert done == ["committed"]


def test_a_failure_at_the_same_moment_does_not_hide_the_request() -> None:
    @listening()
    def fail(*, asked: bool) -> None:
        if asked:
            os.kill(os.getpid(), signal.SIGINT)
        raise ConnectionError("lost")

    with pytest.raises(Interrupted) as ended_by:
        fail(asked=True)
    assert isinstance(ended_by.value.__cause__, ConnectionError)
    with pytest.raises(ConnectionError):
        fail(asked=False)


def test_second_signal_raises_at_once() -> None:
    with ended():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)


def test_wait_elsewhere_is_cancelled_until_it_ends() -> None:
    calls, over = [0], threading.Event()

    def cancel() -> None:
        calls[0] += 1
        if calls[0] == 2:  # the first call comes before the work has begun
            over.set()
        raise RuntimeError("nothing to cancel")

    with ended(), cancelled_by(cancel):
        soon()
        assert over.wait(30)
        raise ValueError("the statement was cancelled")


def test_error_of_a_wait_that_nobody_cancelled_stays() -> None:
    with pytest.raises(ValueError, match="deadlock"), listening(), cancelled_by(lambda: None):
        raise ValueError("deadlock")


def test_other_threads_are_cancelled_too() -> None:
    over, found = threading.Event(), list[BaseException]()

    def read() -> None:
        try:
            with cancelled_by(over.set):
                over.wait(30)
                raise ValueError("cancelled")
        except BaseException as error:  # noqa: BLE001 - looked at below
            found.append(error)

    with ended():
        thread = threading.Thread(target=read)
        thread.start()
        soon()
        thread.join(30)
        check()
    assert [type(error) for error in found] == [Interrupted]


def test_wait_that_nothing_ends_is_left_behind() -> None:
    never = threading.Event()
    with ended():
        soon()
        in_thread(lambda: never.wait(60))
    never.set()


def test_function_in_a_thread_gives_what_it_gives() -> None:
    def fail() -> None:
        raise ValueError("no login")

    with listening():
        assert in_thread(lambda: 7) == 7
        assert in_thread(lambda: None) is None
        with pytest.raises(ValueError, match="no login"):
            in_thread(fail)


def test_handler_that_a_library_puts_in_place_of_ours_changes_nothing() -> None:
    def take_over(number: int, frame: FrameType | None) -> None:
        pass

    with ended():
        signal.signal(signal.SIGINT, take_over)
        soon()
        sleep(30)


def test_stuck_block_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "PATIENCE_S", 0.05)
    told = threading.Event()
    with ended(told.set):
        os.kill(os.getpid(), signal.SIGTERM)
        assert told.wait(30)
        check()


def test_block_that_ends_in_time_is_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "PATIENCE_S", 0.2)
    told = threading.Event()
    with ended(told.set):
        soon()
        sleep(30)
    assert not told.wait(0.4)


def test_ignored_signal_stays_ignored() -> None:
    """A shell starts what runs in its background so."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with listening():
            os.kill(os.getpid(), signal.SIGINT)
            sleep(0.1)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("wait", [lambda: sleep(0.01), check, lambda: in_thread(lambda: 1)])
def test_without_a_listener_nothing_is_asked(wait: Callable[[], object]) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    wait()


def test_a_block_that_takes_too_long_is_asked_to_end_and_others_are_not() -> None:
    cancelled = threading.Event()
    with listening():
        with limited(0.05) as over:
            with pytest.raises(Interrupted):
                sleep(30)
            with pytest.raises(Interrupted), cancelled_by(cancelled.set):
                pytest.fail("nothing begins after the end")
        assert over.is_set()
        check()
        with limited(0.05), pytest.raises(Interrupted), cancelled_by(cancelled.set):
            _end_when(cancelled)
        with limited(30) as over:
            sleep(0)
        assert not over.is_set()
        with limited(None):
            sleep(0)
    assert cancelled.is_set()


def _end_when(cancelled: threading.Event) -> None:
    """A driver's wait that ends with an error of its own once it is cancelled."""
    assert cancelled.wait(30)
    raise ConnectionLostError("cancelled")


def test_a_signal_in_a_limited_block_ends_what_is_around_it() -> None:
    with ended(), limited(30) as over:
        soon()
        with pytest.raises(Interrupted):
            sleep(30)
        assert not over.is_set()
