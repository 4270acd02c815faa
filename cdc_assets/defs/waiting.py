"""Lets the tick of an idle capture wait for the next change.

Dagster's daemon evaluates a sensor every five seconds, whatever its interval is, so that a change waited for 2.5 seconds in
the median before anyone looked. A tick that finds nothing therefore goes on to look every `poll.interval.ms`, with a small
question to each database over one connection, for `sensor.wait.ms` in all, which ends before the daemon looks again. What it then answers is decided anew, as by a tick that begins at that moment: a run may have been started by hand meanwhile.

A waiting tick holds a thread of the daemon and one of the code server. So one capture of a code location waits at a time, and
none if the daemon evaluates all sensors in one thread (`sensors: {use_threads: true}` in `dagster.yaml` is needed), or if the
sensor is evaluated by a program and not by the daemon.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import monotonic, sleep

import dagster as dg

from cdc_assets.errors import CdcError

_TURN = threading.Lock()

Asks = Callable[[], bool]
"""Whether something has come that was not read; one cheap query."""


def change_comes(
    context: dg.SensorEvaluationContext,
    began: float,
    wait_s: float,
    every_s: float,
    connected: Callable[[], AbstractContextManager[Asks]],
) -> bool:
    """Wait, if this tick may, until something has come that was not read; returns whether it has.

    Args:
        began: when the tick began, on the monotonic clock.
        wait_s: how long a tick may take.
        every_s: interval between two questions.
        connected: opens a connection over which the questions are asked.
    """
    until = began + wait_s
    if monotonic() + every_s >= until or not _may_wait(context) or not _TURN.acquire(blocking=False):
        return False
    try:
        with connected() as has_come:
            while monotonic() + every_s < until:
                sleep(every_s)
                if has_come():
                    return True
        return False
    except CdcError:  # the next tick tells it, if it lasts
        return False
    finally:
        _TURN.release()


def _may_wait(context: dg.SensorEvaluationContext) -> bool:
    """Whether the daemon evaluates the sensor, in a thread that others do not wait for."""
    return context.instance_ref is not None and bool(context.instance.get_sensor_settings().get("use_threads"))
