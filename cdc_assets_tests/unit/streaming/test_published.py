"""BEGIN and END of each transaction are published once, whatever happens to single tables or databases."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.capture.reset import Reset
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.steps import listening
from cdc_assets.errors import DatabaseAwayError, QueryError
from cdc_assets.overview import CaptureOverview, CaptureReport, report_of
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of, rows_of_topic
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.tables import started
from cdc_assets_tests.unit.streaming.two_databases import OTHER, TwoDatabases, config_of_two


def published(config: object) -> list[tuple[str, str]]:
    """Status and transaction of each event, in order."""
    rows = sorted(rows_of_topic(config, "shop.transaction"), key=lambda row: str(row["position"]))  # type: ignore[arg-type]
    return [(row["value"]["status"], row["value"]["id"]) for row in rows]  # type: ignore[index]


def each(*transactions: Lsn) -> list[tuple[str, str]]:
    return [(status, str(lsn)) for lsn in transactions for status in ("BEGIN", "END")]


@pytest.mark.long
def test_table_that_continues_behind_a_gap_hides_no_transaction_of_another(tmp_path: Path) -> None:
    server, config, lines, orders = started(tmp_path, transaction_metadata=True, gap_policy="ignore")
    known = published(config)
    first = server.commit((lines, "insert", 20, "before the gap ends"))
    server.disable("dbo_orders")
    server.enable(orders)
    second = server.commit((lines, "insert", 21, "behind it"))
    make_capture(server, config).stream()
    assert published(config) == known + each(first, second)
    blocks = [row["value"] for row in rows_of_topic(config, f"shop.{lines}") if row["key"]["id"] >= 20]  # type: ignore[index]
    assert {value["transaction"]["id"] for value in blocks} == {str(first), str(second)}  # type: ignore[index]


def two(path: Path):  # type: ignore[no-untyped-def]
    server = TwoDatabases()
    orders = server.create("orders", rows=1)
    y, z, idle = (server.create_other(name, rows=1) for name in ("y", "z", "idle"))
    server.idle_tick()
    config = config_of_two(path, transaction_metadata=True)
    make_capture(server, config).snapshot()
    return server, config, orders, y, z, idle


def test_window_that_is_given_up_before_any_commit_leaves_its_transactions_to_the_next(tmp_path: Path) -> None:
    server, config, orders, y, z, _ = two(tmp_path)
    first = server.commit((y, "insert", 6, "six"), (z, "insert", 6, "six"), (orders, "insert", 6, "six"))
    with cut_at("files-written"), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    server.troubles[OTHER] = DatabaseAwayError("Database Other is offline.")
    make_capture(server, config).stream()
    assert not state_of(config).pending
    del server.troubles[OTHER]
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, y)].count(6) == 1
    assert [status for status, lsn in published(config) if lsn == str(first)].count("END") == 2, "one per database"


def test_transactions_that_wait_are_late_though_every_table_is_complete(tmp_path: Path) -> None:
    """Their tables are read up to the newest LSN, so nothing else shows that a run has something to do."""
    server, config, orders, y, z, _ = two(tmp_path)
    newest = server.commit((y, "insert", 6, "six"), (z, "insert", 6, "six"), (orders, "insert", 6, "six"))
    with cut_at("table-committed"), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    server.troubles[OTHER] = DatabaseAwayError("Database Other is offline.")
    make_capture(server, config).stream()
    del server.troubles[OTHER]
    assert OTHER in state_of(config).unpublished

    def seen(later: timedelta) -> CaptureReport:
        with patch.object(server, "server_time", lambda: server.now + later):
            return report_of(CaptureOverview(config, server), datetime.now(UTC))

    soon, late = seen(timedelta(0)), seen(timedelta(hours=2))
    assert (soon.health, late.health) == ("healthy", "not known")
    assert late.late == ["Other is 7,200 s behind what the server has captured"]
    [other, own] = late.databases
    assert (own.complete_to, other.newest) == (newest, newest)
    assert other.complete_to is not None
    assert other.complete_to < newest
    make_capture(server, config).stream()
    assert seen(timedelta(0)).health == "healthy"


def test_table_that_catches_up_and_is_given_up_leaves_nothing_that_is_published(tmp_path: Path) -> None:
    server, config, _, y, z, _ = two(tmp_path)

    def refuse(statement: str) -> None:
        if "other_z" in statement:
            raise QueryError("The SELECT permission was denied.", 229)

    server.before_read = refuse
    server.commit((y, "insert", 6, "six"), (z, "insert", 6, "six"))
    make_capture(server, config).stream()
    server.before_read = lambda _: None
    with cut_at("table-committed"), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    server.troubles[OTHER] = DatabaseAwayError("Database Other is offline.")
    make_capture(server, config).stream()
    assert not state_of(config).unpublished
    del server.troubles[OTHER]
    last = server.commit((y, "insert", 7, "goes on"), (z, "insert", 7, "goes on"))
    make_capture(server, config).stream()
    for table in (y, z):
        assert [event.key for event in events_of(config, table) if event.key > 5] == [6, 7]
    assert published(config)[-2:] == each(last)


def test_reset_of_a_table_while_transactions_wait_to_be_published(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, config, orders, y, z, _ = two(tmp_path)
    server.commit((y, "insert", 6, "six"), (z, "insert", 6, "six"), (orders, "insert", 6, "six"))
    commits = 0

    def die(step: str) -> None:
        nonlocal commits
        commits += step == "table-committed"
        if commits == 3:
            raise PowerCutError

    with listening(die), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    server.troubles[OTHER] = DatabaseAwayError("Database Other is offline.")
    make_capture(server, config).stream()
    assert state_of(config).unpublished[OTHER].reads
    del server.troubles[OTHER]
    Reset(config, SystemClock()).forget([y], fence=True)
    assert "will be published without the events of Other.dbo.y" in caplog.text
    server.commit((z, "insert", 7, "goes on"))
    assert make_capture(server, config).stream().troubled == ()
    assert not state_of(config).unpublished
    make_capture(server, config).snapshot()
    server.commit((y, "insert", 8, "goes on, too"))
    assert make_capture(server, config).stream().troubled == ()
    assert events_of(config, y)[-1].key == 8
