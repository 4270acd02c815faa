"""Runs that die, played inside the test's own process: a step raises what nothing handles."""

from collections.abc import Callable
from contextlib import ExitStack, suppress

from cdc_assets.core.interruption import Interrupted, limited, sleep
from cdc_assets.core.steps import listening


class PowerCutError(BaseException):
    """Ends a run as a dying process would: nothing handles it."""


def cut_after(calls: int) -> Callable[[object], None]:
    """Ends a run at the n-th call, with what it was called with as the message; 0 never does."""
    left = calls

    def count(called_with: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise PowerCutError(called_with)

    return count


def ask_to_end(asked: ExitStack) -> None:
    """Ask the run at work to end; the request is withdrawn when a stack is left."""
    asked.enter_context(limited(0.0))
    with suppress(Interrupted):
        sleep(60)


def cut_at(step: str, times: int = 1) -> listening:
    """Within this context a run ends when it reaches a step for the n-th time; 0 and an empty name never do."""
    count = cut_after(times)

    def cut(name: str) -> None:
        if name == step:
            count(name)

    return listening(cut)
