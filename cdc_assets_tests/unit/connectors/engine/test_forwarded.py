"""Signals that wait in the lake, and the file of a connector in another container."""

import json
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cdc_assets.connectors.engine.forwarded import ForwardedSignals
from cdc_assets.connectors.engine.signalled_run import append_lines, holds_signals
from cdc_assets.core.signal import Signal
from cdc_assets.lake.location import Location
from cdc_assets.signals.inbox import Inbox
from cdc_assets_tests.unit.connectors.engine.feeds import ListFeed


class Site:
    """The lake, and one machine with a connector."""

    def __init__(self, folder: Path) -> None:
        self.inbox = Inbox(Location(str(folder / "lake")), "shop")
        self.file = folder / "signals.jsonl"
        self.feed = ListFeed([], [])

    def run(self, patience_s: float = 60.0) -> ForwardedSignals:
        return ForwardedSignals(self.feed, self.inbox, self.file, 0.0, patience_s)

    def lines(self) -> list[str]:
        """What the connector reads; it empties the file."""
        found = [json.loads(line)["id"] for line in self.file.read_text().splitlines()]
        self.file.write_text("")
        return found


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_signal_reaches_the_file_once_and_leaves_the_lake_when_it_was_read(site: Site) -> None:
    site.inbox.put(Signal("a", "log", '{"message": "x"}'))
    run = site.run()
    run.next(0)
    assert json.loads(site.file.read_text()) == {"id": "a", "type": "log", "data": {"message": "x"}}
    run.next(0)
    assert not run.started, "the connector has not read it yet"
    assert site.inbox.waiting({})
    assert site.lines() == ["a"]
    run.next(0)
    assert run.started
    assert not site.inbox.waiting({})
    site.inbox.put(Signal("b", "log", None))
    run.next(0)
    assert site.lines() == ["b"]


def test_nothing_is_handed_on_before_the_connector_reads_the_log(site: Site) -> None:
    site.inbox.put(Signal("a", "log", None))
    run = site.run()
    site.feed.started = False
    run.next(0)
    site.feed.started, site.feed.snapshot = True, True
    run.next(0)
    assert not site.file.exists()
    assert not run.started, "it has not looked yet"
    site.feed.snapshot = False
    run.next(0)
    assert site.lines() == ["a"]


@pytest.mark.parametrize("file_is_lost", [False, True], ids=["same machine", "another container"])
def test_a_run_that_died_before_the_connector_has_read_its_file(site: Site, file_is_lost: bool) -> None:
    site.inbox.put(Signal("a", "log", None))
    site.run().next(0)
    if file_is_lost:
        site.file.unlink()
    site.run().next(0)
    assert site.lines() == ["a"]


def test_a_connector_that_reads_no_file_keeps_no_run_for_ever(site: Site) -> None:
    site.inbox.put(Signal("a", "log", None))
    run = site.run(patience_s=0.0)
    run.next(0)
    assert run.started
    assert site.inbox.waiting({}), "the next run hands it on"


def test_what_is_no_signal_stops_nothing(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.inbox.put(Signal("a", "log", "{no json"))
    site.inbox.put(Signal("b", "log", None))
    run = site.run()
    run.next(0)
    assert site.lines() == ["b"]
    run.next(0)
    assert not site.inbox.waiting({})
    assert "Signal 'a' is ignored" in caplog.text


def test_a_file_that_cannot_be_written_is_tried_again(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.inbox.put(Signal("a", "log", None))
    site.file.mkdir()
    run = site.run()
    run.next(0)
    assert "check signal.file" in caplog.text
    assert site.inbox.waiting({})
    site.file.rmdir()
    run.next(0)
    assert site.lines() == ["a"]


def test_a_connector_that_reads_in_the_middle_loses_none_of_several_signals(site: Site) -> None:
    """It reads all lines, and then empties its file, in another process."""
    read, ended = list[str](), threading.Event()

    def connector() -> None:
        while not ended.is_set():
            with suppress(FileNotFoundError):
                if lines := site.file.read_text().splitlines():
                    time.sleep(0.001)
                    site.file.write_text("")
                    read.extend(json.loads(line)["id"] for line in lines)

    thread = threading.Thread(target=connector)
    thread.start()
    try:
        for turn in range(40):
            sent = [f"{turn}-{number}" for number in range(5)]
            for name in sent:
                site.inbox.put(Signal(name, "log", None))
            run = site.run()
            run.next(0)
            while holds_signals(site.file):
                time.sleep(0.001)
            run.next(0)
            assert not site.inbox.waiting({})
            deadline = time.monotonic() + 10
            while not set(sent) <= set(read) and time.monotonic() < deadline:
                time.sleep(0.001)
            assert set(sent) <= set(read), "what left the lake was read"
    finally:
        ended.set()
        thread.join()


def test_nothing_is_written_behind_lines_of_others(tmp_path: Path) -> None:
    """The connector may be reading them, and empties the file then."""
    path = tmp_path / "signals.jsonl"
    path.write_text('{"id": "theirs"}')
    assert not append_lines(path, ["ours"], alone=True)
    assert path.read_text() == '{"id": "theirs"}'
    assert append_lines(path, ["ours"])
    assert path.read_text().splitlines() == ['{"id": "theirs"}', "ours"], "though theirs had no end of line"
    assert append_lines(path, ["ours"], alone=True), "it is there"
