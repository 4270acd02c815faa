"""A state that is the fold of a fenced log's rows.

Every change of the state is one row, committed before anything acts on it. The writer and its readers fold rows by the
same function, so that they agree. Now and then the rows are replaced by one of event `state` that holds their fold; the
newest of them stay before it for people, and are never folded again.

*Crash between any two steps.* Before the commit of a row nothing has happened; after it every reader folds the row. The
replacement is one atomic commit, whose state is that of the rows it replaces: before it readers fold the rows, after it
they take the state. The next writer counts the rows behind the newest fold, so a replacement that was due is made up for
after its first rows. On a full disk, or while another program rewrites the files again and again, it is left for later, because
the rows themselves are recorded.

*Readers* fold a row once: the state after the rows that were read before is kept, and only those after them are folded. That is
right because a row that was read from a file stays what it is, and so does all before it: each row is numbered and fenced. If the
newest of them is not among the rows any more, because of a fold or a copy that was restored, all are folded again.
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
from cdc_assets.errors import LAKE_WAITS, LakeConflictError
from cdc_assets.lake.tables import DeltaTables
from cdc_assets.lake.upkeep import Upkeep
from cdc_assets.ledger.fenced_log import FencedLog, Row, newest_fold

log = logging.getLogger(__name__)

S = TypeVar("S")

ROW = pa.schema(
    [
        pa.field("sequence", pa.int64(), False),
        pa.field("event", pa.string(), False),
        pa.field("number", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("database", pa.string()),
        pa.field("after", pa.string()),
        pa.field("until", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("detail", pa.string(), False),
        pa.field("at", pa.timestamp("us", "UTC"), False),
    ]
)
"""Columns of every record. What a row says is its `event` and `detail`, JSON; of a step, if it is one, the row shows its number, kind and
bounds, if it has such, and the rows that it wrote. `sequence` is the row's own number."""
_LARGE = 500_000
"""Characters, which are read and folded in a few hundredths of a second."""


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
        return self.onward(rows[max(newest_fold(rows), 0) :], self.start)

    def onward(self, rows: Sequence[Row], state: S) -> S:
        """The state after more rows."""
        return reduce(self.after, rows, state)


class FoldedLog(Generic[S]):
    """Reads and writes rows (`ROW`), and keeps the state after them.

    Args:
        tables: the lake's Delta tables; only the location and the capture's name are used.
        folding: how they become a state.
        every: number of rows after which they are replaced by their fold; limits the time to read them.
        size: length of their details from which they are replaced before, unless the last fold is more than half as long.
        keep: number of replaced rows that are kept for people.
    """

    def __init__(
        self,
        tables: DeltaTables,
        directory: str,
        folding: Folding[S],
        *,
        every: int,
        keep: int,
        size: int = _LARGE,
    ) -> None:
        self.directory = directory
        self._log = FencedLog(tables, directory, ROW)
        self._folding, self._every, self._keep, self._size = folding, every, keep, size
        self._since_fold = self._size_since_fold = self._size_of_fold = 0
        self._known: dict[str, Sequence[Row]] = {}
        """Rows that were read, by file."""
        self._read: tuple[Row, S] | None = None
        """The newest of them, and the state after it."""
        self.seen: Sequence[Row] = ()
        """Numbers and times of the rows that the last reading has seen, in order; of files that it knew those since the newest fold before."""
        self.folded = False
        """Whether this writer has replaced rows, so that there is something to vacuum."""
        self._state = folding.start

    @property
    def identity(self) -> str:
        """Identity of the table that was read or claimed last; empty if there was none."""
        return self._log.identity

    @property
    def state(self) -> S:
        """The state after the rows.

        Raises:
            LakeAwayError: it is not known whether the newest of them was written, and the store does not answer.
        """
        self.resolve()
        return self._state

    def resolve(self) -> bool:
        """After an error of the store that left open whether a row was written, ask whether it was.

        Returns:
            Whether it was, and the state is another one now.

        Raises:
            LakeAwayError: the store does not answer.
            FencedError: another writer has taken over.
        """
        if not self._log.in_doubt or (row := self._log.resolve()) is None:
            return False
        self._note_late(row)
        return bool(row["event"] != "state")

    def read(self) -> S:
        """The newest state, without claiming it; for status and sensors.

        Files that this object has read before are not read again; of their rows those before the newest fold are forgotten.

        Raises:
            LakeError: the table exists but cannot be read.
        """
        files = self._log.read(self._known)
        rows = self._log.in_order(files)
        self.seen = [{"sequence": row["sequence"], "at": row["at"]} for row in rows]
        rows = rows[max(newest_fold(rows), 0) :]
        first = rows[0]["sequence"] if rows else 0
        self._known = {path: [row for row in own if row["sequence"] >= first] for path, own in files.items()}
        state = self._state_after(rows)
        self._read = (rows[-1], state) if rows else None
        return state

    def _state_after(self, rows: Sequence[Row]) -> S:
        """The state after rows of which the first is the newest fold, if there is one."""
        state, done = self._folding.start, 0
        if self._read is not None:
            newest, known = self._read
            place = int(newest["sequence"]) - int(rows[0]["sequence"]) if rows else -1
            if 0 <= place < len(rows) and rows[place] is newest:  # the same file
                state, done = known, place + 1
        return self._folding.onward(rows[done:], state)

    def rows(self) -> Sequence[Row]:
        """The rows that are kept, in order; their fold is the state.

        Raises:
            LakeError: the table exists but cannot be read.
        """
        return self._log.in_order(self._log.read())

    def require_writer(self) -> None:
        """Check that no other writer has taken over; see `lake.replacing`.

        Raises:
            FencedError: one has.
            LakeError: the table cannot be read.
        """
        self._log.require_writer()

    def vacuum_if_folded(self, upkeep: Upkeep) -> None:
        """Remove from disk what folds have replaced, if this writer has folded.

        If that fails, was done a short time ago, or the writer dies before it, the files wait for the vacuum after a later
        fold, which removes them too. Until then they take some room, a few kilobytes each, and nobody reads them.
        """
        if self.folded:
            upkeep.try_vacuum_record(self.directory)
            self.folded = False

    def _take_over(self) -> None:
        """Continue after the existing rows; the first to append becomes the single writer.

        Rows that `read` has kept are not read again: a file never changes, and which files there are is read again.
        """
        rows = self._log.claim(self._known)
        fold = newest_fold(rows)
        self._state = self._state_after(rows[max(fold, 0) :])
        self._since_fold = len(rows) - 1 - fold
        self._size_since_fold = sum(len(row["detail"]) for row in rows[fold + 1 :])
        self._size_of_fold = len(rows[fold]["detail"]) if fold >= 0 else 0

    def _append(self, now: datetime, event: str, detail: Mapping[str, Any], **columns: Any) -> None:
        """Write a row; the state is then the one after it.

        Raises:
            LakeConflictError: the row of an earlier attempt turns out to be written, and the state is the one after that.
        """
        if self.resolve():
            raise self._late()
        row = self._row(now, event, detail, columns)
        state = self._folding.after(self._state, row)
        written = self._log.append(row)
        if written is not row:
            self._note_late(written)
            raise self._late()
        self._note(row, state)

    def _note(self, row: Row, state: S) -> None:
        """Note that a row is written, after which the state is this one."""
        self._state = state
        if row["event"] == "state":
            self._since_fold, self._size_since_fold, self._size_of_fold, self.folded = 0, 0, len(row["detail"]), True
        else:
            self._since_fold += 1
            self._size_since_fold += len(row["detail"])

    def _note_late(self, row: Row) -> None:
        """Note that a row is written, of which this was not known; what follows a row is made up for."""
        self._note(row, self._state if row["event"] == "state" else self._folding.after(self._state, row))

    def _late(self) -> LakeConflictError:
        return LakeConflictError(
            f"{self.directory}: an entry whose writing had failed was written after all. Next: nothing, it is taken into account."
        )

    def _fold_if_due(self, now: datetime) -> None:
        """Replace the rows by their fold, if there are many, or if they are large and twice as large as it."""
        if self._since_fold < self._every and self._size_since_fold < max(self._size, 2 * self._size_of_fold):
            return
        step("checkpoint-begun")
        fold = self._row(now, "state", self._folding.encode(self.state), {})
        try:
            self._log.replace(fold, self._keep)
        except LAKE_WAITS as error:
            log.warning("The rows of %s could not be folded; it is retried later: %s", self.directory, error)
            return
        self._note(fold, self._state)
        step("checkpoint-written")

    def _row(self, now: datetime, event: str, detail: Mapping[str, Any], columns: dict[str, Any]) -> Row:
        row = {"sequence": self._log.next_sequence, "event": event, "at": now}
        detail_text = json.dumps(detail, separators=(",", ":"))
        return dict.fromkeys(ROW.names) | row | {"detail": detail_text} | columns
