"""The report of a capture by another connector: never healthy by mistake, and no number that is not known."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.config.engine import EngineConfig
from cdc_assets.config.settings import LakeSettings
from cdc_assets.connectors.engine.batch_metrics import parts_by_database
from cdc_assets.connectors.engine.history import newest_structure
from cdc_assets.connectors.engine.ledger import Batch, BatchLedger
from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.connectors.engine.run import EngineRun
from cdc_assets.connectors.engine.source import LogPoint, Retention, binlog_point
from cdc_assets.connectors.engine.unread import AskUnread, Unread
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema
from cdc_assets.errors import ConnectionLostError
from cdc_assets.lake.files import DataFile
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.metrics.capture_metrics import CaptureMetrics
from cdc_assets.overview import CaptureReport
from cdc_assets.overview.engine import OpenProbe, answers_of, report_of_engine
from cdc_assets_tests.unit.connectors.engine.feeds import READY, ListFeed, event

TOPIC = "shop.db.items1"
EMPTY = TableSchema(TableId("db", "", "empty"), 0, ())
UNSENT = "it is not in the publication, so none of its changes comes. Next: add it."
COMMITTED = datetime(2026, 1, 1, tzinfo=UTC)


class Database:
    """What the database answers."""

    end, proved, retained, is_silent = 10, True, Retention(), False

    def log_end(self) -> LogPoint:
        return binlog_point("bin.000001", self.end)

    def clock(self) -> datetime:
        return COMMITTED + timedelta(seconds=90)

    def has_no_changes_between(self, offset: Any, end: LogPoint) -> bool:
        return self.proved

    def retention(self, recorded: LogPoint | None) -> Retention:
        return self.retained

    def tables(self) -> Sequence[TableSchema]:
        return [EMPTY]

    def unsent(self, tables: Sequence[TableId]) -> Mapping[TableId, str]:
        return dict.fromkeys(tables, UNSENT) if self.is_silent else {}

    @contextmanager
    def opened(self) -> Iterator[Any]:
        yield self

    @contextmanager
    def away(self) -> Iterator[Any]:
        raise ConnectionLostError("db:3306 cannot be reached. Next: wait.")
        yield


class Connector(ListFeed):
    """Its offsets are places in a binlog, with the time of the event."""

    more: dict[str, Any] = {}  # noqa: RUF012 - replaced, never changed

    def _chunk(self, number: int, start: int, end: int) -> Any:
        chunk = super()._chunk(number, start, end)
        place = {"file": "bin.000001", "pos": end, "ts_sec": int(COMMITTED.timestamp()), **self.more}
        object.__setattr__(chunk, "offsets", [({"server": "shop"}, place)])
        return chunk


def ledger_of(folder: Path) -> BatchLedger:
    """Of the capture that `look` looks at."""
    lake = LakeSettings(str(folder / "lake"))
    return BatchLedger(TopicTables(Location.of(lake), "shop", lake), "shop")


def unused() -> Any:
    """Events that others wrote have no database."""
    raise AssertionError


@pytest.fixture
def look(tmp_path: Path) -> Callable[..., CaptureReport]:
    """Captures ten events, and looks."""
    lake = LakeSettings(str(tmp_path / "lake"))
    given = {"connector.class": "io.debezium.connector.mysql.MySqlConnector", "topic.prefix": "shop"}
    config = EngineConfig("shop", "shop", lake, given, idle_timeout_s=0.05)
    tables = TopicTables(Location.of(lake), "shop", lake)

    def looked(
        probe: OpenProbe | None,
        ask: AskUnread | None = None,
        *,
        captured: bool = True,
        seconds: float = 1,
        **offset: Any,
    ) -> CaptureReport:
        if captured:
            feed = Connector([event(number, topic=TOPIC) for number in range(1, 11)], [1, 10])
            feed.more = offset
            EngineRun(config, tables, feed, habits=READY).run()
        overview, at = EngineOverview(config), datetime.now(UTC) + timedelta(seconds=seconds)
        return report_of_engine(overview, answers_of(overview, probe or unused, ask), at)

    return looked


def test_healthy_if_it_is_proved_that_nothing_is_unread(look: Callable[..., CaptureReport]) -> None:
    report = look(Database().opened)
    assert report.headline == "healthy"
    [database] = report.databases
    assert (database.complete_to, database.newest) == ("bin.000001:10", "bin.000001:10")
    assert (database.committed, database.age_s, database.lag.behind_s) == (COMMITTED, 90.0, 0.0)
    assert {str(table.table): (table.condition, table.topic) for table in report.tables} == {
        "db.items1": ("streaming", TOPIC),
        "db.empty": ("streaming", ""),
    }
    assert report.rates.by_operation.keys() == {"c"}
    assert json.dumps(report.as_json())


def test_table_whose_changes_the_database_does_not_send_is_a_trouble(look: Callable[..., CaptureReport]) -> None:
    """Nothing of it will ever come, and without that everything looks healthy."""
    database = Database()
    database.is_silent = True
    report = look(database.opened)
    assert [str(trouble) for trouble in report.troubles] == [f"{EMPTY.table}: {UNSENT}"]
    assert report.health == "in trouble"


def test_late_if_the_log_goes_on_and_nobody_reads(look: Callable[..., CaptureReport]) -> None:
    database = Database()
    database.end, database.proved = 12, False
    late, later = look(database.opened, seconds=600), look(database.opened, captured=False, seconds=3600)
    assert (late.health, later.health) == ("working", "not known")
    assert "behind what the server has captured" in late.headline
    assert "changes have waited for 1 h 0 min" in later.headline
    fresh = look(database.opened, captured=False)
    assert fresh.databases[0].lag.poll_s == 90.0, "while events arrive, they are as late as the newest"


def test_late_if_each_run_begins_and_hears_nothing(look: Callable[..., CaptureReport], tmp_path: Path) -> None:
    database, begun = Database(), datetime.now(UTC)
    look(database.opened)
    database.end, database.proved = 12, False
    config = EngineConfig("shop", "shop", LakeSettings(str(tmp_path / "lake")), {"connector.class": "MySqlConnector"})
    ledger = BatchLedger(TopicTables(Location.of(config.lake), "shop", config.lake), "shop")

    def seen() -> CaptureReport:
        overview = EngineOverview(config)
        return report_of_engine(overview, answers_of(overview, database.opened), begun + timedelta(seconds=3600))

    ledger.claim(begun + timedelta(seconds=3590))
    assert seen().health == "healthy", "it is given time"
    ledger.rest(begun + timedelta(seconds=3595))
    ledger.rest(begun + timedelta(seconds=3599))
    assert seen().databases[0].lag.poll_s == 5.0
    for seconds in (3500, 3550, 3599):
        ledger.claim(begun + timedelta(seconds=seconds))
    late = seen()
    assert late.databases[0].lag.poll_s == 100.0
    assert late.health == "working"


@pytest.mark.parametrize("is_heard", [True, False])
def test_runs_that_bring_nothing_do_not_let_the_record_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_heard: bool
) -> None:
    """A database that cannot be asked has one a minute."""
    monkeypatch.setattr("cdc_assets.connectors.engine.ledger._CHECKPOINT_EVERY", 4)
    monkeypatch.setattr("cdc_assets.connectors.engine.ledger._KEEP_ROWS", 4)
    config = EngineConfig("shop", "shop", LakeSettings(str(tmp_path / "lake")), {"connector.class": "MySqlConnector"})
    tables, now = TopicTables(Location.of(config.lake), "shop", config.lake), datetime.now(UTC)
    for minutes in range(15):
        ledger = BatchLedger(tables, "shop")
        ledger.claim(now + timedelta(minutes=minutes))
        if is_heard:
            ledger.rest(now)
    assert len(ledger.rows()) < 10
    assert ledger.read().quiet is is_heard
    assert ledger.read().unheard_since == (None if is_heard else now), (
        "since the first of them, of which there is no row any more"
    )


def test_headroom_is_counted_from_what_may_be_unread(look: Callable[..., CaptureReport]) -> None:
    database = Database()
    database.retained = Retention(kept_h=2.0)
    assert look(database.opened).headroom_h == 2.0, "if nothing is unread, what comes next is kept for so long"
    database.end, database.proved = 12, False
    assert look(database.opened, captured=False).headroom_h == pytest.approx(2 - 90 / 3600)
    database.retained = Retention(kept_h=0.01)
    assert look(database.opened, captured=False).headroom_h == 0.0
    assert look(database.away, captured=False).headroom_h is None
    database.retained = Retention(room_bytes=5 * 2**20)
    report = look(database.opened, captured=False)
    assert (report.headroom_h, report.room_bytes) == (None, 5 * 2**20)


def test_metrics_of_a_capture_by_another_connector(look: Callable[..., CaptureReport], tmp_path: Path) -> None:
    database, lake = Database(), LakeSettings(str(tmp_path / "lake"))
    database.retained = Retention(kept_h=2.0, room_bytes=7)
    report = look(database.opened)
    metrics = CaptureMetrics("shop", lambda: report)
    config = EngineConfig("shop", "shop", lake, {"connector.class": "MySqlConnector"})
    heartbeats = config.heartbeat_topic
    file = DataFile("part-0.parquet", 100, 3, "", "", 0, {"c": 2, "r": 1})
    batch = Batch(0, {TOPIC: [file, file], "shop.__engine_history": [file], heartbeats: [file]}, [], 6)
    for part in parts_by_database(config, batch):
        metrics.note(part)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"cdc_assets_{name}", {"capture": "shop", **labels})

    own = {"database": "db", "table": "items1"}
    assert value("events_seen_total", **own, kind="batch", operation="create") == 4
    assert value("written_bytes_total", **own) == 200
    assert value("commits_total", database="db", kind="batch") == 1
    assert value("retention_headroom_seconds", **own) == 7200
    assert value("retention_room_bytes", database="db") == 7
    assert value("health", health="healthy") == 1
    assert not list(parts_by_database(config, replace(batch, files={heartbeats: [file]})))


def test_nothing_captured_is_not_healthy(look: Callable[..., CaptureReport]) -> None:
    """Nor at work: perhaps every run ends before it could record anything."""
    report = look(Database().opened, captured=False)
    assert [table.condition for table in report.tables] == ["waiting"]
    assert report.health == "not known"
    assert "no event has come yet, so it is not known whether a run reads" in report.headline


def test_first_run_that_hears_nothing_is_not_known_after_a_while(
    look: Callable[..., CaptureReport], tmp_path: Path
) -> None:
    now, ledger = datetime.now(UTC), ledger_of(tmp_path)
    for minutes in (0, 10, 20):
        ledger.claim(now + timedelta(minutes=minutes))
    looks = [look(Database().opened, captured=False, seconds=60 * minutes) for minutes in (14, 21, -60)]
    assert [report.health for report in looks] == ["working", "not known", "not known"]


def test_what_cannot_be_asked_is_not_known(look: Callable[..., CaptureReport], tmp_path: Path) -> None:
    database = Database()
    report = look(database.away)
    assert (report.health, report.next_steps) == ("not known", ["wait."])
    assert report.databases[0].lag.behind_s is None
    database.retained = Retention(near="The slot may be lost soon. Next: run the capture.")
    assert look(database.opened, captured=False).next_steps == ["run the capture."]
    (tmp_path / "lake" / TOPIC).rename(tmp_path / "elsewhere")
    gone = look(database.opened, captured=False)
    assert {str(trouble.where) for trouble in gone.troubles} == {"the log", "db.items1"}
    assert gone.counts()["failed"] == 1


def test_events_of_others_have_no_database_to_ask(look: Callable[..., CaptureReport]) -> None:
    report = look(None, lambda _: Unread())
    assert (report.health, report.databases[0].server_time) == ("healthy", None)
    assert "there is no database" in report.advice[0]


@pytest.mark.parametrize("since", [timedelta(hours=1), timedelta(minutes=-5)])
def test_record_that_waits_is_not_read_now_because_its_producer_has_another_clock(
    look: Callable[..., CaptureReport], since: timedelta
) -> None:
    """A record of the future has no age."""
    report = look(None, lambda _: Unread(datetime.now(UTC) + since, "3 records"))
    assert report.health == ("not known" if since > timedelta(0) else "working")
    assert report.late


def test_batch_of_a_run_that_died_is_late_after_a_minute(look: Callable[..., CaptureReport], tmp_path: Path) -> None:
    """Its lag is all that is known: no place of the log counts until it is in its tables."""
    database = Database()
    look(database.opened)
    ledger = ledger_of(tmp_path)
    state, now = ledger.claim(datetime.now(UTC)), datetime.now(UTC)
    ledger.plan(now, Batch(state.next_batch, {TOPIC: []}, [], 10))
    database.end, database.proved = 20, False
    looks = [look(database.opened, captured=False, seconds=seconds) for seconds in (1, 120, 3 * 86400, -3600)]
    assert [report.health for report in looks] == ["healthy", "working", "not known", "not known"]
    assert f"db is {(looks[1].at - now).total_seconds():.0f} s behind" in looks[1].headline
    assert all(report.late for report in looks[1:])


def test_silence_is_not_short_because_the_clock_was_set_back(
    look: Callable[..., CaptureReport], tmp_path: Path
) -> None:
    database, now = Database(), datetime.now(UTC)
    look(database.opened)
    ledger = ledger_of(tmp_path)
    ledger.claim(now + timedelta(hours=1))
    ledger.rest(now + timedelta(hours=1))
    assert look(database.opened, captured=False, seconds=300).health == "healthy", "it is proved that nothing is unread"
    database.end, database.proved = 12, False
    looks = [look(database.opened, captured=False, seconds=60 * minutes) for minutes in (5, 58, 65)]
    assert [report.health for report in looks] == ["not known", "not known", "working"]


def test_rows_of_a_new_table_that_nobody_has_read_are_not_known_where_transforms_choose_topics(
    look: Callable[..., CaptureReport], tmp_path: Path
) -> None:
    look(Database().opened)
    ledger, now = ledger_of(tmp_path), datetime.now(UTC)
    given = {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "topic.prefix": "shop",
        "transforms": "route",
        "transforms.route.type": "io.debezium.transforms.ByLogicalTableRouter",
    }
    config = EngineConfig("shop", "shop", LakeSettings(str(tmp_path / "lake")), given)

    def read(*tables: str, **more: Any) -> CaptureReport:
        number = ledger.claim(now).next_batch
        ledger.plan(now, Batch(number, {}, [], 0, read=tables, **more))
        ledger.complete(now, {})
        overview = EngineOverview(config)
        return report_of_engine(overview, answers_of(overview, Database().opened), datetime.now(UTC))

    lists = {"table.include.list": "db.items1"}
    for report in (read("db.items1", anew=True, lists=lists), read("shop.db.empty", lists={})):
        assert report.health == "not known"
        assert "db.empty: whether the lake has all of its rows is not known" in report.headline, "a topic is no table"
    given["notification.enabled.channels"] = "log"
    [step] = read().next_steps
    assert step.startswith("put sink among notification.enabled.channels"), "else another read is not seen either"
    assert read("db.empty").health == "healthy"


def test_queue_is_read_from_the_offset(look: Callable[..., CaptureReport]) -> None:
    collections = json.dumps([{"incremental_snapshot_collections_id": f"db.{name}"} for name in ("items", "lines")])
    report = look(
        Database().opened, incremental_snapshot_collections=collections, incremental_snapshot_primary_key="aced"
    )
    assert [(str(entry.table), bool(entry.reached), entry.rows) for entry in report.queue] == [
        ("db.items", True, None),
        ("db.lines", False, None),
    ]
    assert report.headline.startswith("working: db.items is to be read, as a signal requested")
    late = look(Database().opened, captured=False, seconds=3600)
    assert (late.health, "a signal requested all its rows" in late.headline) == ("not known", True)


def test_newest_structure_of_a_history() -> None:
    change = {"type": "ALTER", "id": '"db"."it""ems"'}
    records = [
        {"position": {"file": "bin.000001", "pos": 7}, "ts_ms": 1767225600000, "tableChanges": [change]},
        {"position": {"file": "bin.000001", "pos": 9}, "ts_ms": 1767225601000, "tableChanges": []},
    ]
    found = newest_structure([json.dumps(record) for record in records])
    assert found == (TableId("db", "", 'it"ems'), "ALTER", "bin.000001:7", COMMITTED)
    assert newest_structure(["{}"]) is None
