"""Where jobs ran: added up by kind, and said in one line."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.core.capture_runner import CaptureRunner
from cdc_assets.core.jobs import Job
from cdc_assets.core.one_by_one import OneByOne
from cdc_assets.core.ran_on import NO_TASK, JobAccount, RanOn

FIRST = RanOn("local[2]", "local-1", jobs=1, tasks=2)
LATER = RanOn("local[2]", "local-2", "http://here:4040", jobs=1, tasks=3)
HERE = RanOn(here=1, why="--local")


def test_text_names_application_jobs_and_tasks_or_the_reason() -> None:
    assert str(FIRST) == "Spark local[2] (local-1): 1 job, 2 tasks"
    assert str(HERE) == "this process: 1 task (--local)"
    assert str(FIRST + HERE) == f"{FIRST}; {HERE}"
    assert str(RanOn()) == NO_TASK
    assert not RanOn()


def test_of_two_applications_the_later_one_is_named() -> None:
    total = FIRST + LATER
    assert total == RanOn("local[2]", "local-2", "http://here:4040", 2, 5)
    assert FIRST + HERE + RanOn() == RanOn("local[2]", "local-1", "", 1, 2, 1, "--local")


def test_since_a_moment_only_what_was_added_is_named() -> None:
    before = FIRST + HERE
    assert (before + LATER).since(before) == LATER
    assert (before + HERE).since(before) == HERE
    assert before.since(before) == RanOn()


def test_account_adds_up_by_kind_also_from_many_threads() -> None:
    account = JobAccount()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: account.note("window" if number % 2 else "mirror", FIRST), range(1000)))
    assert {kind: (ran.jobs, ran.tasks) for kind, ran in account.by_kind().items()} == {
        "window": (500, 1000),
        "mirror": (500, 1000),
    }
    assert account.of("snapshot") == RanOn()


@pytest.mark.parametrize("shared", [LocalRunner(2, "--local"), OneByOne("--local")])
def test_jobs_of_a_capture_are_counted_apart_on_a_shared_runner(shared: LocalRunner | OneByOne) -> None:
    one, other = CaptureRunner(shared, "shop"), CaptureRunner(shared, "mart")
    assert one.run(str, [1, 2], Job("window")) == ["1", "2"]
    one.run(str, [], Job("window"))
    other.run(str, [3], Job("mirror"))
    shared.run(str, [4], Job("window"))
    assert one.account.by_kind() == {"window": RanOn(here=2, why="--local")}
    assert other.account.by_kind() == {"mirror": RanOn(here=1, why="--local")}
