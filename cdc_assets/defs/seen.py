"""When a run last reported the state of its capture; if that is long ago, the sensor reports it.

Dagster's status of a run does not say whether a run reports: it may be queued, start, be frozen, or be at work on something else.
So a run records the time of each report, in the store that Dagster's daemons have for such values: one small
row for each capture, written over and over. A time that is far from now, in either direction, says nothing: a clock
was set, or those of two machines differ; then both report, which is harmless.

*Crash:* the time gets old, and the sensor reports.
"""

import time

import dagster as dg

FRESH_S = 12.0
"""Seconds after which a report is no longer new."""
SILENT_S = 120.0
"""Seconds that a run may take to begin, and to its first report."""


def note_seen(instance: dg.DagsterInstance, page: dg.AssetKey) -> None:
    """Record that a run has just reported.

    Args:
        page: the asset that carries the capture's page.
    """
    instance.run_storage.set_cursor_values({_name(page): repr(time.time())})


def was_just_seen(instance: dg.DagsterInstance, page: dg.AssetKey) -> bool:
    """Whether a run has reported within the last `FRESH_S`."""
    return was_seen(instance, page, FRESH_S)


def was_seen(instance: dg.DagsterInstance, page: dg.AssetKey, within_s: float) -> bool:
    """Whether a run has reported within the last so many seconds."""
    return _seen_for_s(instance, page) <= within_s


def is_silent(instance: dg.DagsterInstance, page: dg.AssetKey) -> bool:
    """Whether no run has reported for so long that none at work can be expected to."""
    return _seen_for_s(instance, page) > SILENT_S


def _seen_for_s(instance: dg.DagsterInstance, page: dg.AssetKey) -> float:
    recorded = instance.run_storage.get_cursor_values({_name(page)}).get(_name(page))
    return float("inf") if recorded is None else abs(time.time() - float(recorded))


def _name(page: dg.AssetKey) -> str:
    return f"cdc_assets/seen/{page.to_user_string()}"
