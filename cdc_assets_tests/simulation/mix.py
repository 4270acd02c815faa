"""Of what a history is made: of some events, processes and places, each more often than where all take part.

Where everything happens now and then, the same two things seldom meet twice. So each seed leaves out about a third of what could
happen, and prefers some of the rest; over many seeds each pair meets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Self

LENGTHS: Final = (20, 40, 60, 120)
"""Numbers of events of a history, before its end; the mean is some eighteen windows."""
_ALWAYS: Final = frozenset({"go_on", "work", "scan", "start", "capture", "calm"})
"""What each history has."""
_FACTORS: Final = (0, 0, 1, 1, 1, 4)
_OTHERS: Final = 0.25
"""Share of the places of other stretches that take part, too."""


@dataclass(frozen=True)
class Mix:
    """What takes part in a history.

    Args:
        events: names of events, in their order.
        kinds: how often each kind of process is started.
        places: where something may happen.
        stretches: names of stretches.
    """

    events: Sequence[str]
    kinds: Mapping[str, int]
    places: Sequence[str]
    stretches: Sequence[str]

    @classmethod
    def of(
        cls,
        rng: Random,
        events: Mapping[str, int],
        kinds: Mapping[str, int],
        places: Sequence[str],
        stretches: Mapping[str, Sequence[str]],
    ) -> Self:
        """Choose from all that there are, by their weights.

        Args:
            stretches: with the places of each.
        """
        chosen, about = _weighed(rng, events), rng.sample(list(stretches), rng.choice([1, 2, 3]))
        of_them = {place for name in about for place in stretches[name]}
        return cls(
            rng.choices(list(chosen), list(chosen.values()), k=rng.choice(LENGTHS)),
            _weighed(rng, kinds),
            [place for place in places if place in of_them or rng.random() < _OTHERS],
            about,
        )


def _weighed(rng: Random, weights: Mapping[str, int]) -> dict[str, int]:
    factors = {name: 1 if name in _ALWAYS else rng.choice(_FACTORS) for name in weights}
    return {name: weight * factors[name] for name, weight in weights.items() if factors[name]}
