"""The metadata of a capture's page: short enough to be shown in place, with numbers to plot and nothing invented."""

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ran_on import RanOn
from cdc_assets.defs.page import differs, page_of
from cdc_assets.overview import CaptureReport
from cdc_assets.overview.report import DatabaseReport, Lag, QueuedSnapshot, Rates, TableReport, Trouble
from cdc_assets.publish.view import PublishedReport

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LSN = Lsn.from_int(77)
ORDERS = TableId("SalesDb", "dbo", "orders")
WELL = CaptureReport(
    "shop",
    NOW,
    databases=(DatabaseReport("SalesDb", LSN, NOW, NOW, LSN, Lag(1.0, 0.0, 0.0)),),
    tables=(TableReport(ORDERS, "shop.orders", "streaming", complete_to=LSN, headroom_h=30.0),),
    rates=Rates(60.0, {"c": 1.5, "u": 0.25}),
)


def test_page_that_is_well_says_so_and_plots_numbers() -> None:
    facts = page_of(WELL)
    assert facts["health"] == "healthy"
    assert "shop is healthy" in facts["page"].value
    assert str(LSN) in facts["page"].value
    numbers = {name: value for name, value in facts.items() if isinstance(value, int | float)}
    assert numbers == {
        "healthy": 1, "troubles": 0, "unknown": 0, "queued": 0, "tables_streaming": 1, "rows_per_second": 1.75, "headroom_hours": 30.0,
        "creates_per_second": 1.5, "updates_per_second": 0.25, "lag_capture_job_seconds": 1.0, "lag_poll_seconds": 0.0,
        "lag_windows_seconds": 0.0,
    }  # fmt: skip


def test_names_and_positions_are_written_as_they_are() -> None:
    """What follows the first word of a sentence was in small letters."""
    held = PublishedReport(waiting=2, behind_s=1.0, held="a snapshot of SalesDb.dbo.Orders")
    page = page_of(replace(WELL, published=held))["page"].value
    assert "Published to Kafka: no event of a table yet; 2 windows wait" in page
    assert "for a snapshot of SalesDb.dbo.Orders" in page
    assert "Unread changes are kept for 30 h 0 min at least." in page


def test_page_in_trouble_is_short_and_loses_no_next_step() -> None:
    tables = tuple(TableReport(TableId("SalesDb", "dbo", f"t{n}"), "t", "failed", "x | " * 99) for n in range(300))
    troubles = tuple(Trouble(str(table.table), f"{table.reason} Next: step {n}") for n, table in enumerate(tables))
    facts = page_of(replace(WELL, tables=tables, troubles=troubles))
    assert len(facts["page"].value) < 1000
    assert "healthy" not in facts["page"].value.replace("shop is in trouble", "")
    assert all(f"step {n}" in facts["what_to_do"].value for n in (0, 299))
    assert facts["tables"].value.endswith("and 100 more")


def test_reason_is_whole_if_there_is_room() -> None:
    """It was cut off behind a hundred characters, in the middle of what was the cause."""
    reason = "the server no longer keeps its changes " + "and so on " * 20 + "to the end"
    page = page_of(replace(WELL, troubles=(Trouble("SalesDb", f"{reason}. Next: read it again"),)))["page"].value
    assert f"SalesDb: {reason}." in page
    assert "Next:" not in page
    short = Trouble("SalesDb.dbo.orders", "it has failed")
    page = page_of(replace(WELL, troubles=(Trouble("SalesDb", reason * 5), short, short)))["page"].value
    assert len(page) < 1000
    assert page.count("* SalesDb.dbo.orders: it has failed\n") == 2
    assert page.count("and so on") > 20
    assert " …\n" in page
    assert "Tables: 1 streaming" in page


def test_page_names_its_runbook_while_somebody_has_to_act(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_RUNBOOK_URL", "https://docs.example.org/{page}.html")
    assert "runbook" not in page_of(WELL)
    trouble = Trouble("SalesDb", "it is away")
    assert page_of(replace(WELL, troubles=(trouble,)))["runbook"].value == "https://docs.example.org/in-trouble.html"
    assert page_of(replace(WELL, unknown=(trouble,)))["runbook"].value == "https://docs.example.org/not-known.html"


def test_what_is_not_known_is_not_a_number() -> None:
    facts = page_of(replace(WELL, databases=(DatabaseReport("SalesDb", LSN),), tables=()))
    assert not [name for name in facts if name.startswith("lag_") or name == "headroom_hours"]


def test_queue_is_shown() -> None:
    queue = (QueuedSnapshot(ORDERS, "17", 5, paused=True),)
    assert "| SalesDb.dbo.orders | 17 | 5 | paused |" in page_of(replace(WELL, queue=queue))["queue"].value


def test_page_says_what_may_be_done_and_need_not() -> None:
    facts = page_of(replace(WELL, advice=("Old events stay in shop.orders. Next: nothing",)))
    assert facts["health"] == "healthy"
    assert facts["advice"].value == "* Old events stay in shop.orders. Next: nothing"
    assert "advice" not in page_of(WELL)


def test_page_says_where_jobs_ran() -> None:
    ran_on = {"window": RanOn("local[2]", "local-1", "http://here:4040", 3, 6), "snapshot": RanOn(here=1, why="small")}
    facts = page_of(replace(WELL, ran_on=ran_on))
    assert "* window jobs ran on Spark local[2] (local-1): 3 jobs, 6 tasks" in facts["ran_on"].value
    assert "* snapshot jobs ran on this process: 1 task (small)" in facts["ran_on"].value
    assert facts["spark_pages"].url == "http://here:4040"


def test_report_differs_by_what_is_wrong_and_not_by_how_long() -> None:
    quiet = replace(WELL, troubles=(Trouble("SalesDb", "quiet for 15 minutes"),))
    assert differs(WELL, quiet)
    assert not differs(quiet, replace(WELL, troubles=(Trouble("SalesDb", "quiet for 16 minutes"),)))
    assert not differs(WELL, replace(WELL, rates=Rates()))


def test_whoever_names_a_table_writes_no_markdown_on_the_page() -> None:
    evil = TableId("SalesDb", "dbo", "[pay](http://evil)<img src=x>`*a*`|b")
    tables = (TableReport(evil, "t", "failed", "![x](http://evil) <b>"),)
    facts = page_of(
        replace(
            WELL,
            tables=tables,
            troubles=(Trouble(str(evil), "<script> Next: wait"),),
            queue=(QueuedSnapshot(evil, "<b>", 1, paused=False),),
        )
    )
    for name in ("page", "tables", "what_to_do", "queue"):
        text = facts[name].value
        assert "evil" in text
        assert not re.search(r"(?<!\\)[\[\]<>`]", text), name
        assert re.search(r"\\\[pay\\\]", text)
