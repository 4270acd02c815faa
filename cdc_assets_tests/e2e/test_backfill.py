"""A backfill of key ranges from the web pages: one run, slice after slice, while the stream gives way and comes back."""

import re
from collections import Counter

import dagster as dg
import pytest

from cdc_assets_tests.e2e.conftest import LEDGER_ROWS, RANGES, Daemon, busy
from cdc_assets_tests.shop import key

pytestmark = pytest.mark.timeout(300)

LEDGER = key("ledger", "snapshot")


def runs(daemon: Daemon, job: str, *statuses: dg.DagsterRunStatus) -> list[dg.DagsterRun]:
    """Of a job, newest first."""
    return list(daemon.instance.get_runs(dg.RunsFilter(job_name=job, statuses=list(statuses) or None)))


def messages(daemon: Daemon, run: dg.DagsterRun) -> list[str]:
    """What the run logged."""
    return [entry.user_message for entry in daemon.instance.all_logs(run.run_id)]


def test_backfill_of_key_ranges_is_one_run_for_which_the_stream_makes_way(daemon: Daemon) -> None:
    daemon.await_rest()
    before = {event["position"] for event in daemon.shop.events("ledger")}
    started = dg.DagsterRunStatus.STARTED
    with busy(daemon, "UPDATE dbo.ledger SET amount = amount + 1 WHERE id = 7"):
        daemon.wait_until(lambda: len(runs(daemon, "shop_follow", started)) == 1, "a run follows the log")
        (stream,) = runs(daemon, "shop_follow", started)
        backfill = daemon.backfill([LEDGER], daemon.ranges[1:3])
        daemon.wait_until(lambda: daemon.backfill_status(backfill) == "COMPLETED_SUCCESS", "the backfill ends")
        asked = [run for run in daemon.instance.get_runs() if run.tags.get("dagster/backfill") == backfill]
        daemon.wait_until(lambda: len(runs(daemon, "shop_follow", started)) == 1, "the stream comes back")
        assert runs(daemon, "shop_follow", started)[0].run_id != stream.run_id
    daemon.await_rest()

    (run,) = asked
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert any(text.endswith("ended: yielded") for text in messages(daemon, stream))
    progress = [text for text in messages(daemon, run) if " slices" in text and LEDGER.path[1] in text]
    assert re.search(r": 2,000 events in 1 table, (\d+) of \1 slices(;|$)", progress[-1]), progress
    new = [event for event in daemon.shop.events("ledger") if event["position"] not in before]
    reads = Counter(event["key"]["id"] for event in new if event["value"]["op"] == "r")
    size = LEDGER_ROWS // RANGES
    assert reads == Counter(range(size, 3 * size)), "the second and the third range, each row once"
    assert {event["key"]["id"] for event in new if event["value"]["op"] == "u"} == {7}
    assert daemon.failed_steps() == 0
