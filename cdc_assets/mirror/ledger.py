"""What is recorded about mirrors: how far each has come, and the steps in flight.

An append-only Delta table `<prefix>.__mirrors` with one writer at a time (`ledger.fenced_log`). A step is recorded with
its bounds before anything is read, so a repetition reads the same events; when all its commits are made, it is recorded
as complete. The tables themselves say by their application transaction which step they have reached.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from cdc_assets.core.steps import step
from cdc_assets.lake.tables import DeltaTables
from cdc_assets.ledger.codec import decode, encode
from cdc_assets.ledger.fenced_log import Row
from cdc_assets.ledger.folded_log import FoldedLog, Folding
from cdc_assets.mirror.missing_rows import MissingRows
from cdc_assets.mirror.shape import KEYLESS
from cdc_assets.mirror.spans import Span, kept

_FOLD_EVERY = 50


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step of one mirror: which events are applied.

    Args:
        step: number of the step, from 1.
        after: commit LSN up to which events are applied; empty if none are.
        until: commit LSN up to which they are afterwards.
        known: number of the window up to which READs at `after` are applied.
        window: greatest number of a window that is read.
        since: commit LSN at which the table's life began: rows that no event has told of since are gone. Empty for a
            table that has lost nothing.
        void: whether such rows are removed by this step.
        proof: with `void`, LSN from which on rows of the mirror were there after `since`; empty for `since` itself.
        whole: whether the mirror is rebuilt, without what it holds.
        key: what the leaves depend on (`Shape.key_text`).
        absences: how many of the state's absences it knows.
        begin: LSN from which on a mirror that is rebuilt is right.
        spans: within the step (`spans`).
        lost: LSN from which on, up to its end, changes were lost that it makes good; empty if none were.
        doubt: LSN from which on rows of the mirror were there after changes that were lost and that no reading has made good; empty if
            there are none.
        reads: position from which on a reading names all rows of a table without a key: with `whole` what is before does not count, with
            `void` it shows no row. Empty for none.
    """

    topic: str
    step: int
    after: str
    until: str
    known: int
    window: int
    since: str = ""
    void: bool = False
    proof: str = ""
    whole: bool = False
    key: str = ""
    absences: int = 0
    begin: str = ""
    spans: tuple[Span, ...] = ()
    lost: str = ""
    doubt: str = ""
    reads: str = ""

    @property
    def unknown(self) -> tuple[Span, ...]:
        """LSNs of which the mirror knows nothing after it."""
        return ((self.lost, self.until), *self.spans) if self.lost else self.spans

    def takes(self, known: Sequence[MissingRows]) -> list[MissingRows]:
        """Those that the step takes of all that the state has."""
        return [
            absence
            for absence in known[: self.absences]
            if absence.lsn <= self.until and (self.whole or not absence.taken or absence.lsn > self.after)
        ]


@dataclass(frozen=True, slots=True)
class MirrorState:
    """How far a mirror has come.

    Args:
        step: number of the newest complete step; 0 if there is none.
        lsn: commit LSN up to which events are applied; empty if none are.
        window: greatest number of a window that was read.
        since: see `PlannedStep`.
        key: see `PlannedStep`.
        gaps: intervals of lost changes that no snapshot has repaired, as LSNs.
        pending: step in flight.
        absences: rows that are gone though no event says so, in the order in which that was found.
        parted: whether its leaves are known to hold the keys of their ranges only (`rewrite.are_parted`).
        begin: LSN from which on it is right; empty while no snapshot has read the table's rows.
        spans: those that it has stepped over, and what was lost until it was read: of LSNs inside it knows nothing.
        marks: step, version and rows of `current` and `history` after the newest complete step (`audit`).
        moved: when it has come so far; when its first step was planned if it was never made; None if not known.
        made: when it was made or rebuilt, by which a mirror is told from the one before; None if not known.
    """

    step: int = 0
    lsn: str = ""
    window: int = -1
    since: str = ""
    key: str = ""
    gaps: tuple[tuple[str, str], ...] = ()
    pending: PlannedStep | None = None
    absences: tuple[MissingRows, ...] = ()
    parted: bool = False
    marks: tuple[tuple[int, int, int], ...] = ()
    begin: str = ""
    spans: tuple[Span, ...] = ()
    moved: datetime | None = None
    made: datetime | None = None

    @property
    def is_keyless(self) -> bool:
        """Whether it is known to be of a table without a key, whose READs are of one moment: no span counts for it."""
        return is_keyless(self.key)

    @property
    def next_step(self) -> int:
        """Number of the next step; also above that of a step in flight that is given up, for it may be committed."""
        return max(self.step, self.pending.step if self.pending else 0) + 1

    def behind(self, planned: PlannedStep) -> "MirrorState":
        """The state after a step."""
        new = planned.takes(self.absences)
        return replace(
            self,
            step=planned.step,
            lsn=planned.until,
            window=planned.window,
            since=planned.since,
            key=planned.key,
            pending=None,
            begin=planned.begin if planned.whole else planned.begin or self.begin,
            spans=kept(planned.unknown if planned.whole else (*self.spans, *planned.unknown)),
            absences=tuple(replace(one, taken=one.taken or one in new) for one in self.absences),
        )


def is_keyless(key: str) -> bool:
    """Whether a `Shape.key_text` is of a table without a key."""
    return key.partition(" ")[0] == KEYLESS


def ledger_directory(prefix: str) -> str:
    """Directory of the record of a topic prefix's mirrors."""
    return f"{prefix}.__mirrors"


class MirrorLedger(FoldedLog[Mapping[str, MirrorState]]):
    """Reads and writes `<prefix>.__mirrors`; its state maps each topic to that of its mirror.

    Args:
        tables: the lake's Delta tables, under the application id of mirrors.
    """

    def __init__(self, tables: DeltaTables, prefix: str) -> None:
        super().__init__(tables, ledger_directory(prefix), _FOLDING, every=_FOLD_EVERY, keep=_FOLD_EVERY)

    def claim(self) -> Mapping[str, MirrorState]:
        """Become the single writer with the first row that is written.

        Raises:
            LakeError: the table cannot be read or created.
        """
        self._take_over()
        return self.state

    def plan(self, now: datetime, steps: Sequence[PlannedStep]) -> None:
        """Record steps before anything is read.

        Raises:
            FencedError: another writer has taken over.
            LakeError: it cannot be written.
        """
        known = {planned.topic: self.state.get(planned.topic, MirrorState()) for planned in steps}
        changed = {
            planned.topic: replace(known[planned.topic], pending=planned, moved=known[planned.topic].moved or now)
            for planned in steps
        }
        self._record(now, "planned", changed)
        step("mirror-planned")

    def record_absence(self, now: datetime, topic: str, absence: MissingRows) -> None:
        """Record rows of a mirror that are gone; its next step takes them.

        Raises:
            FencedError: another writer has taken over.
            LakeError: it cannot be written.
        """
        state = self.state[topic]
        self._record(now, "absent", {topic: replace(state, absences=(*state.absences, absence))})
        step("absence-recorded")

    def complete(self, now: datetime, changed: Mapping[str, MirrorState]) -> None:
        """Record states whose steps are committed, or that moved without events.

        Raises:
            FencedError: another writer has taken over.
            LakeError: it cannot be written.
        """
        self._record(now, "complete", {topic: self._timed(now, topic, state) for topic, state in changed.items()})
        step("mirror-complete")

    def _timed(self, now: datetime, topic: str, state: MirrorState) -> MirrorState:
        """The state with the time at which it has come so far; one whose step is given up stays where it was."""
        known = self.state.get(topic, MirrorState())
        if (state.step, state.lsn) == (known.step, known.lsn):
            return state
        is_made = known.pending is not None and known.pending.whole and known.pending.step == state.step
        return replace(state, moved=now, made=now if is_made else state.made)

    def _record(self, now: datetime, event: str, changed: Mapping[str, MirrorState]) -> None:
        self._append(now, event, encode(changed), kind="fold")
        self._fold_if_due(now)


def _after(states: Mapping[str, MirrorState], row: Row) -> Mapping[str, MirrorState]:
    return {**states, **decode(dict[str, MirrorState], json.loads(row["detail"]))}


_FOLDING: Folding[Mapping[str, MirrorState]] = Folding({}, _after, encode)
