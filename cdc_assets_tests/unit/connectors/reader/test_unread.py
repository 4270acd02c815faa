"""Who looks at a reader is told what its files and topics hold that is not in the lake."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc_assets.adapters.kafka import unread as kafka_unread
from cdc_assets.adapters.kafka.partitions import STARTED
from cdc_assets.assembly.engine import ask_unread
from cdc_assets.config.reader import KAFKA, Converter, ReaderSettings
from cdc_assets.connectors.databases.probe import open_probe
from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.connectors.engine.unread import Unread
from cdc_assets.errors import ConnectionLostError, LakeError
from cdc_assets.overview import CaptureReport
from cdc_assets.overview.engine import answers_of, report_of_engine
from cdc_assets_tests.unit.connectors.reader.trial import Trial


def report(trial: Trial) -> CaptureReport:
    overview = EngineOverview(trial.config)
    return report_of_engine(
        overview, answers_of(overview, lambda: open_probe(trial.config), ask_unread(trial.config)), datetime.now(UTC)
    )


def age(path: Path, seconds: float = 500) -> None:
    at = time.time() - seconds
    os.utime(path, (at, at))


def test_a_reader_of_files_is_healthy_while_nothing_waits(tmp_path: Path) -> None:
    trial = Trial(tmp_path, files__topic="t")
    trial.write("a.json", {"id": 1})
    age(trial.events / "a.json")
    trial.run()
    assert report(trial).health == "healthy"
    trial.write("b.json", {"id": 2})
    assert report(trial).health == "healthy", "it came just now"
    age(trial.events / "b.json")
    late = report(trial)
    assert late.health == "working"
    assert late.databases[0].lag.behind_s == pytest.approx(500, abs=30)
    assert any("1 files wait" in text for text in late.advice)
    trial.run()
    assert report(trial).health == "healthy"
    trial.write("a.json", {"id": 3})
    age(trial.events / "a.json", 400)
    assert report(trial).health == "working"
    trial.run()
    (trial.events / "b.json").unlink()
    trial.write("_c.json", {"id": 3})
    (trial.events / "empty.json").touch()
    age(trial.events / "empty.json")
    assert report(trial).health == "healthy"
    for path in trial.events.iterdir():
        path.unlink()
    assert report(trial).health == "not known", "as a folder that is not mounted"
    trial.events.rmdir()
    assert report(trial).health == "not known"


def test_a_file_that_is_appended_to_all_the_time_gets_late(tmp_path: Path) -> None:
    """Its time is always that of the newest line; what nobody reads was written before."""
    trial = Trial(tmp_path, files__topic="t")
    trial.write("a.json", {"id": 1})
    age(trial.events / "a.json", 9000)
    trial.run()
    trial.write("a.json", {"id": 2})
    for seconds in (500, 300, 0):
        age(trial.events / "a.json", seconds)
        assert report(trial).databases[0].lag.behind_s == pytest.approx(500, abs=30)
    trial.run()
    assert report(trial).health == "healthy"
    trial.write("a.json", {"id": 3})
    assert report(trial).databases[0].lag.behind_s == pytest.approx(0, abs=30), "it was read meanwhile"


def test_a_file_that_was_renamed_touched_or_got_a_blank_line_waits_for_nothing(tmp_path: Path) -> None:
    trial = Trial(tmp_path, files__topic="t")
    trial.write("a.json", {"id": 1})
    age(trial.events / "a.json")
    trial.run()
    (trial.events / "a.json").rename(trial.events / "a-1.json")
    trial.run()
    assert report(trial).health == "healthy"
    age(trial.events / "a-1.json", 400)
    trial.run()
    assert report(trial).health == "healthy"
    with (trial.events / "a-1.json").open("a") as file:
        file.write("\n")
    age(trial.events / "a-1.json", 300)
    trial.run()
    assert report(trial).health == "healthy"


def test_a_file_that_is_gone_before_its_end_is_missing_until_it_is_back(tmp_path: Path) -> None:
    """Also before a run sees it."""
    trial = Trial(tmp_path, files__topic="t")
    trial.write("a.json", {"id": 1}, '{"id"', end="")
    trial.write("b.json", {"id": 7})
    trial.run()
    (trial.events / "a.json").rename(tmp_path / "a.json")
    assert report(trial).health == "in trouble"
    said = "a.json is gone, empty, or outside of files.pattern, before it was read to its end"
    assert said in report(trial).headline
    (tmp_path / "a.json").rename(trial.events / "a-1.json")
    assert report(trial).health == "healthy", "it came just now"
    with (trial.events / "a-1.json").open("a") as file:
        file.write(": 2}")
    trial.run()
    assert report(trial).health == "healthy"
    assert [event["value"]["id"] for event in trial.held("t")] == [1, 7, 2]


@pytest.mark.parametrize("empty", ["a.json", "new.json"])
def test_a_file_that_is_emptied_before_its_end_is_missing(tmp_path: Path, empty: str) -> None:
    """Also if it is gone, and an empty one has come."""
    trial = Trial(tmp_path, files__topic="t")
    trial.write("a.json", {"id": 1}, '{"id"', end="")
    trial.write("b.json", {"id": 7})
    trial.run()
    (trial.events / "a.json").unlink()
    (trial.events / empty).touch()
    age(trial.events / empty)
    assert report(trial).health == "in trouble"
    assert "a.json is gone, empty, or outside of files.pattern" in report(trial).headline
    with pytest.raises(LakeError):
        trial.run()
    assert report(trial).health == "in trouble"


class Consumer:
    """A broker with one topic: what each partition gives, after its low and high offset."""

    def __init__(
        self, partitions: dict[int, tuple[int, int, list[Any]]], *, there: bool = True, id_: str = "first"
    ) -> None:
        self.partitions, self.there, self.id_ = partitions, there, id_
        self.queue: list[Any] = []
        self.closed = False

    def __call__(self, *_: object, **__: object) -> "Consumer":
        return self

    def list_topics(self, timeout: float) -> Any:
        del timeout
        return SimpleNamespace(
            topics={"t": SimpleNamespace(error=None, partitions=self.partitions)} if self.there else {}
        )

    def describe_topics(self, names: list[str], request_timeout: float) -> Any:
        del request_timeout
        return {name: SimpleNamespace(result=lambda *_: SimpleNamespace(topic_id=self.id_)) for name in names}

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        del timeout
        return self.partitions[place.partition][:2]

    def assign(self, places: list[Any]) -> None:
        for place in places:
            self.queue += self.partitions[place.partition][2]

    def incremental_unassign(self, places: list[Any]) -> None:
        gone = {place.partition for place in places}
        self.queue = [message for message in self.queue if message.partition() not in gone]

    def poll(self, timeout: float) -> Any:
        del timeout
        return self.queue.pop(0) if self.queue else None

    def close(self) -> None:
        self.closed = True


def message(partition: int, at: int, error: int | None = None) -> Any:
    return SimpleNamespace(
        topic=lambda: "t",
        partition=lambda: partition,
        timestamp=lambda: (1, at * 1000),
        error=lambda: None if error is None else SimpleNamespace(code=lambda: error, str=lambda: f"error {error}"),
    )


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(kafka_unread, "_REQUEST_TIMEOUT_S", 0.2)

    class KafkaError(Exception):
        _PARTITION_EOF = -191

    def asked(consumer: Consumer, recorded: dict[int, int], reset: str = "", *started: Any) -> Unread:
        library = SimpleNamespace(
            Consumer=consumer,
            TopicPartition=lambda topic, partition: SimpleNamespace(topic=topic, partition=partition, offset=-1),
            KafkaException=KafkaError,
            KafkaError=KafkaError,
            TopicCollection=list,
            admin=SimpleNamespace(AdminClient=consumer),
        )
        monkeypatch.setattr(kafka_unread, "client_library", lambda *_: library)
        options = (("auto.offset.reset", reset),) if reset else ()
        settings = ReaderSettings(KAFKA, "p", Converter(), Converter(), servers="b:1", topics=("t",), options=options)
        found = kafka_unread.unread(
            settings,
            [
                *started,
                *(
                    ({"topic": "t", "partition": one}, {"offset": at, "topic_id": "first"})
                    for one, at in recorded.items()
                ),
            ],
        )
        assert consumer.closed
        return found

    return asked


EOF = -191


def test_records_of_topics_wait_since_the_oldest(ask: Any) -> None:
    both = {0: (0, 9, [message(0, 200), message(0, 100)]), 1: (0, 5, [message(1, 150)])}
    assert ask(Consumer(both), {0: 9, 1: 5}) == Unread(seen=1)
    found = ask(Consumer(both), {0: 7, 1: 4})
    assert found == Unread(datetime.fromtimestamp(150, UTC), "up to 3 records of 2 partitions", seen=1)


def test_offsets_without_records_do_not_wait(ask: Any) -> None:
    """As of a transaction's marker, and of records that were aborted."""
    assert ask(Consumer({0: (0, 9, [message(0, 0, EOF)])}), {0: 8}) == Unread(seen=1)


def test_a_partition_that_was_never_read_waits_from_its_beginning_but_for_a_start_at_the_ends(ask: Any) -> None:
    new = {0: (3, 9, []), 1: (3, 9, [message(1, 100)])}
    assert ask(Consumer(new), {0: 9}).what == "up to 6 records of 1 partitions"
    assert ask(Consumer(new), {0: 9}, "latest").what == "up to 6 records of 1 partitions"
    assert ask(Consumer(new), {}, "latest") == Unread(seen=1)
    later = {0: (3, 9, [message(0, 100)]), 1: (3, 9, [message(1, 100)])}
    assert ask(Consumer(later), {}, "latest", STARTED).what == "up to 12 records of 2 partitions"


def test_a_reader_that_sees_nothing_is_told(ask: Any) -> None:
    found = ask(Consumer({}, there=False), {0: 9})
    assert "shows no topic of t" in found.missing
    with pytest.raises(ConnectionLostError, match="t partition 0"):
        ask(Consumer({0: (0, 9, [])}), {0: 8})


def test_partitions_that_were_read_and_are_another_ones_or_none_are_told(ask: Any) -> None:
    found = ask(Consumer({0: (4, 9, [])}), {0: 9, 1: 5})
    assert "t partition 1: it was read before and no longer exists" in found.missing
    assert "offsets 2 to 3 were removed" in ask(Consumer({0: (4, 9, [message(0, 100)])}), {0: 2}).missing
    assert "it ends at 9, before the recorded offset 12" in ask(Consumer({0: (4, 9, [])}), {0: 12}).missing


@pytest.mark.parametrize("size", [9, 12])
def test_a_topic_that_was_made_anew_is_told_however_many_records_it_has(ask: Any, size: int) -> None:
    messages = [message(0, 100)]
    found = ask(Consumer({0: (0, size, messages)}, id_="second"), {0: 9})
    assert found.missing.startswith("t partition 0: it was recreated after it was read to offset 9")
    assert found.what == f"up to {size} records of 1 partitions"
    onward = ask(Consumer({0: (0, size, messages)}, id_="second"), {0: 9}, "earliest")
    assert (onward.missing, onward.what) == ("", f"up to {size} records of 1 partitions")


def test_a_reader_that_sees_nothing_is_in_trouble(tmp_path: Path) -> None:
    trial = Trial(tmp_path, files__topic="t")
    trial.write("a.json", {"id": 1})
    trial.run()
    unread = Unread(missing="nothing. Next: look")
    found = report_of_engine(EngineOverview(trial.config), unread, datetime.now(UTC))
    assert found.health == "in trouble"


def test_a_topic_that_is_named_and_not_seen_is_not_known(tmp_path: Path) -> None:
    """Its events may be there, and the user may not see them."""
    trial = Trial(tmp_path, files__topic="t")
    trial.write("a.json", {"id": 1})
    trial.run()
    unread = Unread(seen=1, absent=("orders", "lines"))
    found = report_of_engine(EngineOverview(trial.config), unread, datetime.now(UTC))
    assert found.headline.startswith("not known: the source: orders, lines is not there, or the user may not see it")
