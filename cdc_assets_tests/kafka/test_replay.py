"""A range of windows in topics of another prefix, beside a publisher that goes on."""

import signal
from pathlib import Path

import pytest

from cdc_assets_tests.e2e.chains import PUBLISH
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.publishing import Publishing
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def test_a_replay_that_is_killed_at_each_step_sends_each_record_once(
    server: StandIn, tmp_path: Path, broker: Broker
) -> None:
    case = Publishing(server, tmp_path, broker, "present", **{"kafka.transaction.rows": "3"})
    case.insert(1, 2)
    case.capture("snapshot")
    for start in (10, 20, 30):
        case.insert(*range(start, start + 5))
        case.capture()
    with case.running() as publisher:
        command = ("--replay", "0..", "--prefix", "past")
        for step in [*PUBLISH, ""]:
            done = case.command(*command, crash=step)
            assert done.returncode == (-signal.SIGKILL if step else 0), done.stdout + done.stderr
        assert publisher.poll() is None, "a replay must not fence the publisher"
    case.publish()
    sent, replayed = case.sent(), case.sent(case.topic.replace("present", "past", 1))
    assert [(one.key, one.value, one.headers) for one in sent] == [
        (one.key, one.value, one.headers) for one in replayed
    ]
    assert case.ids() == [1, 2, *range(10, 15), *range(20, 25), *range(30, 35)]
    case.publish("--replay", "2..3", "--prefix", "part")
    part = [one.key for one in case.sent(case.topic.replace("present", "part", 1))]
    assert part
    assert len(part) < len(sent)
    again = case.command("--replay", "1..3", "--prefix", "part")
    assert again.returncode != 0
    assert "choose another prefix" in again.stderr + again.stdout
    other = case.command("--replay", "1..3", "--prefix", "past")
    assert other.returncode != 0
    assert len(case.sent(case.topic.replace("present", "past", 1))) == len(replayed)
