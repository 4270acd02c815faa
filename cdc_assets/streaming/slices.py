"""The end of a window by its number of rows, and its slices.

*A window is bounded in rows* as well as in transactions, so that a late
failure repeats little. It holds whole transactions, so it ends after the
first one that reaches the bound, however large that one is. Windows of several
databases that are carried out together share the bound, by the rows of the turn before.

*A window is cut* into slices of about equal numbers of change rows, at commits where
possible. A transaction that is larger than a slice is cut inside, after one of its
rows: all rows up to that position belong to the slice before. A cut has the greatest
operation, 4, so it never separates the rows 3 and 4 of an update, which differ in the
operation only. Positions of one transaction have one order over all tables, so the
slices of a window follow each other also where transactions are numbered.

*Why a repeat makes the same slices.* Bounds and cuts are recorded with the window
before anything is read.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TypeVar

from cdc_assets.core.lsn import Lsn, Position

T = TypeVar("T")

Border = Lsn | Position
"""Upper bound of a slice: a commit, with all of its rows, or the position of a row inside one."""

SLICE_ROWS = 10_000
"""Change rows from which a separate task pays off: its start takes as long, and it adds a file to each table."""
_TASK_ROWS = 2_000_000
"""Approximate maximum of change rows in one slice: a task that fails is repeated as a whole."""
_WINDOW_ROWS, _WINDOW_ROWS_PER_TASK = 4_000_000, 500_000
"""Default number of change rows in a window: seconds of work for few tasks, and as much for each of many."""
_TOO_LARGE = 1.5
"""Size, in slices, from which a transaction is cut inside."""


def worth_tasks(rows: int) -> bool:
    """Whether a window may be cut; below that it does not matter how many tasks run at once, which starts a cluster."""
    return rows >= 2 * SLICE_ROWS


def rows_of_window(wanted: int, tasks: int) -> int:
    """Number of change rows at which a window ends.

    Args:
        wanted: number from the settings; 0 chooses it by the number of tasks.
        tasks: number of tasks that run at once.
    """
    return wanted or max(_WINDOW_ROWS, _WINDOW_ROWS_PER_TASK * tasks)


def share_of(database: str, max_rows: int, shares: Mapping[str, int]) -> int:
    """Change rows at which a database's window ends, so that all windows of a turn hold about as many as one may.

    What the others left of it the last time, and never less than an equal part.

    Args:
        max_rows: rows of a window that is planned by itself.
        shares: rows that each database had in the turn before.
    """
    others = [rows for name, rows in shares.items() if name != database]
    return max(1, max_rows // (len(others) + 1), max_rows - sum(others))


def end_of_window(counts: Sequence[tuple[Lsn, int]], until: Lsn, max_rows: int) -> Lsn:
    """The first commit at which `max_rows` rows are reached, or else `until`; commits come in order."""
    totals = accumulate(count for _, count in counts)
    return next((lsn for (lsn, _), total in zip(counts, totals, strict=True) if total >= max_rows), until)


def parts_of(rows: int, tasks: int) -> int:
    """Number of slices for a number of rows: at most one per task, each worth its start, unless they become too long."""
    rounds = -(-rows // (tasks * _TASK_ROWS))
    return max(1, min(tasks * max(1, rounds), rows // SLICE_ROWS))


def cut(counts: Sequence[tuple[T, int]], last: T, parts: int) -> list[T]:
    """Upper bounds that divide rows into at most `parts` parts of about equal size; the last bound is `last`.

    Each part is closed at the first bound that reaches its share of the running total. So a bound with more than a
    share uses up several shares and leaves fewer parts.

    Args:
        counts: possible bounds in order, each with the number of rows since the one before.
        last: upper end of all rows.
        parts: maximum number of parts, at least 1.
    """
    totals = list(accumulate(count for _, count in counts))
    if not totals:
        return [last]
    bounds: list[T] = []
    share = 1
    for (bound, _), total in zip(counts, totals, strict=True):
        if total * parts >= totals[-1] * share:
            bounds.append(bound)
            share = total * parts // totals[-1] + 1
    return [*bounds[:-1], last]


def cut_window(
    counts: Sequence[tuple[Lsn, int]],
    until: Lsn,
    parts: int,
    positions: Callable[[Lsn, int], Sequence[Position]] | None,
) -> list[Border]:
    """Upper bounds of the slices of a window, in order; the last is `until`.

    Args:
        counts: commits of the window in order, with their numbers of change rows.
        until: upper end of the window.
        parts: approximate number of slices.
        positions: returns the position of every n-th change row of each table in a commit, in order; None if no transaction
            is cut.
    """
    rows = sum(count for _, count in counts)
    possible: list[tuple[Border, int]] = []
    for lsn, count in counts:
        if positions is not None and parts > 1 and count * parts >= rows * _TOO_LARGE:
            step = max(1, rows // (2 * parts))
            inside = positions(lsn, step)
            possible += [(position, step) for position in inside]
            count = max(0, count - step * len(inside))
        possible.append((lsn, count))
    return cut(possible, until, parts)


def in_order(bounds: Sequence[Lsn], cuts: Sequence[Position]) -> list[Border]:
    """Bounds at commits and cuts inside commits, in their common order."""

    def position(border: Border) -> tuple[Lsn, int, int, Lsn]:
        if isinstance(border, Lsn):
            return border, 1, 0, border
        return border.commit_lsn, 0, border.command_id, border.change_lsn

    return sorted([*bounds, *cuts], key=position)
