"""Whether mirrors follow their topics: which cannot, with the reason that their last step has met, whether anybody keeps them, and what
their tables lack.

*What is late.* A mirror that lags its topic is the next step's, which may be minutes away. So it is late if it has not moved for
`mirror.late.ms`, whatever others do: a step that kills its process leaves no reason, and others may go on. What has come only since counts
from then, so that a change after quiet hours is not late at once. One that waits until it is known where a snapshot's rows end in the log
has had that time since the snapshot, too. Nobody finds it out while another snapshot of its database reads, whose end counts as well. A
mirror that was never begun has had that time since its table was read, and since the first mirror was begun. If none ever was, the time
counts from when the manifest was made.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import NamedTuple

from cdc_assets.core.clocks import seconds_behind
from cdc_assets.core.identifiers import TableId
from cdc_assets.envelope.naming import topic_name
from cdc_assets.errors import ConfigurationError
from cdc_assets.lake.system_topics import manifest_directory
from cdc_assets.lake.tables import DeltaTables
from cdc_assets.ledger.fenced_log import Row
from cdc_assets.ledger.readings import Reading
from cdc_assets.ledger.table_state import TableState
from cdc_assets.mirror.audit import seen_losses
from cdc_assets.mirror.capture import ALL, check_settings, has_mirror
from cdc_assets.mirror.delta import MirrorTables
from cdc_assets.mirror.ledger import MirrorLedger, MirrorState, ledger_directory
from cdc_assets.mirror.steps import is_behind, may_move
from cdc_assets.overview.capture import CaptureOverview
from cdc_assets.overview.formatting import duration
from cdc_assets.overview.report import Trouble

_MAX_NAMED = 5
_MOVING = ("complete", "advance", "snapshot-complete")
"""Events of the manifest that take tables further."""


class MirrorFindings(NamedTuple):
    """What is wrong with the mirrors of a capture, and what is not known of them."""

    troubles: Sequence[Trouble] = ()
    unknown: Sequence[Trouble] = ()


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A table whose mirror is behind its topic.

    Args:
        is_held: whether it is unknown yet where its rows end in the log.
        seconds: for how long nothing has moved it that could; None if not known.
        never: whether no mirror was ever made.
    """

    table: TableId
    is_held: bool
    seconds: float | None
    never: bool


def inspect_mirrors(overview: CaptureOverview, at: datetime) -> MirrorFindings:
    """What is found about the mirrors of a capture; nothing if it has none.

    Raises:
        LakeError: the lake cannot be read.
    """
    config = overview.config
    if not config.mirror.enabled:
        return MirrorFindings()
    try:
        check_settings(config)
    except ConfigurationError as error:
        return MirrorFindings([Trouble(ALL, f"the settings allow none: {error}")])
    topics = {topic_name(table, config.events): table for table in overview.known if has_mirror(config, table)}
    waiting = list(_waiting(overview, topics, at))
    late = [found for found in waiting if (found.seconds or 0.0) > config.mirror.late_s]
    ahead = [found for found in waiting if found.seconds is None]
    return MirrorFindings(
        [*_hindered(overview, topics), *_lacking(overview, topics), *_late(late)], list(_ahead(ahead))
    )


def _hindered(overview: CaptureOverview, topics: Mapping[str, TableId]) -> Iterator[Trouble]:
    for what, found in overview.hindrances.get("mirrors", {}).items():
        if what in topics:
            yield Trouble(f"the mirror of {topics[what]}", f"it cannot follow its topic: {found.why}")
        elif what == ALL:
            yield Trouble(ALL, f"they cannot follow since {found.since:%Y-%m-%d %H:%M:%S} UTC: {found.why}")


def _lacking(overview: CaptureOverview, topics: Mapping[str, TableId]) -> Iterator[Trouble]:
    """Mirrors whose tables lack data, as far as there is time to examine them."""
    mirrors = MirrorTables.of(overview.config)
    ledger = MirrorLedger(mirrors.tables, overview.config.events.topic_prefix)
    found = seen_losses(mirrors, ledger.read, topics, seconds=overview.audit_s, turns=overview.turns)
    lost = {topics[topic]: losses for topic, losses in found.items()}
    for table, losses in list(lost.items())[:_MAX_NAMED]:
        what = "; ".join(f"{loss.directory} {loss.what}" for loss in losses)
        yield Trouble(
            f"the mirror of {table}",
            f"{what}. The next mirror run rebuilds it. Next: `cdc-assets mirror {table}`, or let Dagster's sensor run",
        )
    if others := list(lost)[_MAX_NAMED:]:
        yield Trouble(ALL, f"those of {_named(others)} lack data, too. The next mirror run rebuilds them")


def _late(late: Sequence[_Waiting]) -> Iterator[Trouble]:
    held = [found.table for found in late if found.is_held]
    behind = [found for found in late if not found.is_held]
    if held:
        yield Trouble(
            ALL,
            f"those of {_named(held)} wait until it is known up to where in the log a snapshot has read their rows, for which the capture "
            "job must pass the end of that snapshot, and the capture must run. Next: let it run; if it does, see `cdc-assets doctor`",
        )
    if behind:
        longest = max(found.seconds or 0.0 for found in behind)
        was = "none was ever made" if behind[0].never else f"nothing has moved them for {duration(longest)}"
        yield Trouble(
            ALL,
            f"those of {_named([found.table for found in behind])} are behind their topics, and {was}. Next: `cdc-assets mirror`, or let "
            "Dagster's sensor run; `capture` updates none",
        )


def _ahead(ahead: Sequence[_Waiting]) -> Iterator[Trouble]:
    if ahead:
        yield Trouble(
            ALL,
            f"those of {_named([found.table for found in ahead])} lack events of their topics, and for how long is not known: they were moved "
            "at a time that lies ahead of the clock here. Next: correct the clocks; the next step of a mirror ends this, too",
        )


def _waiting(overview: CaptureOverview, topics: Mapping[str, TableId], at: datetime) -> Iterator[_Waiting]:
    tables, prefix = MirrorTables.of(overview.config).tables, overview.config.events.topic_prefix
    ledger = MirrorLedger(tables, prefix)
    rows = ledger.rows()
    states = ledger.read() if rows else {}
    begun = _made(tables, ledger_directory(prefix)) if rows else _made(overview.lake, manifest_directory(prefix))
    newest = rows[-1]["at"] if rows else begun
    read = cache(lambda: _times_read(overview.rows()))
    came = cache(lambda database, lsn: _came(overview.rows(), database, lsn))
    ended = cache(lambda name: max((at for one, at in read().items() if one.database == name), default=None))
    let_go = cache(lambda database: _let_go(overview.rows(), database))
    for topic, table in topics.items():
        state, readings = states.get(topic, MirrorState()), overview.state.readings.get(table, ())
        is_held = _is_held(state, overview.known[table], readings)
        could_move = may_move(state, overview.known[table], readings)
        if not is_held and not is_behind(state, overview.known[table], readings):
            continue
        snapshot = overview.state.snapshots.get(table.database)
        if is_held and snapshot is not None and any(entry.table == table for entry in snapshot.tables):
            continue  # it is reading still, which its table says
        if is_held and (snapshot is not None or not overview.includes(table)):
            # what it cannot take yet waits for a snapshot of others, which is shown, or for nobody
            if not could_move:
                continue
            is_held = False
        if is_held:  # others that move say nothing of it
            known = [state.moved, read().get(table)]
            times = known if any(known) else [newest if state.step else begun]
            times.append(ended(table.database))
        else:
            is_begun = state.moved or state.step
            moved = [state.moved or newest] if is_begun else [begun, read().get(table)]
            times = [*moved, let_go(table.database) if readings else None]
        times.append(came(table.database, state.lsn))
        since = max(filter(None, times), default=None)
        yield _Waiting(table, is_held, 0.0 if since is None else seconds_behind(at, since), not rows)


def _came(rows: Iterable[Row], database: str, lsn: str) -> datetime | None:
    """When a database went beyond an LSN, as far as rows of the manifest show both what was before and what came."""
    is_known = False
    for row in rows:
        if (
            row["event"] not in _MOVING
            or row["kind"] == "snapshot"
            or database not in (row["database"] or "").split(", ")
        ):
            continue
        reached = _reached(row)
        if reached is not None and reached <= lsn:
            is_known = True
        elif is_known:
            return row["at"]  # type: ignore[no-any-return]
    return None


def _let_go(rows: Sequence[Row], database: str) -> datetime | None:
    """When it was last found where rows of a database end in the log, for which mirrors were held until then."""
    return next(
        (row["at"] for row in reversed(rows) if row["event"] == "readings" and row["database"] == database), None
    )


def _reached(row: Row) -> str | None:
    """LSN up to which a row says that its database is complete; None if its detail alone would say it."""
    if row["event"] != "snapshot-complete":
        return row["until"]  # type: ignore[no-any-return]
    tables = json.loads(row["detail"])["tables"]
    return max((table["position"] for table in tables if table["position"]), default=None)


def _is_held(state: MirrorState, known: TableState, readings: Sequence[Reading]) -> bool:
    """Whether a mirror is not where its topic is while it is unknown where rows of its table end in the log.

    That it has come as far as it can says nothing: it waits before these rows, however far its topic is.
    """
    is_open = not state.is_keyless and any(reading.high is None for reading in readings)
    return is_open and known.reached is not None and state.lsn < str(known.reached)


def _named(tables: Sequence[TableId]) -> str:
    more = f" and {len(tables) - _MAX_NAMED} more" if len(tables) > _MAX_NAMED else ""
    return ", ".join(map(str, tables[:_MAX_NAMED])) + more


def _times_read(rows: Iterable[Row]) -> dict[TableId, datetime]:
    """When a snapshot has read each table, as far as rows of the manifest show it."""
    complete = [row for row in rows if row["event"] == "snapshot-complete"]
    return {TableId(*one["table"]): row["at"] for row in complete for one in json.loads(row["detail"])["tables"]}


def _made(tables: DeltaTables, directory: str) -> datetime | None:
    """When a table of the lake was made."""
    handle = tables.open(directory)
    created = handle.metadata().created_time if handle is not None else None
    return datetime.fromtimestamp(created / 1000, UTC) if created else None
