"""Runs that write the same thing wait for each other, in the order of their coming, and for no dead one."""

import errno
import random
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from unittest.mock import patch

import dagster as dg
import pytest

from cdc_assets.defs import tags
from cdc_assets.defs.tags import tag_run
from cdc_assets.defs.turns import Turns
from cdc_assets_tests.dagster.turns import turns_of
from cdc_assets_tests.patience import wait_until

LAKE, OTHER = "/lake/shop.__windows", "/lake/erp.__windows"


@dg.job
def job() -> None:
    """Does nothing."""


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """Storage in a folder of its own."""
    with dg.DagsterInstance.local_temp() as found:
        yield found


def started(instance: dg.DagsterInstance, tags: dict[str, str] | None = None) -> dg.DagsterRun:
    """A run at work."""
    return instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags=tags)


def take_at_once(turns: Turns) -> None:
    """Take a turn that nobody has or waits for."""
    assert not turns.is_wanted()
    turns.take()


def test_one_at_a_time_however_many_come_at_once(instance: dg.DagsterInstance) -> None:
    inside, most, done = 0, 0, 0
    lock, chance = threading.Lock(), random.Random(7)  # noqa: S311 - no secret

    def work(number: int) -> None:
        nonlocal inside, most, done
        turns = turns_of(instance, started(instance), LAKE)
        sleep(chance.random() / 10)
        with turns.taken():
            with lock:
                inside, most = inside + 1, max(most, inside + 1)
            sleep(0.05)
            with lock:
                inside, done = inside - 1, done + 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert (most, done) == (1, 6)


def test_steps_of_one_run_wait_for_each_other_and_captures_do_not(instance: dg.DagsterInstance) -> None:
    run = started(instance)
    one, two = turns_of(instance, run, LAKE, "one"), turns_of(instance, run, LAKE, "two")
    one.take()
    assert two.is_wanted()
    take_at_once(turns_of(instance, run, OTHER, "two"))
    assert not one.is_wanted()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(two.take)
        wait_until(one.is_wanted, 30, lambda: "the other step does not want its turn")
        one.leave()
        waiting.result(30)
    two.leave()
    take_at_once(one)


@pytest.mark.long
def test_a_run_of_another_code_location_that_waits_is_known(instance: dg.DagsterInstance) -> None:
    own, here, there = (started(instance, {"at": name}) for name in ("", "", "there"))
    turns = turns_of(instance, own, LAKE)
    turns.take()
    turns_of(instance, here, LAKE)._choose()
    assert (turns.is_wanted(), turns.wanted_elsewhere()) == (True, "")
    turns_of(instance, there, LAKE)._choose()
    with patch("cdc_assets.defs.turns.repository_of", lambda run: run.tags["at"]):
        assert turns.wanted_elsewhere() == "there"


def test_tags_of_one_run_are_written_one_after_the_other(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster reads all tags of a run, and writes them back: of two that do so at once, one would be lost."""
    run, write, at_once = started(instance), instance.add_run_tags, list[int]()
    inside: list[str] = []

    def slowly(run_id: str, tags: Mapping[str, str]) -> None:
        inside.append(run_id)
        at_once.append(len(inside))
        sleep(0.05)
        write(run_id, tags)
        inside.pop()

    monkeypatch.setattr(instance, "add_run_tags", slowly)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda step: tag_run(instance, run.run_id, {step: "taken"}), "abcd"))
    assert at_once == [1, 1, 1, 1]
    record = instance.get_run_by_id(run.run_id)
    assert record is not None
    assert {"a", "b", "c", "d"} <= record.tags.keys()


@pytest.mark.parametrize("error", [OSError(errno.ENOLCK, "no locks"), BlockingIOError(errno.EAGAIN, "held")])
def test_tags_are_written_where_nobody_gets_a_lock(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """The file system has none, or a process that was stopped holds it."""

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(tags.fcntl, "flock", refuse)
    monkeypatch.setattr(tags, "_GRACE_S", 0.2)
    run = started(instance)
    tag_run(instance, run.run_id, {"a": "taken"})
    assert (found := instance.get_run_by_id(run.run_id))
    assert found.tags["a"] == "taken"


@pytest.mark.long
def test_nobody_waits_for_a_run_that_ended_or_whose_process_is_gone(instance: dg.DagsterInstance) -> None:
    ended, dead = started(instance), started(instance)
    turns_of(instance, ended, LAKE).take()
    instance.report_run_failed(ended)
    second = turns_of(instance, dead, LAKE)
    take_at_once(second)
    record = instance.get_run_by_id(dead.run_id)
    assert record is not None
    (name,) = [name for name in record.tags if "cdc_turn" in name]
    run_id, number, process = record.tags[name].split(" ")
    host, boot, _, *others = process.split("/")
    gone = "/".join([host, boot, "4194303", *others])
    instance.add_run_tags(dead.run_id, {name: f"{run_id} {number} {gone}"})
    take_at_once(turns_of(instance, started(instance), LAKE))


def test_a_re_execution_has_not_its_parents_turn(instance: dg.DagsterInstance) -> None:
    parent = started(instance)
    turns = turns_of(instance, parent, LAKE)
    turns.take()
    record = instance.get_run_by_id(parent.run_id)
    assert record is not None
    instance.report_run_failed(record)
    started(instance, dict(record.tags))
    take_at_once(turns_of(instance, started(instance), LAKE))
