"""Runs that are believed dead: they sleep at a step, and wake beside or behind their successors."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from cdc_assets.core.steps import listening
from cdc_assets.errors import FencedError


def asleep_at(step: str, meanwhile: Callable[[], None], run: Callable[[], object]) -> None:
    """A run that sleeps when it first reaches a step, until `meanwhile` is over."""
    slept = False

    def sleep(name: str) -> None:
        nonlocal slept
        if name == step and not slept:
            slept = True
            meanwhile()

    with listening(sleep), pytest.raises(FencedError):
        run()
    assert slept


def woken_beside(step: str, place: str, run: Callable[[], object], successor: Callable[[], object]) -> None:
    """A run that sleeps at a step; it wakes when its successor first reaches a place, which waits for its end there."""
    asleep, awake = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        sleeper = pool.submit(threading.get_ident).result()

        def pause(name: str) -> None:
            if threading.get_ident() == sleeper:
                if name == step and not asleep.is_set():
                    asleep.set()
                    awake.wait()
            elif name == place and not awake.is_set():
                awake.set()
                ended.exception()

        with listening(pause):
            ended = pool.submit(run)
            assert asleep.wait(60)
            try:
                successor()
            finally:
                was_woken = awake.is_set()
                awake.set()
            assert was_woken
            assert isinstance(ended.exception(), FencedError)
