"""Tables that the catalogue no longer shows: dropped, or hidden from the login."""

from datetime import timedelta
from pathlib import Path

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.overview import CaptureOverview
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of, rows_of_topic
from cdc_assets_tests.unit.streaming.law import check, state_of
from cdc_assets_tests.unit.streaming.tables import started, told


def test_a_table_that_the_login_no_longer_sees_waits_and_is_not_dropped(tmp_path: Path) -> None:
    server, config, lines, orders = started(tmp_path)
    made = list(server.instances)
    server.hidden.add(orders)
    server.commit((orders, "update", 10, "unseen"), (lines, "insert", 11, "b"))
    make_capture(server, config).stream()
    state = state_of(config).tables[orders]
    assert (state.status, state.resumes) == ("failed", True)
    assert "the login does not see it" in state.reason
    assert state_of(config).tables[lines].position == server.captured
    assert [row["type"] for row in rows_of_topic(config, "shop.__schema_history")].count("DROP") == 0
    assert [table.status for table in CaptureOverview(config, server).tables if table.table == orders] == ["failed"]
    rows = len(rows_of_topic(config, "shop.__windows"))
    make_capture(server, config).stream()  # tries it once
    assert len(rows_of_topic(config, "shop.__windows")) - rows < 6
    server.hidden.clear()
    assert make_capture(server, config).stream().troubled == ()
    assert [event.after for event in events_of(config, orders)][-1] == {"id": 10, "note": "unseen"}
    check(server, config, made)


def test_it_is_gone_once_its_instance_is(tmp_path: Path) -> None:
    server, config, _, orders = started(tmp_path)
    server.hidden.add(orders)
    server.now += timedelta(minutes=1)
    make_capture(server, config).stream()
    server.disable("dbo_orders")
    make_capture(server, config).stream()
    state = state_of(config).tables[orders]
    assert (state.status, state.resumes) == ("failed", False)
    assert "was dropped or has no capture instance any more" in state.reason
    assert [row["type"] for row in rows_of_topic(config, "shop.__schema_history")].count("DROP") == 1


def test_a_table_that_the_login_sees_again_while_it_is_asked_why_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, config, lines, orders = started(tmp_path)
    made = list(server.instances)
    server.hidden.add(orders)
    server.commit((orders, "update", 10, "unseen"), (lines, "insert", 11, "b"))

    def grant(_: str) -> frozenset[int]:
        server.hidden.clear()
        return frozenset()

    monkeypatch.setattr(server, "hidden_sources", grant)
    assert make_capture(server, config).stream().troubled == ()
    assert ("DROP", "orders") not in told(config)
    check(server, config, made)


def test_a_table_whose_new_instance_starts_while_it_is_asked_why_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, config, lines, orders = started(tmp_path)
    server.disable("dbo_orders")
    server.commit((lines, "insert", 11, "b"))

    def begin(_: str) -> frozenset[TableId]:
        if "again" not in server.change_tables:
            server.enable(orders, "again")
        return frozenset()

    monkeypatch.setattr(server, "beginning_tables", begin)
    [trouble] = make_capture(server, config).stream().troubled
    assert (trouble.table, trouble.status) == (orders, "gap")
    assert ("DROP", "orders") not in told(config)
