"""A state that is the fold of a fenced log's rows.

Every change of the state is one row, committed before anything acts on it. The writer and its readers fold rows by the
same function, so that they agree. Now and then the rows are replaced by one of event `state` that holds their fold; the
newest of them stay before it for people, and are never folded again.

*Crash between any two steps.* Before the commit of a row nothing has happened; after it every reader folds the row. The
replacement is one atomic commit, whose state is that of the rows it replaces: before it readers fold the rows, after it
they take the state. The next writer counts the rows behind the newest fold, so a replacement that was due is made up for
behind its first rows. On a full disk it is left for later, because the rows themselves are recorded.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any, Generic, TypeVar

import pyarrow as pa

from cdc_assets.core.steps import step
from cdc_assets.errors import LakeFullError
from cdc_assets.lake.tables import DeltaTables
from cdc_assets.lake.upkeep import Upkeep
from cdc_assets.ledger.fenced_log import FencedLog, Row

log = logging.getLogger(__name__)

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Folding(Generic[S]):
    """How rows become a state.

    Args:
        start: state before the first row.
        after: the state after one row; the only function that changes it.
        encode: detail of a row `state`, from which `after` makes the whole state.
    """

    start: S
    after: Callable[[S, Row], S]
    encode: Callable[[S], Mapping[str, Any]]

    def state(self, rows: Sequence[Row]) -> S:
        """The state after rows, in order."""
        return reduce(self.after, rows[max(newest_fold(rows), 0) :], self.start)


class FoldedLog(Generic[S]):
    """Reads and writes rows, and keeps the state after them.

    Args:
        tables: the lake's Delta tables; only the location and the capture's name are used.
        schema: schema of the rows, with columns `sequence`, `event`, `detail` and `at`.
        folding: how they become a state.
        every: number of rows after which they are replaced by their fold; limits the time to read them.
        keep: number of replaced rows that are kept for people.
    """

    def __init__(
        self, tables: DeltaTables, directory: str, schema: pa.Schema, folding: Folding[S], *, every: int, keep: int
    ) -> None:
        self.directory = directory
        self._log = FencedLog(tables, directory, schema)
        self._columns: list[str] = schema.names
        self._folding, self._every, self._keep = folding, every, keep
        self._since_fold = 0
        self._known: dict[str, Sequence[Row]] = {}
        """Rows that were read, by file."""
        self.folded = False
        """Whether this writer has replaced rows, so that there is something to vacuum."""
        self.state = folding.start

    def read(self) -> S:
        """The newest state, without claiming it; for status and sensors.

        Files that this object has read before are not read again; of their rows those before the newest fold are forgotten.

        Raises:
            LakeError: the table exists but cannot be read.
        """
        files = self._log.read(self._known)
        rows = self._log.in_order(files)
        rows = rows[max(newest_fold(rows), 0) :]
        first = rows[0]["sequence"] if rows else 0
        self._known = {path: [row for row in own if row["sequence"] >= first] for path, own in files.items()}
        return self._folding.state(rows)

    def rows(self) -> Sequence[Row]:
        """The rows that are kept, in order; their fold is the state.

        Raises:
            LakeError: the table exists but cannot be read.
        """
        return self._log.in_order(self._log.read())

    def vacuum_if_folded(self, upkeep: Upkeep) -> None:
        """Remove from disk what folds have replaced, if this writer has folded.

        If that fails, was done a short time ago, or the writer dies before it, the files wait for the vacuum behind a later
        fold, which removes them too. Until then they take some room, a few kilobytes each, and nobody reads them.
        """
        if self.folded:
            upkeep.try_vacuum_record(self.directory)
            self.folded = False

    def _take_over(self) -> None:
        """Continue after the existing rows; the first to append becomes the single writer.

        Rows that `read` has kept are not read again: a file never changes, and which files there are is read anew.
        """
        rows = self._log.claim(self._known)
        self.state = self._folding.state(rows)
        self._since_fold = len(rows) - 1 - newest_fold(rows)

    def _append(self, now: datetime, event: str, detail: Mapping[str, Any], **columns: Any) -> None:
        """Write a row; the state is then the one after it."""
        row = self._row(now, event, detail, columns)
        state = self._folding.after(self.state, row)
        self._log.append(row)
        self.state = state
        self._since_fold += 1

    def _fold_if_due(self, now: datetime) -> None:
        """Replace the rows by their fold, if there are many."""
        if self._since_fold < self._every:
            return
        step("checkpoint-begun")
        try:
            self._log.replace(self._row(now, "state", self._folding.encode(self.state), {}), self._keep)
        except LakeFullError as error:
            log.warning("The rows of %s could not be folded; it is retried later: %s", self.directory, error)
            return
        self._since_fold, self.folded = 0, True
        step("checkpoint-written")

    def _row(self, now: datetime, event: str, detail: Mapping[str, Any], columns: dict[str, Any]) -> Row:
        row = {"sequence": self._log.next_sequence, "event": event, "at": now}
        detail_text = json.dumps(detail, separators=(",", ":"))
        return dict.fromkeys(self._columns) | row | {"detail": detail_text} | columns


def newest_fold(rows: Sequence[Row]) -> int:
    """Index of the newest row that holds the fold of those before it, or -1."""
    return max((index for index, row in enumerate(rows) if row["event"] == "state"), default=-1)
