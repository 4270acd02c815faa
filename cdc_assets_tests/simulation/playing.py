"""Plays histories: one thread at a time, by the clock of nobody."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from cdc_assets.connectors.reader import files
from cdc_assets.incremental import rounds
from cdc_assets.mirror import leaves
from cdc_assets.publish import follow
from cdc_assets_tests.quick_tables import forget_tables, quick_tables
from cdc_assets_tests.simulation.serial import forget_rows, with_known_rows, with_names, without_clock, without_threads
from cdc_assets_tests.simulation.world import MAX_CHUNKS, World


@contextmanager
def alone(*, on_delta_rs: bool = False) -> Iterator[None]:
    """Within it the product has no threads and waits for no real time.

    Args:
        on_delta_rs: whether its tables are delta-rs's, and not quick ones.
    """
    with pytest.MonkeyPatch.context() as patch:
        without_threads(patch)
        without_clock(patch)
        patch.setattr(follow, "_AFTER_FENCE_S", 0.0)
        patch.setattr(rounds, "MAX_CHUNKS", MAX_CHUNKS)
        patch.setattr(rounds, "ROUND_S", 1e9)
        patch.setattr(leaves, "LEAF_BYTES", leaves.LEAF_BYTES)
        patch.setattr(files, "_LIST_EVERY_S", 1e9)
        if not on_delta_rs:
            with_known_rows(patch)
        with nullcontext() if on_delta_rs else quick_tables():
            yield


def play(folder: Path, seed: int, without: Collection[int] = ()) -> tuple[World, BaseException | None]:
    """One history, and what was wrong with it.

    Args:
        folder: an empty one.
        without: numbers of events that do not happen.
    """
    with pytest.MonkeyPatch.context() as patch:
        with_names(patch, seed)
        world = World(folder, seed)
        try:
            world.play(without)
        except BaseException as fault:  # noqa: BLE001 - told with the history
            return world, fault
        finally:
            forget_tables(folder)  # of a thousand histories it would all take gigabytes
            forget_rows()
    return world, None
