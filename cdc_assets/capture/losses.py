"""Notices that the lake has lost something, and says which tables can no longer be trusted, and from where on.

A table with a position and without its data is a gap, never a fresh table. What the manifest says and what the tables
hold is compared (`lake.audit`) when a run begins, before anything in flight is finished, and again with everything
that a table has before a run commits to it for the first time.

| found | done |
|---|---|
| a topic table holds less than its mark | the table has a gap, from what it can still show to its position; the others go on |
| Delta cannot read a topic table | the same, but it fails, for nothing can be written behind it |
| a topic table holds windows that the manifest does not know | the manifest is an older one: see below |
| topic tables, and no manifest | nothing is done: positions are not guessed |
| the schema history lacks something | nothing is done, unless `snapshot.mode` records structures anew |
| a topic of no table lacks something | it is told, and goes on |

*An older manifest.* Numbers of windows that tables have are never given again, for a table would leave out what it
seems to have. A table whose unknown commits are windows of the log that follow one another, the first of them from its
position on, is complete to the end of the last: each says in its commit which LSNs it covers, and a window holds all
changes of a table between the two. Of any other table one cannot know what it lacks, so it has a gap.

*Why nothing is missed, and no alarm is false.* A mark is recorded behind the commit that it speaks of. So a crash
leaves a table with more than its mark says, and never with less; and if the row with the mark is lost too, the number
of the window tells. The findings, the new marks and the number of the next window are one row of the manifest: after a
crash before it all is found again, after it nothing is.

*Mending.* A snapshot of a table with a gap first takes files that are not whole out of the Delta table, so that it can
be read; a crash in between finds the gap and the files again, or the gap alone. READs of the snapshot lie behind
whatever was lost, as with any gap.
"""

import dataclasses
import itertools
import logging
from collections.abc import Collection, Mapping, Sequence

from cdc_assets.capture.endings import give_up_snapshot
from cdc_assets.capture.instances import before
from cdc_assets.capture.lake import Lake
from cdc_assets.capture.ledger import Ledger
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.config.snapshot_modes import rule_of
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.envelope.naming import topic_name
from cdc_assets.errors import LakeError
from cdc_assets.heartbeat import heartbeat_topic
from cdc_assets.lake.audit import Examined, Loss, audit, examine, newest_lsn, unknown_commits
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.topics import TopicTables, generation
from cdc_assets.ledger.state import CaptureState, Status, TableState

log = logging.getLogger(__name__)

_SECONDS = 1.0
"""Time of a start for tables that look right."""
_KEEP_GAPS = 100
"""As of gaps in the log (`planner`)."""

AGAIN = "materialize the table's snapshot asset, or set gap.policy=resnapshot"
AWAY = "move that folder away, or restore it from a copy, then materialize the table's snapshot asset"


def topic_of(directory: str) -> str:
    """Topic of a generation's directory."""
    return directory.partition("@")[0]


def owners(state: CaptureState, config: CaptureConfig) -> dict[str, TableId]:
    """Tables of a capture by topic, also those whose first snapshot is in flight."""
    planned = [entry.table for run in state.snapshots.values() for entry in run.tables]
    return {topic_name(table, config.events): table for table in [*state.tables, *planned]}


def audited(
    tables: TopicTables, state: CaptureState, config: CaptureConfig, *, seconds: float | None = None
) -> dict[str, Examined]:
    """What the lake's tables hold, by directory; those of tables that have a gap or have failed are left out.

    Args:
        tables: the lake's Delta tables.
        state: what the manifest says.
        seconds: for tables that look right; None compares all of them.
    """
    topics, known = owners(state, config), {topic_of(directory) for directory in state.marks}
    resting = {topic_name(own.table, config.events) for own in state.tables.values() if own.status != "healthy"}
    chosen = {name for name in {*state.marks, *(topics.keys() - known)} if topic_of(name) not in resting}
    in_flight = _in_flight(state)
    whole = {name for name in chosen if topics.get(topic_of(name)) in in_flight}
    found = audit(tables, state.marks, chosen, whole=whole, seconds=seconds)
    if state.marks:
        return found
    # recorded by a release that kept no marks, but that made a table's folder before it set its position
    gone = {name for name, result in found.items() if result == Examined(None) and topics[name] in state.tables}
    return found | {name: Examined(None, Loss(name, "is gone")) for name in gone}


def _in_flight(state: CaptureState) -> set[TableId]:
    """Tables that are committed to before anything new is planned."""
    reads = {read.table for read in state.pending.reads} if state.pending else set()
    reads |= {entry.table for run in state.snapshots.values() for entry in run.tables}
    return reads | {signals.queue[0].table for signals in state.signals.values() if signals.reads and signals.queue}


def refuse_without_manifest(tables: TopicTables, state: CaptureState, directory: str, config: CaptureConfig) -> None:
    """See that there are no topics of a capture about which the manifest knows nothing.

    Args:
        tables: the lake's Delta tables.
        state: what the manifest says.

    Raises:
        LakeError: there are, so the manifest is lost.
    """
    if state.next_window > 1:
        return
    others = [name for name in tables.location.directories() if name != directory and is_numbered(name, config)]
    found = [name for name in others if tables.holds(name)]
    if found:
        some = ", ".join(found[:5]) + (" and others" if len(found) > 5 else "")
        raise LakeError(
            f"The manifest {tables.location.uri(directory)} is gone or empty, but {some} hold events of capture "
            f"{tables.capture}. Without it nobody knows up to where they are complete. Next: restore its folder from a "
            "copy. If there is none, move the folders of these topics out of the lake, or choose another lake.path or topic.prefix: "
            "the tables are then captured anew, from a first snapshot on."
        )


def is_numbered(directory: str, config: CaptureConfig) -> bool:
    """Whether commits to a topic are numbered by window, and not by time."""
    return directory not in {heartbeat_topic(config.heartbeat, config.events), config.notifications.sink_topic}


class Losses:
    """Compares manifest and lake for the run that has claimed them."""

    def __init__(self, ledger: Ledger, lake: Lake, config: CaptureConfig) -> None:
        self._ledger, self._lake, self._config = ledger, lake, config
        self._audited: set[str] = set()
        """Topics whose tables this run has compared with the manifest."""

    @property
    def _state(self) -> CaptureState:
        return self._ledger.state

    def at_start(self) -> None:
        """Find what was lost since the last run; nothing was committed by this one.

        Raises:
            LakeError: the schema history lacks something.
            FencedError: another writer has taken over.
        """
        self._settle(audited(self._lake.tables, self._state, self._config, seconds=_SECONDS))
        self._lake.history.load()
        self._check_history()

    def before_commit(self, tables: Collection[TableId]) -> None:
        """Compare all that some tables have, unless this run has; what is lost is recorded in their states.

        Raises:
            FencedError: another writer has taken over.
        """
        wanted = {topic_name(table, self._lake.events) for table in tables} - self._audited
        if not wanted:
            return
        marks = {name: mark for name, mark in self._state.marks.items() if topic_of(name) in wanted}
        self._settle(audit(self._lake.tables, marks, marks))
        self._audited |= wanted

    def clear(self, table: TableId) -> None:
        """Make the topic of a table that has lost data fit to be written to and read.

        Raises:
            LakeError: Delta cannot read it.
        """
        topic = topic_name(table, self._lake.events)
        for number in itertools.count(1):
            found = examine(self._lake.tables, directory := generation(topic, number), None)
            if found == Examined(None):
                return
            if found.loss is not None and not found.loss.readable:
                raise LakeError(f"The topic table {directory} {found.loss.what}. Next: {AWAY}.")
            if found.loss is not None:
                log.warning("%s %s. That is taken out of its log, so that it can be read.", directory, found.loss.what)
                self._lake.tables.remove_files(directory, found.loss.damaged)

    def _settle(self, found: Mapping[str, Examined]) -> None:
        """Record findings, and what the tables hold now."""
        topics = owners(self._state, self._config)
        by_table: dict[TableId, dict[str, Examined]] = {}
        for name, result in found.items():
            if topic_of(name) in topics:
                by_table.setdefault(topics[topic_of(name)], {})[name] = result
            elif result.loss is not None and name == self._lake.history.directory:
                if result.mark is not None or not result.loss.readable:  # of one that is gone see `_check_history`
                    self._refuse(f"{name} {result.loss.what}", possible=_RECORDING_ALL)
            elif result.loss is not None:
                log.error("%s %s. It belongs to no table, and goes on without.", name, result.loss.what)
        changed = [state for table, own in by_table.items() if (state := self._judged(table, own)) is not None]
        self._record(found, changed)
        for state in changed:
            if state.streams:  # nobody will snapshot it
                self.clear(state.table)

    def _judged(self, table: TableId, own: Mapping[str, Examined]) -> TableState | None:
        """A table's state, if it changes."""
        losses = [result.loss for result in own.values() if result.loss is not None]
        ahead = [name for name, result in own.items() if result.mark and result.mark.window >= self._state.next_window]
        if not losses and not ahead:
            return None
        for database, run in self._state.snapshots.items():
            if table in [entry.table for entry in run.tables]:
                give_up_snapshot(self._ledger, database)
        state = self._state.tables.get(table)
        if state is None or state.status != "healthy":
            return None
        return self._with_losses(state, losses) if losses else self._beyond_manifest(state, ahead)

    def _with_losses(self, state: TableState, losses: Sequence[Loss]) -> TableState:
        end = state.position or state.snapshot_lsn or ZERO_LSN
        until = max(loss.until or end for loss in losses)
        after = min(min(loss.after for loss in losses), before(until))
        what = "; ".join(f"{loss.directory} {loss.what}" for loss in losses)
        return self._lost(state, after, until, what, readable=all(loss.readable for loss in losses))

    def _beyond_manifest(self, state: TableState, ahead: Sequence[str]) -> TableState | None:
        """Of a table with windows that the manifest does not know: what it is complete to, or what it may lack."""
        if state.position is None:
            return None
        if len(ahead) == 1:
            pending, first = self._state.pending, self._state.next_window
            if pending is not None and pending.database == state.table.database:
                first = pending.window_id
            reached = _end_of(unknown_commits(self._lake.tables, ahead[0], first), state.position)
            if reached is not None:
                log.warning(
                    "%s goes on from %s: its topic has windows that the manifest has lost.", state.table, reached
                )
                return dataclasses.replace(state, position=reached)
        ends = [end for name in ahead if (end := newest_lsn(self._lake.tables, name)) is not None]
        until = max([state.position.next(), *ends])
        what = f"{ahead[0]} holds windows that the manifest does not know, which is an older one"
        return self._lost(state, state.position, until, what, readable=True)

    def _lost(self, state: TableState, after: Lsn, until: Lsn, what: str, *, readable: bool) -> TableState:
        policy, end = self._config.streaming.gap_policy, state.position
        state = dataclasses.replace(state, gaps=(*state.gaps, (after, until))[-_KEEP_GAPS:])
        told = f"Events after {after} up to {until} are lost in the lake or cannot be trusted: {what}."
        if policy == "ignore" and readable:
            return dataclasses.replace(state, position=end and max(end, until))
        status: Status = "gap" if readable and end is not None else "failed"
        return dataclasses.replace(state, status=status, reason=f"{told} Next: {AGAIN if readable else AWAY}.")

    def _record(self, found: Mapping[str, Examined], changed: Sequence[TableState]) -> None:
        now, known = self._state.next_window, self._state.marks
        held = {name: result.mark and dataclasses.replace(result.mark, examined=now) for name, result in found.items()}
        numbers = [
            mark.window + 1 for name, mark in held.items() if mark is not None and is_numbered(name, self._config)
        ]
        news = any(_plain(mark) != _plain(known.get(name)) for name, mark in held.items())
        if changed or news or len(held) < len(known) or max(numbers, default=0) > now:
            self._ledger.manifest.record_audit(self._ledger.clock.now(), changed, held, max([now, *numbers]))

    def _check_history(self) -> None:
        """See that the structures of all tables that go on are known."""
        states, history = self._state.tables.values(), self._lake.history
        lacking = [state.table for state in states if state.streams and not history.entries(state.table)]
        if lacking:
            some = ", ".join(map(str, lacking[:5])) + (" and others" if len(lacking) > 5 else "")
            self._refuse(f"{history.directory} is gone, or knows nothing of {some}", possible=_RECORDING_LACKING)

    def _refuse(self, what: str, possible: Collection[str]) -> None:
        """Nothing is read without the structures that the rows had, unless the settings want them recorded anew."""
        rule = rule_of(self._config.snapshot)
        if {rule.schema, rule.data} & set(possible):
            log.warning("The schema history %s. Structures are recorded as the tables have them now.", what)
            return
        raise LakeError(
            f"The schema history {what}, though positions of tables are recorded. Next: restore its folder from a copy, or "
            "set snapshot.mode=recovery for one run, which records the structures that the tables have now. Rows that "
            "were changed before a table was last altered, and not read yet, would be read with the wrong structure: then "
            "materialize that table's snapshot asset."
        )


_RECORDING_ALL = ("each start",)
"""Rules of a snapshot mode that record every structure anew."""
_RECORDING_LACKING = ("each start", "needed", "history lost")


def _end_of(commits: Sequence[tuple[Lsn, Lsn] | None], position: Lsn) -> Lsn | None:
    """Where commits end that follow one another from a position on; None if they do not."""
    reached = position
    for commit in commits:
        if commit is None or commit[0] != reached:
            return None
        reached = commit[1]
    return reached if commits else None


def _plain(mark: Mark | None) -> Mark | None:
    return mark and dataclasses.replace(mark, examined=0)
