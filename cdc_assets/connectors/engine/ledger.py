"""The record of an engine's batches: `<prefix>.__batches`, a table with one writer at a time (`ledger.fenced_log`).

| event | means |
|---|---|
| `claim` | a run has become the only writer |
| `planned` | a batch: its files, all of them written, and the offsets after it |
| `complete` | the batch is in all its tables, with what these hold since (`lake.marks`) |
| `quiet` | the connector has sent nothing more for as long as `stream.idle.timeout.ms`, and its place in the log has not moved |
| `stopped` | the partitions and files that are not read on, all of them, with the reasons (`stops`) |
| `state` | the fold of all rows before it |

The offsets of a batch are valid from `planned` on, because its events need not be read again (`batch_step`).
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from cdc_assets.connectors.engine.feed import FORGOTTEN
from cdc_assets.connectors.engine.table_lists import folded as folded_lists
from cdc_assets.core.ran_on import count_of
from cdc_assets.core.steps import step
from cdc_assets.errors import InvariantError
from cdc_assets.lake.files import DataFile
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.codec import decode, encode
from cdc_assets.ledger.fenced_log import Row
from cdc_assets.ledger.folded_log import FoldedLog, Folding

_CHECKPOINT_EVERY = 100
_KEEP_ROWS = 200
_MAX_COLUMNS = 100


def batches_directory(prefix: str) -> str:
    """Directory of the table that records the batches of a topic prefix."""
    return f"{prefix}.__batches"


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that are committed together.

    Args:
        batch_id: from 0, by one; the window number of its rows.
        files: by the topic table's directory, in the order in which they are committed.
        offsets: where the connector continues after it, of the partitions that have advanced.
        rows: events in all its files but the schema history's.
        place: the last event's position, if the connector has one that can be compared.
        boundary: the last BEGIN or END of a transaction in it.
        gap: the places of the log between which changes are lost, because the connector started over with this batch.
        anew: whether it holds rows of the connector's initial snapshot, all of its tables, or follows one that found these empty.
        nulled: number of values in it that are null because the connector could not convert them, by column.
        lists: with `anew`, of which tables the connector has read the rows (`EngineConfig.read_lists`); None if it reads none by its mode.
            Without, those that it has now; None if they are the ones recorded last.
        read: tables that snapshots on request have read whole, by topic or as the connector names them; with `lists`, also those that were
            read before and not left out since. Not recorded while the state has no lists.
    """

    batch_id: int
    files: Mapping[str, Sequence[DataFile]]
    offsets: Sequence[Sequence[Any]]
    rows: int
    place: Sequence[int | str] | None = None
    boundary: Sequence[str] | None = None
    gap: Sequence[str] | None = None
    anew: bool = False
    nulled: Mapping[str, int] = field(default_factory=dict)
    lists: Mapping[str, str] | None = None
    read: Sequence[str] = ()

    def __str__(self) -> str:
        return f"batch {self.batch_id}: {count_of(self.rows, 'event')} in {count_of(len(self.files), 'table')}"


@dataclass(frozen=True, slots=True)
class Gap:
    """Changes that the source no longer had.

    Args:
        begin: place in the log to which the lake was complete.
        end: place at which the connector read all tables again.
        batch_id: the batch of these rows.
    """

    begin: str
    end: str
    batch_id: int

    def __str__(self) -> str:
        return (
            f"Changes between {self.begin} and {self.end} were lost: they are not in the lake. Batch {self.batch_id} "
            f"holds the tables as they were at {self.end}."
        )


@dataclass(frozen=True, slots=True)
class BatchState:
    """The state that results from the rows.

    Args:
        next_batch: number of the next batch.
        pending: the batch that is planned and not complete.
        offsets: by the partition's JSON text, the offset after the last batch.
        place: the position after which it continues; None if no event has one since the connector has started over.
        placed: the last batch with a position; -1 if there is none, or if an older version of this program has folded the rows.
        boundary: the last BEGIN or END of a transaction.
        tables: the last batch of each topic table's directory.
        quiet: whether the connector was quiet after the last batch.
        gaps: where changes were lost, and the batch with which the connector started over after them.
        stopped: partitions and files that are not read on, with the reasons.
        nulled: number of values that are null because the connector could not convert them, by column.
        marks: what each topic table's directory held after its last batch.
        lists: those of the newest batch that began anew; None if it has none, or is older than their record.
        later_lists: those recorded since, oldest first; of all these as few as say the same (`table_lists`).
        read_at: of the tables that snapshots on request have read since, how many of `later_lists` there were at the last one.
        unheard_since: when the first run began in which the connector was not heard; None if the last one has heard it.
    """

    next_batch: int = 0
    pending: Batch | None = None
    offsets: Mapping[str, Any] = field(default_factory=dict)
    place: tuple[int | str, ...] | None = None
    placed: int = -1
    boundary: tuple[str, str] | None = None
    tables: Mapping[str, int] = field(default_factory=dict)
    quiet: bool = False
    gaps: tuple[Gap, ...] = ()
    stopped: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)
    nulled: Mapping[str, int] = field(default_factory=dict)
    unheard_since: datetime | None = None
    lists: Mapping[str, str] | None = None
    later_lists: tuple[Mapping[str, str], ...] = ()
    read_at: Mapping[str, int] = field(default_factory=dict)

    def pairs(self) -> list[tuple[Any, Any]]:
        """Partitions and offsets, as a connector takes them."""
        return [(json.loads(partition), offset) for partition, offset in self.offsets.items()]


class BatchLedger(FoldedLog[BatchState]):
    """Reads and writes the rows.

    Args:
        tables: the lake's Delta tables.
        prefix: topic prefix.
    """

    def __init__(self, tables: TopicTables, prefix: str) -> None:
        directory = batches_directory(prefix)
        super().__init__(tables, directory, FOLDING, every=_CHECKPOINT_EVERY, keep=_KEEP_ROWS)
        self._has_rested = False
        """Whether this writer has recorded quiet."""

    def claim(self, now: datetime) -> BatchState:
        """Become the only writer.

        Raises:
            FencedError: another writer claimed it at the same moment.
            LakeError: it cannot be read or written.
        """
        self._take_over()
        self._append(now, "claim", {})
        if self.state.pending is None:  # else its row says since when it waits
            self._fold_if_due(now)
        return self.state

    def plan(self, now: datetime, batch: Batch) -> None:
        """Record a batch whose files are written.

        Raises:
            FencedError: another writer has taken over.
        """
        if self.state.pending is not None or batch.batch_id != self.state.next_batch:
            raise InvariantError(
                f"Batch {batch.batch_id} cannot be planned: {self.state.next_batch} is expected, and "
                f"{'one is' if self.state.pending else 'none is'} in flight. Next: report this."
            )
        self._append(now, "planned", {"batch": encode(batch)}, number=batch.batch_id, kind="batch", rows=batch.rows)
        step("batch-planned")

    def complete(self, now: datetime, marks: Mapping[str, Mark]) -> None:
        """The pending batch is in all its tables.

        Args:
            marks: what they hold, by directory.

        Raises:
            FencedError: another writer has taken over.
        """
        batch = self.state.pending
        self._append(
            now,
            "complete",
            {"marks": encode(dict(marks))},
            number=batch and batch.batch_id,
            kind="batch",
            rows=batch and batch.rows,
        )
        step("batch-complete")
        self._fold_if_due(now)

    def rest(self, now: datetime) -> None:
        """The connector is quiet, and all that it has sent is complete. Each writer records it, since that is when the connector was
        heard.

        Raises:
            FencedError: another writer has taken over.
        """
        if not (self.state.quiet and self._has_rested):
            self._append(now, "quiet", {})
            self._has_rested = True
            self._fold_if_due(now)

    def stop(self, now: datetime, stopped: Mapping[str, str]) -> None:
        """These partitions and files are not read on, for these reasons, and no others.

        Raises:
            FencedError: another writer has taken over.
        """
        if stopped != self.state.stopped:
            self._append(now, "stopped", {"stopped": dict(stopped)})


def _after(state: BatchState, row: Row) -> BatchState:
    """The state after one row; the only place where it changes."""
    detail = json.loads(row["detail"])
    match row["event"]:
        case "state":
            folded = decode(BatchState, detail)
            folded = replace(
                folded, read_at=dict.fromkeys(detail.get("read", ()), 0) | dict(folded.read_at)
            )  # of before
            is_stale = bool(folded.gaps) and folded.gaps[-1].batch_id > folded.placed
            return replace(folded, place=None) if is_stale else folded
        case "claim":
            return replace(state, unheard_since=state.unheard_since or row["at"])
        case "planned":
            batch = decode(Batch, detail["batch"])
            start = replace(state, place=None, boundary=None) if batch.anew else state  # those were of a former log
            moved = {json.dumps(partition, sort_keys=True): offset for partition, offset in batch.offsets}
            return replace(
                state,
                pending=batch,
                next_batch=batch.batch_id + 1,
                quiet=False,
                offsets={name: at for name, at in {**state.offsets, **moved}.items() if at != FORGOTTEN},
                place=start.place if batch.place is None else tuple(batch.place),
                placed=state.placed if batch.place is None else batch.batch_id,
                boundary=(batch.boundary[0], batch.boundary[1]) if batch.boundary else start.boundary,
                nulled=_more(state.nulled, batch.nulled),
                **_listed(state, batch),
                gaps=(*state.gaps, Gap(batch.gap[0], batch.gap[1], batch.batch_id)) if batch.gap else state.gaps,
            )
        case "complete" if state.pending is not None:
            reached = dict.fromkeys(state.pending.files, state.pending.batch_id)
            now = decode(dict[str, Mark], detail["marks"])
            marks = {
                name: mark.behind(state.marks[name]) if name in state.marks else mark for name, mark in now.items()
            }
            tables = {**state.tables, **reached}
            return replace(state, pending=None, tables=tables, marks={**state.marks, **marks}, unheard_since=None)
        case "quiet":
            return replace(state, quiet=True, unheard_since=None)
        case "stopped":
            return replace(state, stopped=detail["stopped"])
    return state


def _listed(state: BatchState, batch: Batch) -> Mapping[str, Any]:
    """What is recorded of lists and reads after a batch."""
    if batch.anew:
        read_at = {} if batch.lists is None else dict.fromkeys(batch.read, 0)
        return {"lists": batch.lists, "later_lists": (), "read_at": read_at}
    if batch.lists is None or state.lists is None:
        return {"read_at": {**state.read_at, **dict.fromkeys(batch.read, len(state.later_lists))}}
    lists = (state.lists, *state.later_lists, batch.lists)
    (first, *later), read_at = folded_lists(lists, {**state.read_at, **dict.fromkeys(batch.read, len(lists) - 1)})
    return {"lists": first, "later_lists": tuple(later), "read_at": read_at}


def _more(known: Mapping[str, int], nulled: Mapping[str, int]) -> Mapping[str, int]:
    """Numbers of both; of very many columns those with the most."""
    return dict((Counter(known) + Counter(nulled)).most_common(_MAX_COLUMNS))


FOLDING = Folding(BatchState(), _after, encode)
"""How rows become the state."""
