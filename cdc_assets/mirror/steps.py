"""Decides which events the next step of a mirror takes.

*Why a mirror is right at the LSNs that it publishes.* A topic table is complete up to its position in the manifest, and
windows hold whole transactions. So the events up to any commit LSN not above it, in their order, make the rows that the server had
there, if the rows were known at the beginning. READs carry the LSN of their snapshot, and a table's
position is not above it while they are written. Therefore events are taken by LSN and not by window: READs that are
ahead of the position wait until it has reached them. Those that are committed at the very LSN that is reached already
(incremental snapshots) are recognized by their window.

*When rows were read later than the LSN of their READs*, events up to an LSN in between make rows of different moments (`spans`).
That is so of any snapshot but those of tables without a key. No step ends there: a mirror waits before it until its topic is behind it, and then
takes all of it at once. So the first LSN of a mirror is at the end of the first such span, and nothing that it has published is ever wrong.
Spans from before a loss that was repaired do not count for a mirror that knows of it. One that does not comes near to the loss by steps
outside of them; then one step takes everything up to the repair, and what it takes of a span has happened at its end, or at the step's.

*When changes were lost* (a gap; capture was turned off; the database was restored) and the whole table was read again at
LSN R, the rows before say nothing about those after. The step that reaches R takes all events up to it at once, and
removes what no event has told of since the loss. A mirror that is late comes to right before the end of the table's former life first. While the loss is not repaired, the mirror stays at its end, or, if
`gap.policy=ignore` lets the table continue, it follows and names the gap.

*When old events were dropped* (`retention`), the topic holds every event after some LSN. A mirror that has come at least
that far continues. One that is rebuilt, or late, needs a snapshot of the whole table after it, whose READs tell all rows;
without one it is refused. Unless what was dropped had been replaced by other events of the same rows: then what is left makes the
rows at that LSN and later, so its first step ends there at the earliest.
*A first step that was planned before they were dropped* (`is_overtaken`) is never carried out, whatever was read since: it may end before the
reading that tells all rows, or say that the mirror is right from an LSN of which rows are gone. One is planned by what is left.

A mirror that is started late, or rebuilt, begins at the newest such loss, and with a step up to R: before that it would
lack rows.

*Tables without a key*: what else happened at R may name rows otherwise than the last reading, such as by a dropped column. It comes
before the READs, so a mirror that begins there takes nothing before these (`reads`); else rows would be there twice.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cdc_assets.core.lsn import LSN_WIDTH, Lsn
from cdc_assets.envelope.reads import first_read
from cdc_assets.errors import EventsDroppedError
from cdc_assets.lake.events import EventFile, EventRange
from cdc_assets.ledger.readings import Reading
from cdc_assets.ledger.table_state import TableState
from cdc_assets.mirror.ledger import MirrorState, PlannedStep, is_keyless
from cdc_assets.mirror.spans import Span, before, outside, proof_from, right_from, span_of

STEP_ROWS = 2_000_000
"""Rows of topic files at which a step ends; but it ends between commits."""
_NEVER = 2**62
_WINDOW = re.compile(r"w(\d{10})-")


@dataclass(frozen=True, slots=True)
class Target:
    """What a table's mirror may know now.

    Args:
        position: commit LSN up to which the topic is complete.
        read: LSN of the last snapshot of the whole table; empty if there was none.
        window: greatest number of a window that is complete.
        starts: LSNs at which a new life of the table began, or changes before which were lost or left out; ascending.
        gaps: intervals of lost changes.
        complete_after: commit LSN after which the topic holds every event; empty if nothing was dropped.
        rows_from: commit LSN from which on the events that are left make the rows (`lake.retained`).
        altered: LSNs from which on rows are others without an event (`altered`); ascending.
        read_later: see `spans`; all that are known.
        reads_all: whether the last snapshot read all rows, and not those of `snapshot.select.statement.overrides`.
        reads: position before which events say nothing of the rows that the last snapshot read, though they may have its LSN: changes, and
            what was read before it. Empty if there was none.
    """

    position: str
    read: str
    window: int
    starts: tuple[str, ...] = ()
    gaps: tuple[tuple[str, str], ...] = ()
    complete_after: str = ""
    rows_from: str = ""
    altered: tuple[str, ...] = ()
    read_later: tuple[Span, ...] = ()
    reads_all: bool = True
    reads: str = ""

    @property
    def spans(self) -> tuple[Span, ...]:
        """Spans that count once a mirror knows of all losses."""
        return self.spans_since(self.read)

    def spans_since(self, known: str) -> tuple[Span, ...]:
        """Spans that count for a mirror: those since the newest loss that a snapshot has repaired.

        Args:
            known: LSN up to which the mirror knows of losses.
        """
        since = max((start for start in self.starts if start <= min(known, self.read)), default="")
        return tuple(span for span in self.read_later if span[0] >= since)

    @property
    def right_from(self) -> str | None:
        """Least LSN from which on the last snapshot of the whole table tells all rows; None if it is not known yet."""
        return right_from(self.read, self.spans)

    @property
    def end(self) -> str:
        """How far a mirror may come: the position, or before the span in which that lies."""
        return outside(self.position, self.spans)

    @property
    def since(self) -> str:
        """The newest start that a snapshot of the whole table has repaired; empty if nothing was lost."""
        return max((start for start in (*self.starts, *self.altered) if start <= self.read), default="")

    def lacks_rows(self, since: str) -> bool:
        """Whether a mirror may lack rows that events remove, if it knows of the losses up to an LSN."""
        return not (self.read and self.reads_all) or bool(self.gaps_since(since))

    def gaps_since(self, since: str) -> tuple[tuple[str, str], ...]:
        """Gaps that a mirror has which knows of the losses up to an LSN that a snapshot has repaired."""
        return tuple(gap for gap in self.gaps if gap[1] > since)


def target_of(state: TableState, window: int, drops: Sequence[Lsn], readings: Sequence[Reading]) -> Target | None:
    """What is known of a table; None if it has no rows yet.

    Args:
        state: recorded in the manifest.
        window: greatest number of a complete window.
        drops: LSNs from which on the table was no longer there.
        readings: recorded in the manifest.
    """
    position = state.reached
    if position is None:
        return None
    ends = {str(until) for _, until in state.gaps} | {str(one.made_good_by) for one in state.skipped}
    starts = sorted({str(lsn) for lsn in drops} | ends)
    gaps = tuple((str(after), str(until)) for after, until in state.gaps)
    read = "" if state.snapshot_lsn is None else str(state.snapshot_lsn)
    spans = tuple((str(one.low), str(one.high or "")) for one in readings)
    reads_all, reads = state.reads_all is not False, first_read(read, state.snapshot_id) if read else ""
    return Target(str(position), read, window, tuple(starts), gaps, read_later=spans, reads_all=reads_all, reads=reads)


def is_behind(known: MirrorState, state: TableState, readings: Sequence[Reading]) -> bool:
    """Whether a topic is ahead of its mirror, by what is known without reading the topic.

    Args:
        known: the mirror's state.
        state: the table's state in the manifest.
        readings: recorded in the manifest.
    """
    target = target_of(state, 0, (), () if known.is_keyless else readings)
    return target is not None and (known.step == 0 or known.lsn < target.end)


def may_move(known: MirrorState, state: TableState, readings: Sequence[Reading]) -> bool:
    """As `is_behind`; but a mirror that was never made needs to know up to where the last snapshot has read its rows."""
    target = target_of(state, 0, (), () if known.is_keyless else readings)
    is_begun = known.step > 0 or (target is not None and target.right_from is not None)
    return is_begun and is_behind(known, state, readings)


def next_step(
    topic: str, known: MirrorState, target: Target, files: Sequence[EventFile], key: str, *, anew: bool = False
) -> PlannedStep | None:
    """The next step of a mirror; None if it has come as far as it can.

    Args:
        files: of the topic.
        key: `Shape.key_text` of the shape now.
        anew: whether the mirror is to be rebuilt.
    """
    found = _next(topic, known, target, files, key, anew=anew)
    if found is None and known.step and not all(absence.taken for absence in known.absences):
        found = PlannedStep(
            topic, known.next_step, known.lsn, known.lsn, known.window, known.window, known.since, key=key
        )
    if found is None:
        return None
    # what a user's SELECT leaves out has no READ that would keep it: rather a row stays that went than one goes that is there
    proof = proof_from(found.since, known.spans) if found.void and target.reads_all else ""
    spans = _stepped_over(found, target)
    lost = max((until for _, until in target.gaps_since(found.since) if until <= found.until), default="")
    return replace(
        found,
        absences=len(known.absences),
        begin=_begin(found, known, target),
        spans=spans,
        proof=proof,
        doubt=proof_from(lost, (*known.spans, *spans)) if lost else "",
        reads=target.reads if is_keyless(key) and (found.whole or found.void) else "",
    )


def _begin(step: PlannedStep, known: MirrorState, target: Target) -> str:
    """LSN from which on a mirror is right with a step: the first one, or that with the rows of a table that no snapshot had read
    before. Empty for any other step, and while none has."""
    return right_up_to(step.until, target) if step.whole or not known.begin else ""


def right_up_to(lsn: str, target: Target) -> str:
    """LSN from which on a mirror that has come to an LSN has all rows of its table; empty if no snapshot has read them up to there."""
    right = target.right_from
    return max(right, target.rows_from) if right and right <= lsn else ""


def _stepped_over(step: PlannedStep, target: Target) -> tuple[Span, ...]:
    """Spans within a step; one over a loss ends all that began before it."""
    if step.void:
        ended = [(low, min(high or step.until, step.until)) for low, high in target.read_later if low < step.until]
        return tuple(span for span in ended if span[1] > step.after)
    spans = target.spans_since(step.since)
    return tuple(
        (low, high) for low, high in spans if high and high <= step.until and (step.whole or high > step.after)
    )


def _next(
    topic: str, known: MirrorState, target: Target, files: Sequence[EventFile], key: str, *, anew: bool
) -> PlannedStep | None:
    lost = target.since > known.since
    if anew or known.step == 0 or known.key != key or (lost and known.lsn >= target.read):
        return _first(topic, known, target, files, key)
    if target.end < known.lsn:
        return None
    end = outside(target.position, target.spans_since(known.since))
    base = PlannedStep(topic, known.next_step, known.lsn, end, known.window, target.window, known.since, key=key)
    if not lost:
        return _bounded(base, files, target)
    right = target.right_from
    if right is None or target.end < right:  # it only waits for the span, or may come nearer to the loss
        return None if target.position >= target.read or end < known.lsn else _bounded(base, files, target)
    ends = (*target.altered, *(start for start in target.starts if start not in {until for _, until in target.gaps}))
    first = min((lsn for lsn in ends if base.after < lsn <= target.read), default=target.read)
    earlier = replace(base, until=outside(before(first), target.spans_since(known.since)))
    if earlier.until > base.after and any(_takes(file, earlier) for file in files):
        return _bounded(earlier, files, target)
    return replace(base, until=right, since=target.since, void=True, lost=_lost_from(known.since, target))


def _lost_from(known: str, target: Target) -> str:
    """The least LSN of what was lost since a mirror knew of losses, and was made good by a reading."""
    gaps = [str(Lsn.parse(after).next()) for after, until in target.gaps if known < until <= target.read]
    return min([*gaps, *(start for start in (*target.starts, *target.altered) if known < start <= target.read)])


def _first(topic: str, known: MirrorState, target: Target, files: Sequence[EventFile], key: str) -> PlannedStep | None:
    """The first step: everything up to the snapshot of the whole table."""
    right = target.right_from
    if right is None or target.end < (min_end := max(right, target.rows_from)):
        return None
    after = max(before(target.since) if target.since else "", "" if target.rows_from else target.complete_after)
    if is_keyless(key) and target.read:  # of what was read before, events may name rows otherwise
        after = max(after, before(target.read))
    step = PlannedStep(
        topic, known.next_step, after, target.end, _NEVER, target.window, target.since, whole=True, key=key
    )
    return _bounded(step, files, target, min_end)


def require_events(step: PlannedStep, target: Target) -> None:
    """Check that the topic still holds what a step needs.

    Raises:
        EventsDroppedError: it does not.
    """
    if step.whole and target.rows_from and step.until >= target.rows_from:
        return
    read_again = target.complete_after < target.read
    if step.after >= target.complete_after and not (step.whole and target.complete_after and not read_again):
        return
    if step.whole and read_again:
        return
    wanted = f"events after {step.after}" if step.after and not step.whole else "all events, to make its mirror"
    snapshot = (
        "" if read_again else "take a snapshot of the whole table (its snapshot asset, or a blocking snapshot), then "
    )
    raise EventsDroppedError(
        step.topic, target.complete_after, wanted, f"{snapshot}cdc-assets mirror --rebuild for this table"
    )


def is_overtaken(step: PlannedStep, target: Target) -> bool:
    """Whether events that a mirror's first step was to take may have been dropped since it was planned.

    What then was dropped already is below its beginning, or, if what was left made the rows, not above the LSN from which on it is right.
    Of a table that no snapshot has read, it is right nowhere, and what is left makes the rows at its end.
    """
    if not step.whole:
        return False
    return target.rows_from > (step.begin or step.until) if target.rows_from else target.complete_after > step.after


def range_of(step: PlannedStep) -> EventRange:
    """The events that a step takes."""
    return EventRange(step.after, step.until, step.known, step.window, step.reads if step.whole else "")


def _takes(file: EventFile, step: PlannedStep) -> bool:
    """Whether a file may hold events of a step."""
    return range_of(step).may_hold(file.least, file.greatest) and not _is_known(file, step)


def _is_known(file: EventFile, step: PlannedStep) -> bool:
    """Whether a file that ends at the LSN that is reached was applied: its name tells its window."""
    return file.greatest[:LSN_WIDTH] == step.after and window_of(file, _NEVER) <= step.known


def window_of(file: EventFile, unknown: int) -> int:
    """Number of the window that a file's name tells; that of a joined one tells none."""
    match = _WINDOW.match(file.path)
    return unknown if match is None else int(match[1])


def files_of(step: PlannedStep, files: Sequence[EventFile]) -> list[EventFile]:
    """Files that may hold events of a step, in the order of their positions."""
    return sorted((file for file in files if _takes(file, step)), key=lambda file: (file.least, file.path))


def _bounded(step: PlannedStep, files: Sequence[EventFile], target: Target, min_end: str = "") -> PlannedStep | None:
    """A step that ends where enough rows are taken, but in no span; None if nothing is new.

    Args:
        min_end: LSN before which it must not end.
    """
    chosen = sorted(files_of(step, files), key=lambda file: file.greatest)
    at_once = step.after == step.until and not step.whole
    if at_once and (not chosen or step.known >= step.window):  # names of compacted files have no window
        return None
    rows, spans = 0, target.spans_since(step.since)
    for file in chosen:
        rows += file.rows
        end = file.greatest[:LSN_WIDTH]
        is_right = end >= min_end and span_of(end, spans) is None
        if rows >= STEP_ROWS and step.after < end < step.until and is_right:
            return replace(step, until=end)
    return step
