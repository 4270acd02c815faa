"""Progress is added up into few reports, and none of it is lost on the way."""

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ran_on import RanOn
from cdc_assets.defs.reporter import Tally
from cdc_assets.shared.progress import Progress, TableProgress

TABLE = TableId("SalesDb", "dbo", "orders")
EVERY_S = 10.0


def progress(number: int, **rows: int) -> Progress:
    """One window that brought rows."""
    lsn = Lsn(number.to_bytes(10, "big"))
    part = TableProgress(rows, 100, ZERO_LSN, lsn, datetime(2026, 1, 1, tzinfo=UTC))
    return Progress("stream", "SalesDb", number, ZERO_LSN, lsn, {TABLE: part}, (), lag_s=1.5)


@given(st.lists(st.tuples(st.floats(0, 8), st.integers(1, 5)), max_size=30))
def test_every_row_is_reported_once_and_reports_are_apart(windows: list[tuple[float, int]]) -> None:
    tally, now = Tally(EVERY_S), 0.0
    reported, times = 0, []
    for number, (pause, rows) in enumerate(windows, 1):
        now += pause
        tally.add(progress(number, c=rows), now)
        if due := tally.due(now):
            reported += due[TABLE].rows["c"]
            times.append(now)
    reported += sum(total.rows["c"] for total in tally.drain().values())
    assert reported == sum(rows for _, rows in windows)
    assert all(later - earlier >= EVERY_S for earlier, later in zip([0.0, *times], times, strict=False))
    assert tally.drain() == {}


def test_first_report_waits_for_progress_and_not_for_the_start_of_spark() -> None:
    tally = Tally(EVERY_S)
    tally.add(progress(1, c=1), 60.0)
    assert tally.due(60.0) == {}
    assert list(tally.due(70.0)) == [TABLE]


def test_numbers_stay_numbers_so_that_pages_plot_them() -> None:
    tally = Tally(EVERY_S)
    tally.add(progress(1, c=2, u=1), 0.0)
    tally.add(progress(2, d=1, tombstone=1), 0.0)
    facts = tally.drain()[TABLE].metadata(tally.lag_s)
    assert facts["rows"] == 5
    assert (facts["bytes"], facts["windows"]) == (200, 2)
    assert (facts["rows_creates"], facts["rows_updates"]) == (2, 1)
    assert (facts["rows_deletes"], facts["rows_tombstones"], facts["lag_seconds"]) == (1, 1, 1.5)


def test_reports_say_where_jobs_ran_and_link_to_pages_that_are_served() -> None:
    tally = Tally(EVERY_S)
    for number, ran_on in enumerate((RanOn("local[2]", "local-1", jobs=1, tasks=2), RanOn(here=1, why="small"))):
        tally.add(replace(progress(number, c=1), ran_on=ran_on), 0.0)
    facts = tally.drain()[TABLE].metadata(None)
    assert facts["ran_on"] == "Spark local[2] (local-1): 1 job, 2 tasks; this process: 1 task (small)"
    assert "spark_pages" not in facts
    tally.add(replace(progress(3, c=1), ran_on=RanOn("local[2]", "local-2", "http://here:4040", 1, 1)), 0.0)
    facts = tally.drain()[TABLE].metadata(None)
    assert (facts["ran_on"], facts["spark_pages"].url) == (
        "Spark local[2] (local-2): 1 job, 1 task",
        "http://here:4040",
    )
