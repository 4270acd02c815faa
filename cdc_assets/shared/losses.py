"""Detects data loss in the lake, and which tables can no longer be trusted from which position on.

A table with a position and without its data has a gap; it is never treated as new. The manifest is compared with what the tables
hold (`lake.audit`) when a run begins, before anything in flight is finished; of tables that are stopped, only those are that have
something in flight, such as the snapshot that is to repair them. A table is compared again, with all its data, before
a run commits to it for the first time, and when another program's rewrite has lost rows of it. While the run continues, one table
after the other is compared: a run may last for half a day, and its page says that all is well.

| found | action |
|---|---|
| a topic table holds less than its mark | the table has a gap, from what it still holds to its position; the others continue |
| the same, and the table is stopped already | its state lacks that interval too; it stays stopped |
| the same, and the table was reset | its next state begins with the gap |
| Delta cannot read a topic table | the same, but the table fails, because nothing can be appended to it |
| a topic table holds windows that the manifest does not know | the manifest is an older copy: see below |
| topic tables, and no manifest | the run ends with an error: positions are not guessed |
| nothing, where the capture's manifest was before | the run ends with an error: the lake is not mounted (`lake.known`) |
| the schema history lacks something | the run ends with an error, unless `snapshot.mode` records structures again |
| a topic of no table lacks something | it is logged, and the run continues |

*An older manifest* does not know generations and topics that were made since, so these are looked for. Window numbers found in tables are never assigned again, for a table would skip a window that it
seems to have. A table is complete to the end of its last unknown commit if these commits are windows of the log that follow each
other, from its position on: each commit records which LSNs it covers, and a window
holds all changes of a table between the two. Of any other table it is not known what it lacks, so it has a gap.

*Why no loss is missed, and no alarm is false.* A mark is recorded after the commit that it describes. So a crash leaves
a table with more than its mark says, never with less; and if the row with the mark is lost too, the window number
proves it. The losses found, the new marks and the number of the next window are one row of the manifest: after a crash
before that row everything is found again, after it nothing is.

*Repairing.* A snapshot of a table with a gap first removes incomplete files from the Delta table, so that it can be
read. After a crash in between, the next run finds the gap and the files again, or only the gap. READs of the snapshot
are placed after whatever was lost, as with any gap. A snapshot whose READs may be among what was lost has repaired nothing.
"""

import dataclasses
import itertools
import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.config.snapshot_modes import rule_of
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.envelope.naming import NOT_IN_TOPIC, TWO_UNITS, topic_name
from cdc_assets.errors import ConfigurationError, LakeError, RetryableError
from cdc_assets.lake.audit import Examined, Loss, Turns, audit, examine, newest_lsn, unknown_commits
from cdc_assets.lake.known import NEW_LAKE, refuse_if_known
from cdc_assets.lake.location import STORE_ERRORS
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.owners import refuse_unread, tables_of
from cdc_assets.lake.replacing import Fence, Replacement
from cdc_assets.lake.rewriting import rewrite_files
from cdc_assets.lake.system_topics import is_numbered
from cdc_assets.lake.tables import unreadable
from cdc_assets.lake.topics import TopicTables, generation
from cdc_assets.lake.unrecorded import present, unrecorded
from cdc_assets.ledger.gaps import EarlyReads, Interval, with_lost
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.endings import give_up_snapshot
from cdc_assets.shared.instances import before
from cdc_assets.shared.lake import Lake

log = logging.getLogger(__name__)

T = TypeVar("T")

_SECONDS = 1.0
"""Time limit in seconds, at the start of a run, for examining tables that look right."""
_FEW = 8
"""Commits that comparisons of a quiet topic, and the first look of each run, may read again and again."""

SNAPSHOT_AGAIN = (
    "read the table again (its snapshot asset, or cdc-assets capture --table), or set gap.policy=resnapshot"
)
MOVE_FOLDER = "move that folder away, or restore it from a copy, then materialize the table's snapshot asset"


def topic_of(directory: str) -> str:
    """Topic of a generation's directory."""
    return directory.partition("@")[0]


def owners(state: CaptureState, config: CaptureConfig) -> dict[str, TableId]:
    """Tables of a capture by topic, including those whose first snapshot is in flight, and those that have events and no state."""
    planned = [entry.table for run in state.snapshots.values() for entry in run.tables]
    return {topic_name(table, config.events): table for table in [*state.early, *state.tables, *planned]}


def audited(
    tables: TopicTables,
    state: CaptureState,
    config: CaptureConfig,
    *,
    seconds: float | None = None,
    turns: Turns | None = None,
) -> dict[str, Examined]:
    """What the lake's tables hold, by directory; without tables that have a gap or have failed, unless a commit to them is in flight.

    Args:
        tables: the lake's Delta tables.
        state: state recorded in the manifest.
        seconds: time limit for tables that look right; None compares all of them.
        turns: of somebody who only looks.
    """
    topics, known = owners(state, config), {topic_of(directory) for directory in state.marks}
    in_flight = {topic_name(table, config.events) for table in _in_flight(state)}
    stopped = _stopped_topics(state, config) - in_flight
    names = {*state.marks, *(topics.keys() - known), *unrecorded(tables.location, state.marks, config)}
    chosen = {name for name in names if topic_of(name) not in stopped}
    whole = {name for name in chosen if topic_of(name) in in_flight}
    return audit(tables, state.marks, chosen, whole=whole, seconds=seconds, turns=turns)


def _stopped_topics(state: CaptureState, config: CaptureConfig) -> set[str]:
    return {topic_name(entry.table, config.events) for entry in state.tables.values() if _is_stopped(entry)}


def _is_stopped(state: TableState) -> bool:
    """Whether nothing is written to its topic until a snapshot or the settings let it continue."""
    return state.status != "healthy" and not state.resumes


def _in_flight(state: CaptureState) -> set[TableId]:
    """Tables that commits in flight belong to."""
    reads = {read.table for window in state.pending for read in window.reads}
    reads |= {entry.table for run in state.snapshots.values() for entry in run.tables}
    return reads | {table for signals in state.signals.values() if (table := signals.table_of_reads)}


def refuse_without_manifest(tables: TopicTables, state: CaptureState, directory: str, config: CaptureConfig) -> None:
    """Check that there are no topics of a capture whose manifest is empty, and that a manifest that is missing never was there.

    Args:
        tables: the lake's Delta tables.
        state: state recorded in the manifest.

    Raises:
        LakeError: there are such topics, or may be, so the manifest is lost; or the whole lake is.
    """
    if state.next_window > 1:
        return
    found = ([name for name in some if name != directory and is_numbered(name, config)] for some in tables_of(tables))
    held, unread = found
    if held:
        some = ", ".join(held[:5]) + (" and others" if len(held) > 5 else "")
        raise LakeError(
            f"The manifest {tables.location.uri(directory)} is gone or empty, but {some} hold events of capture "
            f"{tables.capture}. Without it their positions are unknown. Next: restore its folder from a "
            f"copy. If there is none, move the folders of these topics out of the lake and run `{NEW_LAKE}`, or choose another "
            "lake.path or topic.prefix: the tables are then captured again, beginning with a snapshot."
        )
    refuse_unread(tables, unread)
    if tables.open(directory) is None:
        refuse_if_known(tables.location, directory, tables.capture)


def other_name(state: CaptureState, config: CaptureConfig) -> ConfigurationError | None:
    """Why runs are refused, if the settings give a table's topic another name than the one under which it has its events:
    that would split the topic."""
    for table, entry in sorted(state.tables.items()):
        name, former = topic_name(table, config.events), topic_of(entry.directory)
        if former and name != former:
            as_before = "set topic.delimiter and topic.sanitize.pattern as they were"
            if (
                re.search(TWO_UNITS, str(table)) and not config.events.sanitize_pattern
            ):  # an earlier release named it so
                as_before = f"set topic.sanitize.pattern={NOT_IN_TOPIC}"
            return ConfigurationError(
                "topic name",
                name,
                f"{former}, which has the events of {table} so far",
                f"{as_before}, or choose another topic.prefix or lake.path, where all tables are captured again",
            )
    return None


class Losses:
    """Compares the manifest with the lake for the run that has claimed the capture."""

    def __init__(self, ledger: Ledger, lake: Lake, config: CaptureConfig) -> None:
        self._ledger, self._lake, self._config = ledger, lake, config
        self._audited: set[str] = set()
        """Topics whose tables this run has compared completely."""
        self._turns: dict[str, int] = {}
        """When a directory's turn was last, as a number that grows."""

    @property
    def _state(self) -> CaptureState:
        return self._ledger.state

    def at_start(self) -> None:
        """Find what was lost since the last run, before this run commits anything.

        Raises:
            LakeError: structures are missing from the schema history.
            FencedError: another writer has taken over.
        """
        self._lake.tables.expect_recorded(self._state.marks)
        found = audited(self._lake.tables, self._state, self._config, seconds=_SECONDS)
        self._record_losses(found, at_start=True)
        self._lake.history.load()
        self._check_history()

    def before_commit(self, tables: Collection[TableId]) -> None:
        """Compare some tables completely, unless this run has already; losses are recorded in their states.

        Raises:
            FencedError: another writer has taken over.
        """
        wanted = {topic_name(table, self._lake.events) for table in tables} - self._audited
        if not wanted:
            return
        location = self._lake.tables.location
        marks = {name: mark for name, mark in self._state.marks.items() if topic_of(name) in wanted}
        new = {name for name in unrecorded(location, marks, self._config) if topic_of(name) in wanted}
        new |= present(location, wanted - {topic_of(name) for name in marks})
        self.compare([*marks, *sorted(new)])
        self._audited |= wanted

    def compare_in_turn(self, seconds: float) -> None:
        """Compare topics completely with their marks, one after the other, those first whose turn was longest ago.

        Args:
            seconds: time limit; at least one is compared.

        Raises:
            FencedError: another writer has taken over.
            LakeError: the schema history lacks something.
        """
        until, stopped = time.monotonic() + seconds, _stopped_topics(self._state, self._config)
        names = [name for name in self._state.marks if topic_of(name) not in stopped]
        for turn, name in enumerate(sorted(names, key=lambda name: self._turns.get(name, 0))):
            if turn and time.monotonic() >= until:
                return
            self._turns[name] = 1 + max(self._turns.values(), default=0)
            if name in self._state.marks:
                self.compare([name])

    def compare(self, directories: Collection[str]) -> None:
        """Compare some tables of the lake completely with their marks, if they have one; losses are recorded in the states of their tables.

        Raises:
            FencedError: another writer has taken over.
        """
        marks = {name: mark for name, mark in self._state.marks.items() if name in set(directories)}
        self._record_losses(audit(self._lake.tables, marks, directories))

    def directory_of(self, table: TableId, known: str) -> str:
        """Directory of a table's topic: the one that is known, or the first of its present name."""
        return known or topic_name(table, self._lake.events)

    def clear(self, table: TableId) -> None:
        """Prepare the topic of a table that has lost data, so that it can be written and read.

        Raises:
            LakeError: Delta cannot read it.
        """
        clear_topic(self._lake.tables, topic_name(table, self._lake.events), self._ledger.manifest.require_writer)

    def _record_losses(self, found: Mapping[str, Examined], *, at_start: bool = False) -> None:
        """Record losses, and what the tables hold now.

        Args:
            found: result for each examined table.
            at_start: whether others are to be examined first the next time, if there was no time for them.
        """
        topics = owners(self._state, self._config)
        by_table: dict[TableId, dict[str, Examined]] = {}
        for name, result in found.items():
            if result.mark is None:  # a snapshot of this run is to make the table anew
                self._lake.forget(name)
            if topic_of(name) in topics:
                by_table.setdefault(topics[topic_of(name)], {})[name] = result
            elif result.loss is not None and name == self._lake.history.directory:
                if (
                    result.mark is not None or not result.loss.readable
                ):  # a missing history is handled by `_check_history`
                    self._refuse(f"{name} {result.loss.what}", possible=_RECORDING_ALL)
            elif result.loss is not None:
                log.error(
                    "%s %s. It belongs to no table; the capture continues without the lost data.",
                    name,
                    result.loss.what,
                )
        changed = [state for table, results in by_table.items() if (state := self._judged(table, results)) is not None]
        early = {table: reads for table, results in by_table.items() if (reads := self._early_judged(table, results))}
        self._record(found, changed, early, at_start=at_start)
        streaming = {state.table for state in changed if state.streams}
        for table in sorted(streaming | {table for table in early if _are_readable(by_table[table])}):
            self.clear(table)  # no snapshot will

    def _judged(self, table: TableId, results: Mapping[str, Examined]) -> TableState | None:
        """A table's new state, if it changes."""
        losses = _losses(results)
        ahead = [
            name for name, result in results.items() if result.mark and result.mark.window >= self._state.next_window
        ]
        if not losses and not ahead:
            return None
        for database, run in self._state.snapshots.items():
            if table in [entry.table for entry in run.tables]:
                give_up_snapshot(self._ledger, self._lake, database)
        state = self._state.tables.get(table)
        if state is None:
            return None
        if losses:
            return self._with_losses(state, losses)
        return self._beyond_manifest(state, ahead) if state.keeps_position else None

    def _with_losses(self, state: TableState, losses: Sequence[Loss]) -> TableState | None:
        after, until = _interval(losses, state.reached or ZERO_LSN)
        return self._lost(state, after, until, _what(losses), readable=all(loss.readable for loss in losses))

    def _early_judged(self, table: TableId, results: Mapping[str, Examined]) -> EarlyReads | None:
        """What a table that was reset lacks too, if that is news. READs of a first snapshot that was given up are read again."""
        losses, known = _losses(results), self._state.early.get(table)
        if not losses or known is None or known.object_id is not None or table in self._state.tables:
            return None
        lost = _interval(losses, known.low)
        if lost in known.gaps:  # known already
            return None
        log.warning("%s: %s", table, _lost_text(*lost, _what(losses)))
        return EarlyReads(known.low, None, (lost,), (lost,))

    def _beyond_manifest(self, state: TableState, ahead: Sequence[str]) -> TableState | None:
        """New state of a table with windows that the manifest does not know: a later position, or a gap."""
        if state.position is None:
            return None
        if len(ahead) == 1:
            pending = self._state.in_flight(state.table.database)
            first = self._state.next_window if pending is None else pending.window_id
            commits = self._read_log(ahead[0], partial(unknown_commits, window=first)) or ()
            reached = _end_of(commits, state.position)
            if reached is not None:
                log.warning(
                    "%s continues from %s: its topic has windows that the manifest has lost.", state.table, reached
                )
                return dataclasses.replace(state, position=reached)
        ends = [end for name in ahead if (end := self._read_log(name, newest_lsn)) is not None]
        until = max([state.position.next(), *ends])
        what = f"{ahead[0]} holds windows that the manifest does not know, which is an older one"
        return self._lost(state, state.position, until, what, readable=True)

    def _read_log(self, directory: str, read: Callable[[TopicTables, str], T]) -> T | None:
        """What a topic's log says, or None if Delta cannot read it.

        Raises:
            RetryableError: the store does not answer.
        """
        try:
            return read(self._lake.tables, directory)
        except (LakeError, *STORE_ERRORS) as error:
            if isinstance(away := unreadable(self._lake.tables.location.uri(directory), error), RetryableError):
                raise away from error
            return None

    def _lost(self, state: TableState, after: Lsn, until: Lsn, what: str, *, readable: bool) -> TableState | None:
        """The state with an interval of lost events; a table that is stopped stays as it is, and lacks them too."""
        policy, end = self._config.streaming.gap_policy, state.position
        reason = f"{_lost_text(after, until, what)} Next: {SNAPSHOT_AGAIN if readable else MOVE_FOLDER}."
        read = state.snapshot_lsn
        if read is not None and after < read <= until:  # its READs may be lost as well, and then make nothing good
            state = dataclasses.replace(state, snapshot_lsn=None)
        if _is_stopped(state):
            return self._lost_too(state, after, until, reason)
        state = dataclasses.replace(state, gaps=with_lost(state.gaps, after, until))
        if policy == "ignore" and readable:
            ignored = with_lost(state.ignored_gaps, after, until)
            return dataclasses.replace(state, position=end and max(end, until), ignored_gaps=ignored)
        return dataclasses.replace(state, status="gap", reason=reason) if readable and end else state.stopped(reason)

    def _lost_too(self, state: TableState, after: Lsn, until: Lsn, reason: str) -> TableState | None:
        if (after, until) in state.gaps:  # told already, and not cleared yet
            return None
        log.warning("%s: %s", state.table, reason)
        newest = state.gaps[-1:] if state.status == "gap" else ()  # the one that its reason is about
        gaps = (*with_lost(state.gaps[: len(state.gaps) - len(newest)], after, until), *newest)
        if state.status == "excluded":
            return dataclasses.replace(state, gaps=gaps, reason=f"{state.reason} {reason}")
        return dataclasses.replace(state, gaps=gaps)

    def _record(
        self,
        found: Mapping[str, Examined],
        changed: Sequence[TableState],
        early: Mapping[TableId, EarlyReads],
        *,
        at_start: bool,
    ) -> None:
        now, known = self._state.next_window, self._state.marks
        held = {name: result.mark and self._read_on(name, result.mark) for name, result in found.items()}
        numbers = [
            mark.window + 1
            for name, mark in held.items()
            if mark is not None and not mark.timed and is_numbered(name, self._config)
        ]
        news = any(_is_news(mark, known.get(name)) for name, mark in held.items())
        left = at_start and not known.keys() <= held.keys()
        if changed or early or news or left or max(numbers, default=0) > now:
            self._ledger.manifest.record_audit(self._ledger.clock.now(), changed, held, max([now, *numbers]), early)
        for name, mark in held.items():
            self._lake.tables.expect(name, mark)

    def _read_on(self, name: str, mark: Mark) -> Mark:
        """The mark of a topic that was examined now, with how far this run has read its log."""
        checked = min(self._lake.tables.checked(name), mark.version)
        return dataclasses.replace(mark, examined=self._state.next_window, checked=max(mark.checked, checked))

    def _check_history(self) -> None:
        """Check that the structures of all streaming tables are known."""
        states, history = self._state.tables.values(), self._lake.history
        lacking = [state.table for state in states if state.goes_on and not history.entries(state.table)]
        if lacking:
            some = ", ".join(map(str, lacking[:5])) + (" and others" if len(lacking) > 5 else "")
            self._refuse(f"{history.directory} is gone, or has no structure of {some}", possible=_RECORDING_LACKING)

    def _refuse(self, what: str, possible: Collection[str]) -> None:
        """End the run because structures of rows are missing, unless the snapshot mode records them again."""
        rule = rule_of(self._config.snapshot)
        if {rule.schema, rule.data} & set(possible):
            log.warning("The schema history %s. The tables' present structures are recorded.", what)
            return
        raise LakeError(
            f"The schema history {what}, although positions of tables are recorded. Next: restore its folder from a copy, or "
            "set snapshot.mode=recovery for one run, which records the present structures of the tables. Rows that "
            "were changed before a table was last altered, and not read yet, would be read with the wrong structure: in that case "
            "materialize that table's snapshot asset."
        )


_RECORDING_ALL = ("each start",)
"""Rules of a snapshot mode that record every structure again."""
_RECORDING_LACKING = ("each start", "needed", "history lost")


def _losses(results: Mapping[str, Examined]) -> list[Loss]:
    return [result.loss for result in results.values() if result.loss is not None]


def _are_readable(results: Mapping[str, Examined]) -> bool:
    return all(loss.readable for loss in _losses(results))


def _interval(losses: Sequence[Loss], end: Lsn) -> Interval:
    """What a table lacks whose topic reached to an LSN."""
    until = max(loss.until or end for loss in losses)
    return min(min(loss.after for loss in losses), before(until)), until


def _what(losses: Sequence[Loss]) -> str:
    return "; ".join(f"{loss.directory} {loss.what}" for loss in losses)


def _lost_text(after: Lsn, until: Lsn, what: str) -> str:
    return f"Events after {after} up to {until} are lost in the lake or cannot be trusted: {what}."


def _end_of(commits: Sequence[tuple[Lsn, Lsn] | None], position: Lsn) -> Lsn | None:
    """End of commits that follow each other from a position on; None if they do not."""
    reached = position
    for commit in commits:
        if commit is None or commit[0] != reached:
            return None
        reached = commit[1]
    return reached if commits else None


def _is_news(mark: Mark | None, known: Mark | None) -> bool:
    """Whether a mark is worth a row: it says another content, or spares the next comparisons, and looks, many commits."""
    if mark is None or known is None:
        return mark != known
    same = dataclasses.replace(known, examined=mark.examined, checked=mark.checked)
    return mark != same or max(mark.counted - known.counted, mark.checked - known.checked) > _FEW


def clear_topic(tables: TopicTables, topic: str, fence: Fence) -> None:
    """Remove damaged files from a topic's Delta tables, so that they can be written and read.

    Raises:
        FencedError: another writer has taken over.
        LakeError: Delta cannot read one of them.
    """
    for number in itertools.count(1):
        found = examine(tables, directory := generation(topic, number), None)
        if found == Examined(None):
            return
        if found.loss is not None and not found.loss.readable:
            raise LakeError(f"The topic table {directory} {found.loss.what}. Next: {MOVE_FOLDER}.")
        if found.loss is not None:
            log.warning(
                "%s %s. These files are removed from its Delta log, so that it can be read.", directory, found.loss.what
            )
            rewrite_files(tables, directory, Replacement(found.loss.damaged, dropped=None), fence)
