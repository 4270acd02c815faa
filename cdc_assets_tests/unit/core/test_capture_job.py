"""When the server's own reader of the log is in trouble."""

import pytest

from cdc_assets.core.capture_job import CaptureJob


@pytest.mark.parametrize(
    ("agent", "quiet_s", "error", "said"),
    [
        (True, 0, "", ""),
        (None, 299, "", ""),
        (True, 900, "", ""),
        (False, 3, "", "Agent is stopped. Next: start"),
        (True, 3, "22859 log scan failed", "fails: 22859 log scan failed"),
        (None, None, "", "never scanned"),
        (True, 3600, "", "for more than 60 minutes"),
        (True, -59, "", ""),
    ],
)
def test_trouble_names_the_cause_and_the_next_step(
    agent: bool | None, quiet_s: int | None, error: str, said: str
) -> None:
    trouble = CaptureJob("Sales]Db", agent, quiet_s, error).trouble
    assert said in trouble
    assert bool(trouble) == bool(said)
    assert not trouble or "Next: " in trouble
    assert "USE" not in trouble or "[Sales]]Db]" in trouble


def test_job_whose_newest_entry_lies_in_the_future_is_not_known_to_work() -> None:
    """The clock was set back, and the job may have stopped before or after."""
    job = CaptureJob("SalesDb", True, -3000)
    assert (job.trouble, job.quiet) == ("", None)
    assert "is not known: the server's clock was set back" in job.unknown
    assert "Next: " in job.unknown
    assert CaptureJob("SalesDb", False, -3000).unknown == "", "that the Agent is stopped is known"
    assert [CaptureJob("SalesDb", True, quiet_s).unknown for quiet_s in (None, -60, 0, 3600)] == ["", "", "", ""]
