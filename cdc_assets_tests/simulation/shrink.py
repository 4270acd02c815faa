"""Makes a failing history shorter: `python -m cdc_assets_tests.simulation.shrink SEED [--plays N]`.

Events are left out, first many at once, as long as the history fails in the same way. Each event has random numbers of its own, so
those that stay are as they were, but for who goes on when.
"""

import argparse
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from cdc_assets_tests.simulation.mix import LENGTHS
from cdc_assets_tests.simulation.playing import alone, play

Failure = Callable[[frozenset[int]], str]
"""How a history without some events fails; empty if it does not."""


def shrunk(count: int, failure: Failure, plays: int) -> Sequence[int]:
    """Numbers of events that are enough for the same failure.

    Args:
        count: number of events.
        plays: how often at most a history is played.
    """
    kept, size = list(range(count)), count // 2
    wanted = failure(frozenset())
    while size and wanted and plays > 0:
        at = 0
        while at < len(kept) and plays > 0:
            fewer, plays = kept[:at] + kept[at + size :], plays - 1
            if failure(frozenset(range(count)).difference(fewer)) == wanted:
                kept = fewer
            else:
                at += size
        size //= 2
    return kept


def failure_of(seed: int, without: frozenset[int]) -> tuple[str, str]:
    """How a history fails, without numbers and names; and all that happened."""
    with tempfile.TemporaryDirectory() as folder:
        world, fault = play(Path(folder), seed, without)
    kind = "" if fault is None else f"{type(fault).__name__}: {re.sub(r'[^a-z ]', '', str(fault))[:60]}"
    return kind, "\n".join([*world.said, repr(fault)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--plays", type=int, default=60, help="how often at most a history is played")
    options = parser.parse_args()
    with alone():
        most = max(LENGTHS)
        kept = shrunk(most, lambda without: failure_of(options.seed, without)[0], options.plays)
        _, said = failure_of(options.seed, frozenset(range(most)).difference(kept))
    print(f"{len(kept)} events are enough:\n{said}")  # noqa: T201


if __name__ == "__main__":
    main()
