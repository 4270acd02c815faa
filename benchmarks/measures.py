"""Tables of what was measured in each kind, with the differences of the passes that stood next to each other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.witness import KINDS


@dataclass
class Measures:
    """Values by measure and kind; the passes of each kind took turns.

    Args:
        kinds: names of the columns; the difference is that of the first two.
    """

    kinds: Sequence[str] = tuple(kind.name for kind in KINDS)
    found: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, kind: str, values: Mapping[str, float]) -> None:
        """One pass."""
        for measure, value in values.items():
            self.found.setdefault(measure, {}).setdefault(kind, []).append(value)

    def head(self) -> tuple[str, str]:
        """Of the table."""
        first, second = self.kinds[:2]
        return f"| | {' | '.join(self.kinds)} | {first} − {second} |", "|---" * (len(self.kinds) + 2) + "|"

    def lines(self) -> Iterator[str]:
        """Rows of the table: medians, least and most."""
        for measure, values in self.found.items():
            told = [spread(values.get(kind, [])) for kind in self.kinds]
            first, second = (values.get(kind, []) for kind in self.kinds[:2])
            differences = [one - other for one, other in zip(first, second, strict=False)]
            yield f"| {measure} | {' | '.join(told)} | {spread(differences, sign='+')} |"


def spread(values: Sequence[float], sign: str = "") -> str:
    """Median, least and most, to as many digits as they need."""
    if not values:
        return "–"
    digits = 0 if max(map(abs, values)) >= 100 else 2
    least, most = (f"{value:{sign},.{digits}f}" for value in (min(values), max(values)))
    return f"{median(values):{sign},.{digits}f} ({least} to {most})"
