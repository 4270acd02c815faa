"""When a run has last told what it sees of its capture, for the sensor, which looks itself if that is long ago.

Dagster's status of a run does not say whether anybody looks: a run may be queued, start, be frozen, or be at work on something else.
So a run records the time of each look that it has told, in the store that Dagster's daemons have for such values: one small
row for each capture, written over and over. A time that is far from now, in either direction, says nothing: a clock
was set, or those of two machines differ; then two look, which harms nobody.

*Crash:* the time gets old, and the sensor looks.
"""

import time

import dagster as dg

FRESH_S = 12.0
"""Seconds after which a look is no longer new."""


def note_seen(instance: dg.DagsterInstance, page: dg.AssetKey) -> None:
    """Record that a run has just told what it sees.

    Args:
        page: the asset that carries the capture's page.
    """
    instance.run_storage.set_cursor_values({_name(page): repr(time.time())})


def was_just_seen(instance: dg.DagsterInstance, page: dg.AssetKey) -> bool:
    """Whether a run has told what it sees not longer than `FRESH_S` ago."""
    recorded = instance.run_storage.get_cursor_values({_name(page)}).get(_name(page))
    return recorded is not None and abs(time.time() - float(recorded)) <= FRESH_S


def _name(page: dg.AssetKey) -> str:
    return f"cdc_assets/seen/{page.to_user_string()}"
