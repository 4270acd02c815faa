"""Where mirrors' and comparisons' jobs ran is read when their run is over."""

from pathlib import Path

from cdc_assets.core.ran_on import JobAccount, RanOn
from cdc_assets.lake.location import Location
from cdc_assets.ledger.jobs import RecordedJobs

FIRST = RanOn("local[2]", "local-1", "http://here:4040", jobs=1, tasks=2)
LATER = RanOn("local[2]", "local-2", jobs=1, tasks=3)


def recorded(lake: Path) -> RecordedJobs:
    return RecordedJobs(Location(str(lake)), "shop")


def counted(*jobs: RanOn) -> JobAccount:
    account = JobAccount()
    for job in jobs:
        account.note("mirror", job)
    return account


def test_each_kind_says_what_its_newest_run_with_jobs_has_counted(tmp_path: Path) -> None:
    recorded(tmp_path).write("mirror", counted(FIRST))
    recorded(tmp_path).write("reconcile", counted(FIRST))  # it has had none
    assert recorded(tmp_path).read() == {"mirror": FIRST}
    writer, account = recorded(tmp_path), counted(LATER)
    writer.write("mirror", account)
    assert recorded(tmp_path).read() == {"mirror": LATER}
    account.note("mirror", FIRST)
    writer.write("mirror", account)
    recorded(tmp_path).write("mirror", JobAccount())
    assert recorded(tmp_path).read() == {"mirror": LATER + FIRST}


def test_what_is_known_is_not_written_again(tmp_path: Path) -> None:
    writer, account = recorded(tmp_path), counted(FIRST)
    writer.write("mirror", account)
    (tmp_path / "shop.__jobs" / "mirror.json").unlink()
    writer.write("mirror", account)
    assert recorded(tmp_path).read() == {}


def test_a_reader_leaves_the_lake_as_it_is(tmp_path: Path) -> None:
    assert recorded(tmp_path).read() == {}
    assert list(tmp_path.iterdir()) == []


def test_a_lake_that_refuses_the_file_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "shop.__jobs").write_text("no folder")
    recorded(tmp_path).write("mirror", counted(FIRST))
