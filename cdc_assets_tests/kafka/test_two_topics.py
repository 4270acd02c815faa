"""What the client and a real broker do with two topics in one transaction: one of them refused, limited, fenced, or away."""

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.adapters.kafka.transactions import Transactions
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.errors import ConnectionLostError, FencedError
from cdc_assets.publish.records import Headers, RecordSlice
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.numbered import QUICK
from cdc_assets_tests.kafka.publishing import Publishing, read_committed
from cdc_assets_tests.patience import wait_until
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

CHANCE = random.Random("two topics")  # noqa: S311 - bytes that no codec makes fewer
HEADERS: Headers = [("h", b"v")]


def slice_of(*values: bytes, headers: Headers | None = None) -> RecordSlice:
    keys = pa.array([b"%d" % number for number in range(len(values))], pa.large_binary())
    positions = pa.array(map(str, range(len(values))))
    return RecordSlice(1, positions, keys, pa.array(values, pa.large_binary()), headers and [headers] * len(values))


def set_limit(broker: Broker, topic: str, size: int) -> None:
    """Change how large a batch of a topic may be."""
    wanted = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[wanted])
    broker.admin.incremental_alter_configs([resource])[resource].result(30)


@contextmanager
def opened(broker: Broker, prefix: str, *topics: str, **options: str) -> Iterator[KafkaBroker]:
    """A broker whose topics are there, and known."""
    given = tuple((name.replace("_", "."), text) for name, text in options.items())
    own = KafkaBroker(KafkaSettings(servers=broker.servers, producer=given), prefix)
    own.open()
    assert not own.prepare(topics)
    try:
        yield own
    finally:
        own.close()


def sent(broker: Broker, topic: str) -> list[bytes]:
    return [one.value for one in read_committed(broker, topic)]


@pytest.mark.parametrize("headers", [None, HEADERS])
def test_no_record_that_is_taken_is_told_to_python(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, headers: Headers | None
) -> None:
    told, deliver = [], Transactions._delivered

    def delivered(self: Transactions, error: object, message: object) -> None:
        told.append(error)
        deliver(self, error, message)

    monkeypatch.setattr(Transactions, "_delivered", delivered)
    topics = [f"quiet.{bool(headers)}.{name}" for name in "ab"]
    values = [b"%d" % number for number in range(20_000)]
    with opened(broker, f"quiet{bool(headers)}", *topics) as own:
        own.begin()
        for topic in topics:
            assert own.send(topic, slice_of(*values, headers=headers)) == (len(values), "")
        assert not own.commit("marker")
        assert not told
        set_limit(broker, topics[0], 1000)
        own.begin()
        for topic in topics:
            assert own.send(topic, slice_of(b"x" * 5000, headers=headers)) == (1, "")
        assert list(own.commit("never")) == topics[:1]
        assert told
    for topic in topics:
        assert sent(broker, topic) == values


def test_a_topic_with_a_low_limit_takes_all_that_fits_it_beside_another(broker: Broker) -> None:
    """Many batches of the client would be larger than it takes, and all records of such a batch would be refused."""
    broker.create("low.a", 2, max__message__bytes="5000")
    values = [CHANCE.randbytes(CHANCE.choice([1, 300, 2000, 4800])) for _ in range(300)]
    with opened(broker, "low", "low.a", "low.b") as own:
        own.begin()
        for start in range(0, 300, 50):
            for topic in ("low.a", "low.b"):
                assert own.send(topic, slice_of(*values[start : start + 50])) == (50, "")
        found = own.send("low.a", slice_of(b"x", b"x" * 5000, b"x"))
        assert (found[0], "the topic takes 5,000" in found[1]) == (1, True)
        assert not own.commit("marker")
    assert sorted(sent(broker, "low.a")) == sorted([*values, b"x"])
    assert sent(broker, "low.b") == values


def test_a_record_that_fits_its_topic_compressed_is_taken_and_one_that_does_not_is_named(broker: Broker) -> None:
    broker.create("packed.a", 1, max__message__bytes="5000")
    small, wide, noise = b"small", b"wide and alike " * 10_000, CHANCE.randbytes(20_000)
    with opened(broker, "packed", "packed.a", "packed.b", compression_type="zstd") as own:
        own.begin()
        assert own.send("packed.b", slice_of(small)) == (1, "")
        assert own.send("packed.a", slice_of(small, wide, small)) == (3, "")
        assert not own.commit("marker")
        own.begin()
        assert own.send("packed.b", slice_of(small)) == (1, "")
        found = own.send("packed.a", slice_of(small, wide, noise, small))
        assert (found[0], "the topic takes 5,000" in found[1]) == (2, True)
        assert own.send("packed.b", slice_of(small)) == (1, ""), "which is dropped, as all of this transaction"
        assert list(own.commit("never")) == ["packed.a"]
        own.abort()
        own.begin()
        assert own.send("packed.b", slice_of(small, small)) == (2, "")
        assert not own.commit("other")
        assert own.newest() == "other"
    assert (sent(broker, "packed.a"), sent(broker, "packed.b")) == ([small, wide, small], [small] * 3)


def test_a_refusal_of_a_record_that_was_sent_before_is_not_taken_for_that_of_the_next(broker: Broker) -> None:
    """The limit was lowered meanwhile, so the first of two is refused; the second one would have been sent alone."""
    broker.create("before.a", 1, max__message__bytes="5000")
    with opened(broker, "before", "before.a", "before.b", compression_type="zstd") as own:
        set_limit(broker, "before.a", 1000)
        own.begin()
        assert own.send("before.b", slice_of(b"small")) == (1, "")
        assert own.send("before.a", slice_of(CHANCE.randbytes(3000), b"wide and alike " * 1000)) == (2, "")
        assert list(own.commit("never")) == ["before.a"]
    assert not sent(broker, "before.b")


def test_nothing_is_committed_without_its_marker(broker: Broker) -> None:
    topics = ["unmarked.a", "unmarked.b"]
    with opened(broker, "unmarked", *topics) as own:
        own.begin()
        for topic in topics:
            assert own.send(topic, slice_of(b"1")) == (1, "")
        with pytest.raises(ConnectionLostError, match=r"refuses a marker in .* more than producer\.max\.request\.size"):
            own.commit("x" * 2_000_000)
        own.abort()
        assert own.open() is None
    assert not [value for topic in topics for value in sent(broker, topic)]


def test_a_refusal_stops_its_topic_at_its_own_place_and_another_goes_on(
    server: StandIn, tmp_path: Path, broker: Broker
) -> None:
    case = Publishing(server, tmp_path, broker, "places", **{"producer.compression.type": "zstd"})
    other = f"places.{DATABASE}.dbo.u"
    broker.create(case.topic, 1, max__message__bytes="8000")
    case.execute("CREATE TABLE dbo.u (id int NOT NULL PRIMARY KEY)")
    case.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'u', @role_name = NULL")
    case.insert(1)
    case.execute("INSERT INTO dbo.u VALUES (1)")
    case.capture("snapshot")
    case.publish()
    noise = CHANCE.randbytes(8000).hex()
    case.execute("INSERT INTO dbo.u VALUES (2)")
    case.execute(f"INSERT INTO dbo.t VALUES (2, N'{noise}')")
    case.execute("INSERT INTO dbo.u VALUES (3)")
    case.insert(3)
    case.capture()
    for _ in range(2):
        done = case.command()
        assert done.returncode == 1, done.stdout + done.stderr
        told = " ".join(done.stderr.split())
        assert "is refused: it has" in told
        assert "the topic takes 8,000" in told
        assert (case.ids(), len(case.sent(other))) == ([1], 3)
    set_limit(broker, case.topic, 100_000)
    case.publish()
    assert (case.ids(), len(case.sent(other))) == ([1, 2, 3], 3)


def test_a_signal_ends_a_run_whose_broker_does_not_answer(server: StandIn, tmp_path: Path, broker: Broker) -> None:
    """At once while nothing is new, and in the middle of a commit; what was not committed is published by the next run."""
    case = Publishing(server, tmp_path, broker, "ended")
    other = f"ended.{DATABASE}.dbo.u"
    case.execute("CREATE TABLE dbo.u (id int NOT NULL PRIMARY KEY)")
    case.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'u', @role_name = NULL")
    case.insert(1)
    case.execute("INSERT INTO dbo.u VALUES (1)")
    case.capture("snapshot")
    for number in (2, 3):
        with case.running() as process:
            wait_until(lambda: len(case.sent()) == number - 1, 120, case.sent)  # noqa: B023
            with broker.standing_still():
                case.execute(f"INSERT INTO dbo.u VALUES ({number})")
                case.insert(number)
                case.capture()
                time.sleep(1.5)  # it has handed its records over
                begun = time.monotonic()
                process.send_signal(signal.SIGTERM)
                process.wait(60)
                assert time.monotonic() - begun < 3
        case.publish()
        assert case.ids() == list(range(1, number + 1))
        assert len(case.sent(other)) == number


@pytest.mark.parametrize("pause_s", [0.0, 0.002, 0.01, 0.05])
def test_a_commit_whose_outcome_nobody_knows_is_told_by_the_marker(broker: Broker, pause_s: float) -> None:
    """Both topics and the marker are there, or none of them."""
    prefix = f"unknown{pause_s}"
    topics, given = [f"{prefix}.{name}" for name in "ab"], QUICK | {"delivery.timeout.ms": "3000"}
    for topic in topics:
        broker.create(topic)
    own = KafkaBroker(KafkaSettings(servers=broker.servers, producer=tuple(given.items())), prefix)
    own.open()
    own.begin()
    for topic in topics:
        assert own.send(topic, slice_of(b"1", b"2")) == (2, "")
    committed = False
    with suppress(ConnectionLostError), stopped_after(broker, pause_s):
        committed = not own.commit("marker")
    found = own.open()
    assert found == "marker" or not committed
    assert [sent(broker, topic) for topic in topics] == [[b"1", b"2"] if found else []] * 2
    own.close()


@contextmanager
def stopped_after(broker: Broker, pause_s: float) -> Iterator[None]:
    """The broker stands still a moment after the block has begun."""
    over = threading.Event()

    def stop() -> None:
        time.sleep(pause_s)
        with broker.standing_still():
            over.wait(60)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("how", ["commit", "flush", "abort"])
def test_a_newer_producer_fences_an_older_one_whatever_it_does(broker: Broker, how: str) -> None:
    topics = [f"fence{how}.{name}" for name in "ab"]
    with opened(broker, f"fence{how}", *topics) as older, opened(broker, f"fence{how}", *topics) as newer:
        newer.begin()
        assert not newer.commit("newer")
        older.begin()

        def flushed() -> None:
            with older._translated():
                older._flush()

        steps: dict[str, Callable[[], object]] = {
            "commit": lambda: older.commit("older"),
            "flush": flushed,
            "abort": older.abort,
        }

        def go_on() -> None:
            for topic in topics:
                older.send(topic, slice_of(b"1"))
            steps[how]()
            older.abort()
            older.begin()

        with pytest.raises(FencedError):
            go_on()
        assert newer.newest() == "newer"
    assert not [value for topic in topics for value in sent(broker, topic)]
