"""Which topics take no records now, by what the brokers report of their partitions, or because the client waits in vain."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from cdc_assets.adapters.kafka import producer
from cdc_assets.adapters.kafka.offline import offline_topics
from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.adapters.kafka.transactions import Transactions
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.errors import ConnectionLostError
from cdc_assets.publish.records import RecordSlice

RECORD = RecordSlice(1, pa.array(["0"]), pa.nulls(1, pa.large_binary()), pa.array([b"x"], pa.large_binary()), None)


def partition(leader: int = 1, replicas: int = 3, in_sync: int = 3) -> Any:
    return SimpleNamespace(leader=leader, replicas=list(range(replicas)), isrs=list(range(in_sync)))


@pytest.mark.parametrize(
    ("parts", "least", "expected"),
    [
        ([partition(), partition()], 2, ""),
        ([partition(), partition(leader=-1)], 1, "partition 1 has no leader"),
        ([partition(in_sync=1)], 2, "partition 0 has 1 replicas in sync, and needs 2"),
        ([partition(in_sync=2)], 2, ""),
        ([partition(replicas=1, in_sync=1)], 2, ""),  # brokers ask for no more than there are
        ([], 1, ""),
    ],
)
def test_a_topic_is_offline_if_a_partition_has_no_leader_or_too_few_replicas_in_sync(
    parts: list[Any], least: int, expected: str
) -> None:
    topics = {
        "t": SimpleNamespace(partitions=dict(enumerate(parts))),
        "other": SimpleNamespace(partitions={0: partition(-1)}),
    }
    found = offline_topics(topics, {"t": least, "new": 1})
    assert list(found) == (["t"] if expected else [])
    assert expected in found.get("t", "")


class Client:
    """A producer to whose brokers nothing goes.

    Args:
        late: topics whose records are not taken in time.
        looks: what is offline, look by look; the last of it from then on.
    """

    is_over, was_away, connection_error = False, False, ""

    def __init__(self, late: tuple[str, ...] = (), looks: tuple[dict[str, str], ...] = ({},)) -> None:
        self.failed = {(topic, KafkaError._MSG_TIMED_OUT): KafkaError(KafkaError._MSG_TIMED_OUT) for topic in late}
        self.looks = list(looks)
        self.looked = 0

    def offline(self, *_: Any) -> dict[str, str]:
        self.looked += 1
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def begin(self) -> None:
        pass

    def send(self, _: str, records: Any, __: float) -> int:
        return len(records)

    def commit(self, _: float) -> None:
        if self.failed:
            raise KafkaException(KafkaError(KafkaError._INCONSISTENT, "1 message failed", txn_requires_abort=True))

    def explained(self, error: KafkaError) -> KafkaError:
        return error


def broker_of(client: Client) -> KafkaBroker:
    found = KafkaBroker(KafkaSettings("127.0.0.1:1"), "shop")
    found._transactions = client  # type: ignore[assignment]  # of the parts that are used
    return found


@pytest.mark.parametrize(("late", "stopped"), [(("b",), {"b"}), (("a", "b"), None), (("b", "shop.__published"), None)])
def test_a_topic_whose_records_are_not_taken_in_time_is_the_reason_if_those_of_others_are(
    late: tuple[str, ...], stopped: set[str] | None
) -> None:
    """Else the brokers are away, and that passes."""
    own = broker_of(Client(late))
    assert own._marker.topic == "shop.__published"
    own.begin()
    for topic in "ab":
        assert own.send(topic, RECORD) == (1, "")
    if stopped is None:
        with pytest.raises(ConnectionLostError):
            own.commit("marker")
    else:
        assert own.commit("marker").keys() == stopped


def test_a_topic_whose_first_record_is_refused_does_not_show_that_the_brokers_are_there() -> None:
    own = broker_of(Client(("b",)))
    own._topics.limits["a"] = 1
    own.begin()
    assert own.send("a", RECORD)[0] == 0
    assert own.send("b", RECORD) == (1, "")
    with pytest.raises(ConnectionLostError):
        own.commit("marker")


def test_a_topic_whose_time_is_over_first_is_not_the_reason_if_no_broker_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The records of others were given to the client later, and are not taken either."""
    client = Client(("a",))
    own = broker_of(client)
    own.begin()
    for topic in "ab":
        assert own.send(topic, RECORD) == (1, "")
    monkeypatch.setattr(client, "offline", Mock(side_effect=KafkaException(KafkaError(KafkaError._TRANSPORT))))
    with pytest.raises(ConnectionLostError):
        own.commit("marker")


def test_a_topic_whose_time_is_over_is_not_the_reason_if_all_brokers_were_away() -> None:
    """They are back when somebody looks, and the records of others were given to the client later."""
    client = Client(("a",))
    own = broker_of(client)
    own.begin()
    for topic in "ab":
        assert own.send(topic, RECORD) == (1, "")
    client.was_away = True
    with pytest.raises(ConnectionLostError):
        own.commit("marker")


def test_nothing_is_sent_to_a_topic_that_takes_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "_ELECTION_S", 0.0)
    monkeypatch.setattr(producer, "_OFFLINE_S", 0.0)
    monkeypatch.setattr(producer, "STEP_S", 0.0)
    client = Client(looks=({"b": "no leader"},))
    own = broker_of(client)
    own.begin()
    assert own.send("a", RECORD) == (1, "")
    assert own.send("b", RECORD) == (0, "no leader")
    assert not own.commit("marker")
    client.looks = [{}]
    own.begin()
    assert own.send("b", RECORD) == (1, "")


def test_an_election_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "STEP_S", 0.0)
    client = Client(looks=({"b": "no leader"}, {"b": "no leader"}, {}))
    own = broker_of(client)
    own.begin()
    assert own.send("b", RECORD) == (1, "")
    assert client.looked == 3


class LateClient:
    """A client that says what it has found when it is asked for that.

    Args:
        errors: what it has found, and has not said yet.
    """

    def __init__(self, errors: list[KafkaError], options: dict[str, Any]) -> None:
        self.errors, self.say = errors, options["error_cb"]

    def init_transactions(self, _: float) -> None:
        pass

    def begin_transaction(self) -> None:
        pass

    def poll(self, _: float) -> int:
        while self.errors:
            self.say(self.errors.pop())
        return 0

    flush = poll


def test_brokers_that_answer_before_a_transaction_were_not_away_in_it() -> None:
    """One address of theirs may never answer, which each new producer tries first."""
    errors = [KafkaError(KafkaError._ALL_BROKERS_DOWN)]
    kafka = SimpleNamespace(
        Producer=lambda options, **_: LateClient(errors, options),
        Consumer=None,
        KafkaError=KafkaError,
        KafkaException=KafkaException,
    )
    own = Transactions(kafka, {}, KafkaSettings("127.0.0.1:1"))
    own.start(1.0)
    own.begin()
    own.flush(1.0)
    assert not own.was_away
    errors.append(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    own.flush(1.0)
    assert own.was_away
