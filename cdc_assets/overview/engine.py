"""The report of a capture that another connector makes: the same object, made from batches and the database's log.

*What is reported.* A connector reads one log for all tables, and its offset is all that it knows. So there is one position, one
lag and one retention, and a table has no position of its own. The time of the position is in the offset, by the database's clock.

*Lag.* It is zero only if it is proved that the lake is complete up to the end of the log (`is_complete`), or no log is to be
read. Otherwise changes may be unread: while changes arrive, they are as late as the newest one that has arrived; else no later than the time at which the
connector was last heard. A run that has just begun is given time to hear it; runs that begin again and again and hear nothing are not: the
first of them counts. A batch that is planned and not in its tables is `windows`. A time that lies ahead of the clock is of a clock that was
set back, or of another one that goes wrong: then the lag is not known.

*Head-room.* A database that keeps its log for some hours removes a file when it was last written so long ago. What is not read yet was
written after the recorded place, so it is kept at least until that time plus these hours; if nothing is unread, for these hours.

*What others wrote*, to topics or files, comes from no database that is known here. There the topics or files are read for what they hold after
the recorded offsets; the lag is the age of the oldest of it. A reader that sees none of its topics is in trouble.

A database that does not answer makes the report shorter, and is among what is not known; a lake that cannot be read is its only
trouble.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from cdc_assets.config.engine import OVERRIDES, READ_LIST, EngineConfig
from cdc_assets.connectors.engine.overview import EngineOverview, EngineTopic
from cdc_assets.connectors.engine.row_reads import lacking, left_out
from cdc_assets.connectors.engine.source import LogPoint, Retention, SourceProbe, is_complete, time_of_offset
from cdc_assets.connectors.engine.topics import notification_topic, routes
from cdc_assets.connectors.engine.unread import AskUnread, Unread
from cdc_assets.core.clocks import seconds_behind
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ran_on import count_of
from cdc_assets.errors import CdcError, describe_error
from cdc_assets.overview.formatting import duration
from cdc_assets.overview.idle import STUCK_S, left_unread
from cdc_assets.overview.rates import PERIOD, mean_of
from cdc_assets.overview.report import (
    CaptureReport,
    DatabaseReport,
    Ddl,
    Lag,
    QueuedSnapshot,
    Rates,
    TableReport,
    Trouble,
)

OpenProbe = Callable[[], AbstractContextManager[SourceProbe]]

NOT_ASKED = "The database"
_SOURCE = "the source"
_OF_OTHERS = "Other programs wrote the events, so there is no database whose log could be compared."
_STOPPED = "Next: remove the reason; the next run of the capture continues there."
_NOT_READ = "its existing rows were not read since it was let through"
_ON_PURPOSE = {
    READ_LIST: f"{READ_LIST} leaves its existing rows out",
    OVERRIDES: f"{OVERRIDES} chooses among its existing rows",
}
_HEARD = ("complete", "quiet")


@dataclass(frozen=True, slots=True)
class Answers:
    """What the database says.

    Args:
        now: its clock.
        end: where its log ends.
        proved: whether the lake holds everything up to there that is to be read.
        tables: that the connector's filters let through.
        routed: those that they let through and whose topics their names do not show, because transforms choose them.
        unsent: those among them whose changes the database does not send, with the reason and the next step.
    """

    now: datetime
    end: LogPoint
    retention: Retention
    proved: bool
    tables: Sequence[TableId] = ()
    routed: Sequence[TableId] = ()
    unsent: Mapping[TableId, str] = field(default_factory=dict)


Asked = Answers | Unread | CdcError
"""What the database, or topics and files of others, say; or why they cannot be queried."""


def answers_of(overview: EngineOverview, open_probe: OpenProbe, ask_unread: AskUnread | None = None) -> Asked:
    """What the database, or the source of what others wrote, says; or why it, or the lake, cannot be queried.

    Args:
        ask_unread: queries what others wrote, in place of a database.
    """
    try:
        if ask_unread is not None:
            return ask_unread(overview.state.pairs())
        with open_probe() as probe:
            return _ask(overview, probe)
    except CdcError as error:
        return error


def _ask(overview: EngineOverview, probe: SourceProbe) -> Answers:
    end = probe.log_end()
    captured = [schema.table for schema in probe.tables()]
    tables, routed = ((), captured) if routes(overview.config) else (captured, ())
    proved = overview.is_over or is_complete(overview.state, probe, end)
    retention = probe.retention(None if overview.is_over else overview.point)
    return Answers(probe.clock(), end, retention, proved, tables, routed, probe.unsent(captured))


def report_of_engine(overview: EngineOverview, asked: Asked, at: datetime) -> CaptureReport:
    """The report of an overview and what the database says; of the lake only if it says nothing.

    Args:
        asked: the result of `answers_of`.
    """
    try:
        return _report(overview, asked, at)
    except CdcError as error:  # the lake itself
        return CaptureReport(overview.config.name, at, (Trouble("the lake", describe_error(error)),))


def _report(overview: EngineOverview, asked: Asked, at: datetime) -> CaptureReport:
    answers = asked if isinstance(asked, Answers) else None
    unread = asked if isinstance(asked, Unread) else None
    rates = _rates(overview, at)
    unread_rows = _unread_rows(overview, answers)
    tables = tuple(_tables(overview, answers, unread_rows))
    databases = (_database(overview, asked, tables, rates, at),) if overview.known or answers else ()
    return CaptureReport(
        capture=overview.config.name,
        at=at,
        troubles=tuple(_troubles(overview, asked)),
        unknown=(
            *_unknown(overview, asked),
            *_lacking(unread_rows, overview.config),
            *_ahead(databases),
            *_left_waiting(overview, databases, tables, at),
        ),
        databases=databases,
        tables=tables,
        queue=tuple(QueuedSnapshot(table, reached, None, paused=False) for table, reached in overview.queue),
        rates=rates,
        last_ddl=Ddl(*newest) if (newest := overview.last_ddl) else None,
        advice=(*map(str, overview.state.gaps), *_nulled(overview), *_of_others(unread)),
    )


def _nulled(overview: EngineOverview) -> Iterator[str]:
    for column, count in overview.state.nulled.items():
        yield (
            f"{count:,} values of {column} are null in the lake, because the connector cannot convert them; its log names them. Next: "
            "event.converting.failure.handling.mode=fail makes such a value an error"
        )


def _of_others(unread: Unread | None) -> Iterator[str]:
    if unread:
        yield _OF_OTHERS
    if unread and unread.what:
        yield f"{unread.what[0].upper()}{unread.what[1:]} wait to be read."


def _unknown(overview: EngineOverview, asked: Asked) -> tuple[Trouble, ...]:
    if isinstance(asked, CdcError) and overview.config.is_reader:
        return (Trouble(_SOURCE, f"what waits there to be read is not known: {describe_error(asked)}"),)
    if isinstance(asked, CdcError):
        return (
            Trouble(
                NOT_ASKED,
                f"{NOT_ASKED} cannot be queried, so what it still has is not checked: {describe_error(asked)}",
            ),
        )
    text = not_seen(asked) if isinstance(asked, Unread) and not asked.missing else ""
    return (Trouble(_SOURCE, text),) if text else ()


def _unread_rows(overview: EngineOverview, answers: Answers | None) -> Mapping[TableId, str]:
    """Tables that the lists have left out since the connector has read all rows, or then, and that were not read since, each with the reason. It
    takes no snapshot of them; one that was created since is another thing, for all its rows came as changes. Rows that the settings leave out
    still are not wanted."""
    state, config = overview.state, overview.config
    if answers is None or state.lists is None or not config.reads_rows:
        return {}
    lists = (state.lists, *state.later_lists)
    found = list[tuple[str, Callable[[TableId], bool], Callable[[TableId], bool]]]()
    for own, without in ((READ_LIST, (READ_LIST, OVERRIDES)), (OVERRIDES, (OVERRIDES,))):
        others = [{name: text for name, text in one.items() if name not in without} for one in lists]
        found.append((_ON_PURPOSE[own], left_out(config, own), lacking(config, others, state.read_at)))

    def reason(table: TableId) -> str:
        wanted = (text for text, is_left_out, misses in found if is_left_out(table) and not misses(table))
        return next(wanted, _NOT_READ)

    captured = (*answers.tables, *answers.routed)
    return {table: reason(table) for table in filter(lacking(config, lists, state.read_at), captured)}


def _lacking(tables: Mapping[TableId, str], config: EngineConfig) -> Iterator[Trouble]:
    is_silent = "notification.enabled.channels" in config.properties and not notification_topic(config)
    step = "materialize its snapshot asset, or request a snapshot of all its rows by the signal job or the signal table"
    if is_silent and routes(config):  # rows in a topic do not show of which table they are
        step = (
            "put sink among notification.enabled.channels, by which it is seen which tables are read, then request a snapshot of all its "
            "rows by the signal job or the signal table"
        )
    for table in (table for table, reason in tables.items() if reason == _NOT_READ):
        yield Trouble(
            str(table),
            "whether the lake has all of its rows is not known: the configuration left it out, or rows of it, at the connector's own snapshot or "
            f"for a while since then, and after that its existing rows were not read. Next: {step}",
        )


def _ahead(databases: Sequence[DatabaseReport]) -> Iterator[Trouble]:
    for database in databases:
        if database.is_lag_unknown:
            yield Trouble(
                database.database,
                "how long what is not in the lake yet has waited is not known: the time since which it waits lies ahead of the clock here, or is "
                "not recorded. Next: correct the clocks; a run that is complete up to the end of what there is to read ends this, too",
            )


def _left_waiting(
    overview: EngineOverview, databases: Sequence[DatabaseReport], tables: Sequence[TableReport], at: datetime
) -> Iterator[Trouble]:
    """That tables or changes are to be read, and nothing comes: whether a run works is not known here."""
    heard = overview.state.unheard_since or (overview.rows[-1]["at"] if overview.rows else None)
    waiting = [str(table.table) for table in tables if table.condition == "waiting"]
    idle_s = seconds_behind(at, heard)
    if overview.queue and (idle_s is None or idle_s > STUCK_S):
        yield Trouble(
            str(overview.queue[0][0]),
            f"a signal requested all its rows, which are not read yet, and nothing has come for {duration(idle_s)}, so it is not known whether "
            "a run reads. Next: see whether a run works, and its log; else start one",
        )
    if waiting and (idle_s is None or idle_s > STUCK_S):
        yield Trouble(
            waiting[0],
            f"of {count_of(len(waiting), 'table')} all rows are to be read, and no event has come "
            f"{'yet' if heard is None else f'for {duration(idle_s)}'}, so it is not known whether a run reads. Next: see whether a run works, "
            "and its log; else start one",
        )
    for database in databases:
        yield from left_unread(database, idle_s or 0.0)


def not_seen(unread: Unread) -> str:
    """Which topics a reader names and does not see; empty if it sees all of them."""
    if not unread.absent:
        return ""
    return (
        f"{', '.join(unread.absent)} is not there, or the user may not see it, so what waits in it is not known. "
        "Next: correct topics, create it, or give the user DESCRIBE and READ"
    )


def _troubles(overview: EngineOverview, asked: Asked) -> Iterator[Trouble]:
    if isinstance(asked, Answers) and (text := asked.retention.lost or asked.retention.near):
        yield Trouble("the log", text)
    if isinstance(asked, Answers):
        yield from (Trouble(str(table), text) for table, text in asked.unsent.items())
    if isinstance(asked, Unread) and asked.missing:
        yield Trouble(_SOURCE, asked.missing)
    for reason in overview.state.stopped.values():
        yield Trouble("not read on", f"{reason}. {_STOPPED}")
    topics = {directory: topic.table for topic in overview.topics for directory in topic.directories}
    yield from (Trouble(str(topics.get(name, name)), text) for name, text in overview.losses.items())


def _tables(
    overview: EngineOverview, answers: Answers | None, unread_rows: Mapping[TableId, str]
) -> Iterator[TableReport]:
    found = {topic.table: topic for topic in overview.topics}
    streams = overview.config.streams
    lost = answers.retention.lost if answers else ""
    headroom_h = _headroom_h(overview, answers)
    for topic in found.values():
        found_table = _table(topic, str(overview.point or "") or None, lost, streams=streams)
        if topic.table in unread_rows:
            found_table = replace(found_table, reason=found_table.reason or unread_rows[topic.table])
        yield replace(found_table, headroom_h=headroom_h) if found_table.condition == "streaming" else found_table
    is_left_out = left_out(overview.config, READ_LIST)
    for table in answers.tables if answers else ():
        if table not in found and table in unread_rows:
            yield TableReport(table, "", "streaming" if streams else "not captured", unread_rows[table])
        elif table not in found and overview.known:  # an empty table has no topic before its first event
            yield TableReport(table, "", "streaming" if streams else "snapshotted", "no event of it yet")
        elif table not in found and is_left_out(table):
            yield TableReport(table, "", "streaming" if streams else "not captured", _ON_PURPOSE[READ_LIST])
        elif table not in found:
            yield TableReport(table, "", "waiting", "the first run of the connector reads it")


def _headroom_h(overview: EngineOverview, answers: Answers | None) -> float | None:
    """Hours until unread changes are removed, at least; None if that is not known, or the database does not count by time."""
    if answers is None or answers.retention.kept_h is None:
        return None
    unread_s = 0.0 if answers.proved else seconds_behind(answers.now, _committed(overview))
    return None if unread_s is None else max(0.0, answers.retention.kept_h - unread_s / 3600)


def _committed(overview: EngineOverview) -> datetime | None:
    """The database's time of the place to which the lake is complete, if the connector's offset shows it."""
    return max(filter(None, map(time_of_offset, overview.state.offsets.values())), default=None)


def _table(topic: EngineTopic, place: str | None, lost: str, *, streams: bool) -> TableReport:
    if topic.trouble:
        return TableReport(topic.table, topic.topic, "failed", topic.trouble)
    if lost and streams:
        return TableReport(topic.table, topic.topic, "gap", lost, place)
    if topic.batch_id < 0:
        return TableReport(topic.table, topic.topic, "waiting", "the next run finishes the batch that is planned")
    if not streams:
        return TableReport(topic.table, topic.topic, "snapshotted", "the snapshot mode streams no changes")
    return TableReport(topic.table, topic.topic, "streaming", complete_to=place)


def _database(
    overview: EngineOverview, asked: Asked, tables: Sequence[TableReport], rates: Rates, at: datetime
) -> DatabaseReport:
    point, answers = overview.point, asked if isinstance(asked, Answers) else None
    committed = _committed(overview)
    return DatabaseReport(
        database=_name(overview.config, tables),
        complete_to=str(point) if point else None,
        committed=committed,
        server_time=answers.now if answers else None,
        newest=str(answers.end) if answers else None,
        lag=_lag(overview, asked, committed, rates, at),
        room_bytes=answers.retention.room_bytes if answers else None,
    )


def _name(config: EngineConfig, tables: Sequence[TableReport]) -> str:
    """The database; a server whose log is that of several is called by its address."""
    names = {table.table.database for table in tables}
    given = config.properties.get("database.dbname") or config.properties.get("database.hostname")
    return names.pop() if len(names) == 1 else given or config.topic_prefix


def _lag(overview: EngineOverview, asked: Asked, committed: datetime | None, rates: Rates, at: datetime) -> Lag:
    if overview.state.pending is not None:
        planned = next(row["at"] for row in reversed(overview.rows) if row["event"] in ("planned", "state"))
        return Lag(None, 0.0, seconds_behind(at, planned))
    if isinstance(asked, Unread):
        return Lag(None, 0.0 if asked.since is None else seconds_behind(at, asked.since), 0.0)
    if not isinstance(asked, Answers):
        return Lag()
    if asked.proved:
        return Lag(None, 0.0, 0.0)
    if not overview.known:
        return Lag()
    if rates.rows and committed is not None:
        return Lag(None, seconds_behind(asked.now, committed), 0.0)
    return Lag(None, seconds_behind(at, overview.state.unheard_since or _heard(overview.rows)), 0.0)


def _heard(rows: Sequence[Mapping[str, Any]]) -> datetime | None:
    """When the connector was last heard."""
    return next((row["at"] for row in reversed(rows) if row["event"] in _HEARD), None)


def _rates(overview: EngineOverview, at: datetime) -> Rates:
    """Events of tables per second, by the newest batches that are complete."""
    names = {directory for topic in overview.topics for directory in topic.directories}
    since = at - PERIOD
    complete = {row["number"] for row in overview.rows if row["event"] == "complete" and row["at"] > since}
    planned = [row for row in overview.rows if row["event"] == "planned" and row["number"] in complete]
    begun = overview.rows[0]["at"] if overview.rows else at
    return mean_of((_events(row, names) for row in planned), begun, at, PERIOD)


def _events(row: Mapping[str, Any], names: set[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for directory, files in json.loads(row["detail"])["batch"]["files"].items():
        if directory in names:
            for file in files:
                found.update(file["operations"])
    return found
