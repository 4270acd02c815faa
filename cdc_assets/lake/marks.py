"""The content of a lake table at the time of its last record; stored in the manifest (`lake.audit`)."""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Mark:
    """Minimum content of a table.

    Args:
        window: its newest application transaction.
        version: its newest Delta version known to the writer.
        rows: its number of rows.
        examined: number of the next window at the time when it was last examined completely; 0 if never.
        checked: version up to which its log was read for commits of other programs; -1 if it never was.
        foreign: what the newest of these did, for people.
        timed: whether `window` is a time, as in topics of heartbeats and notifications, and not the number of a window.
        counted: version whose rows were counted; `rows` are those, and what was committed under `window` after it.
    """

    window: int
    version: int
    rows: int
    examined: int = 0
    checked: int = -1
    foreign: tuple[str, ...] = ()
    timed: bool = False
    counted: int = field(default=-1, compare=False)

    def behind(self, known: "Mark") -> "Mark":
        """This mark with what is known since an earlier one."""
        is_older = self.version < known.version
        return replace(
            self,
            examined=max(self.examined, known.examined),
            checked=self.checked if is_older else max(self.checked, known.checked),
            foreign=self.foreign or known.foreign,
            timed=self.timed or known.timed,
        )

    @property
    def read_to(self) -> int:
        """Version up to which its log need not be read; where it never was, what it was marked with."""
        return self.checked if self.checked >= 0 else self.version - 1
