"""Rights that a real broker refuses: told with what is missing, of one topic where possible; given again, nothing is lost or doubled."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from cdc_assets.adapters.kafka.preflight import inspect_kafka
from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.config.settings import KafkaSettings, TopicRule
from cdc_assets.errors import PreflightError
from cdc_assets.publish.records import RecordSlice
from cdc_assets_tests.certificates import self_signed
from cdc_assets_tests.kafka.broker import PASSWORD, Broker
from cdc_assets_tests.kafka.publishing import Publishing, read_committed
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

WRITE, READ, CREATE, DESCRIBE = (AclOperation.WRITE, AclOperation.READ, AclOperation.CREATE, AclOperation.DESCRIBE)
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class Rights:
    """Of the user of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._admin = broker.admin

    def give(self, name: str, *operations: AclOperation, kind: ResourceType = ResourceType.TOPIC) -> None:
        """Allow operations."""
        wanted = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, "User:cdc", "*", operation, AclPermissionType.ALLOW)
            for operation in operations
        ]
        for done in self._admin.create_acls(wanted).values():
            done.result(30)
        time.sleep(1)  # until the authorizer knows

    def take(self, name: str, kind: ResourceType = ResourceType.TOPIC) -> None:
        """Allow nothing."""
        every = AclOperation.ANY, AclPermissionType.ANY
        own = AclBindingFilter(kind, name, ResourcePatternType.LITERAL, "User:cdc", None, *every)
        for done in self._admin.delete_acls([own]).values():
            done.result(30)
        time.sleep(1)

    def give_all(self, prefix: str) -> None:
        """What a publisher needs besides its topics."""
        self.give(f"{prefix}.__published", WRITE, READ, CREATE)
        self.give(f"cdc-assets-{prefix}", WRITE, DESCRIBE, kind=ResourceType.TRANSACTIONAL_ID)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("rights"))[0]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[Broker]:
    both = certificate.parent / "both.pem"
    both.write_bytes((certificate.parent / "key.pem").read_bytes() + certificate.read_bytes())
    with Broker(tmp_path_factory.mktemp("kafka") / "broker", both, options=AUTHORIZER) as running:
        yield running


@pytest.fixture(scope="module")
def rights(broker: Broker) -> Rights:
    return Rights(broker)


@pytest.fixture(scope="module")
def options(certificate: Path) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "cdc",
        "sasl.password": PASSWORD,
        "ssl.truststore.location": str(certificate),
    }


@pytest.fixture
def ours(broker: Broker, options: dict[str, str]) -> Iterator[Callable[[str], KafkaBroker]]:
    made: list[KafkaBroker] = []

    def make(prefix: str) -> KafkaBroker:
        made.append(KafkaBroker(KafkaSettings(servers=broker.secured, producer=tuple(options.items())), prefix))
        return made[-1]

    yield make
    for one in made:
        one.close()


def records(*numbers: int, size: int = 10) -> RecordSlice:
    column = pa.array([b"%d" % number for number in numbers], pa.large_binary())
    values = pa.array([b"x" * size] * len(numbers), pa.large_binary())
    return RecordSlice(1, pa.array(map(str, numbers)), column, values)


def opened(own: KafkaBroker) -> str | None:
    """The newest marker, once it was written again."""
    found = own.open()
    own.begin()
    assert not own.commit(found or "")
    return found


def held(broker: Broker, topic: str) -> list[int]:
    return [int(one.key) for one in read_committed(broker, topic)]


def test_each_right_that_nothing_goes_without_is_named_until_all_are_given(
    broker: Broker, rights: Rights, ours: Callable[[str], KafkaBroker]
) -> None:
    marker, own, of_id = "first.__published", ours("first"), ResourceType.TRANSACTIONAL_ID
    steps: list[tuple[str, Callable[[], None]]] = [
        ("CREATE and WRITE and READ on the topic first.__published", lambda: rights.give(marker, CREATE)),
        (
            "WRITE and DESCRIBE on the transactional id cdc-assets-first",
            lambda: rights.give("cdc-assets-first", WRITE, kind=of_id),
        ),
        ("READ on the topic first.__published", lambda: rights.give(marker, READ)),
        ("WRITE and READ on the topic first.__published", lambda: rights.give(marker, WRITE)),
    ]
    for named, give in steps:
        with pytest.raises(PreflightError) as told:
            opened(own)
        assert f"Next: give {named}" in str(told.value)
        give()
    assert own.open() is None
    own.begin()
    assert not own.commit("marker")
    assert own.open() == "marker"


@pytest.mark.parametrize("lost", ["marker", "transactional id"])
def test_a_right_that_is_lost_in_a_transaction_leaves_nothing_of_it(
    broker: Broker, rights: Rights, ours: Callable[[str], KafkaBroker], lost: str
) -> None:
    prefix = lost.replace(" ", "")
    topic, marker, name = f"{prefix}.t", f"{prefix}.__published", f"cdc-assets-{prefix}"
    broker.create(topic)
    rights.give_all(prefix)
    rights.give(topic, WRITE)
    own = ours(prefix)
    own.open()
    own.begin()
    assert own.send(topic, records(1, 2, 3, size=600_000)) == (3, "")
    if lost == "marker":
        rights.take(marker)
        rights.give(marker, READ)
    else:
        rights.take(name, ResourceType.TRANSACTIONAL_ID)
    with pytest.raises(PreflightError, match=r"topic of markers|transactional id"):
        own.commit("never")
    with pytest.raises(PreflightError, match=r"topic of markers|transactional id"):
        opened(own)
    rights.give_all(prefix)
    assert own.open() is None
    own.begin()
    assert own.send(topic, records(1, 2, 3)) == (3, "")
    assert not own.commit("marker")
    assert held(broker, topic) == [1, 2, 3]


@pytest.mark.parametrize("left", [(), (DESCRIBE,)])
def test_the_right_to_write_that_is_lost_stops_its_topic_alone(
    broker: Broker, rights: Rights, ours: Callable[[str], KafkaBroker], left: tuple[AclOperation, ...]
) -> None:
    prefix = f"write{len(left)}"
    topics = [f"{prefix}.t", f"{prefix}.u"]
    rights.give_all(prefix)
    for topic in topics:
        broker.create(topic)
        rights.give(topic, WRITE)
    own = ours(prefix)
    own.open()
    assert not own.prepare(topics)
    own.begin()
    for topic in topics:  # a batch of it is on its way, and the rest waits
        assert own.send(topic, records(1, 2, 3, size=600_000)) == (3, "")
    rights.take(topics[0])
    if left:
        rights.give(topics[0], *left)
    assert own.send(topics[0], records(4, 5)) == (2, "")
    refused = own.commit("never")
    assert list(refused) == topics[:1]
    assert f"WRITE on the topic {topics[0]}" in refused[topics[0]]
    own.abort()
    own.begin()
    assert own.send(topics[1], records(1, 2, 3)) == (3, "")
    assert not own.commit("one")
    rights.give(topics[0], WRITE)
    assert own.open() == "one"
    own.begin()
    assert own.send(topics[0], records(1, 2, 3, 4, 5)) == (5, "")
    assert not own.commit("two")
    assert [held(broker, topic) for topic in topics] == [[1, 2, 3, 4, 5], [1, 2, 3]]


def test_a_topic_that_may_not_be_made_or_written_stops_alone_and_goes_on_later(
    server: StandIn, tmp_path: Path, broker: Broker, rights: Rights, options: dict[str, str]
) -> None:
    given = {f"producer.{name}": text for name, text in options.items()} | {"bootstrap.servers": broker.secured}
    case = Publishing(server, tmp_path, broker, "rights", **given, **{"kafka.transaction.rows": "3"})
    other = f"rights.{DATABASE}.dbo.u"
    case.execute("CREATE TABLE dbo.u (id int NOT NULL PRIMARY KEY)")
    case.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'u', @role_name = NULL")
    case.insert(1, 2)
    case.execute("INSERT INTO dbo.u VALUES (1), (2)")
    case.capture("snapshot")
    case.insert(3, 4, 5, 6)
    case.execute("INSERT INTO dbo.u VALUES (3), (4)")
    case.capture()
    rights.give_all("rights")
    rights.give("rights", WRITE, CREATE)
    rights.give(other, WRITE, CREATE)
    done = case.command()
    assert (done.returncode, f"CREATE and WRITE on the topic {case.topic}" in done.stderr) == (1, True), done.stderr
    assert len(case.sent(other)) == 4
    rights.give(case.topic, WRITE, CREATE)
    case.publish()
    assert case.ids() == [1, 2, 3, 4, 5, 6]
    case.insert(7, 8, 9, 10)
    case.execute("INSERT INTO dbo.u VALUES (5)")
    case.capture()
    rights.take(other)
    done = case.command()
    assert (done.returncode, f"WRITE on the topic {other}" in done.stderr) == (1, True), done.stderr
    assert case.ids() == list(range(1, 11))
    assert len(case.sent(other)) == 4
    rights.give(other, WRITE)
    case.publish()
    assert (case.ids(), len(case.sent(other))) == (list(range(1, 11)), 5)


def test_rights_are_asked_for_before_anything_is_published(
    broker: Broker, rights: Rights, options: dict[str, str]
) -> None:
    settings = KafkaSettings(servers=broker.secured, producer=tuple(options.items()), rules=(TopicRule(replication=2),))
    for topic in ("asked.__published", "asked.t", "asked.u"):
        broker.create(topic)
        rights.give(topic, DESCRIBE)
    rights.give("asked.__published", READ)
    rights.give("asked.t", WRITE)
    found = {(one.check, one.subject): one for one in inspect_kafka(settings, "asked")}
    assert found.pop(("Kafka", broker.secured)).ok
    assert found.pop(("Kafka topic", "asked.t")).ok
    replicas = found.pop(("replication factor", "topic.creation.default.replication.factor"))
    assert (replicas.ok, replicas.actual) == (False, "2")
    for (_, topic), one in found.items():
        assert (one.ok, one.actual) == (False, "not allowed: WRITE")
        assert f"kafka-acls --add --allow-principal User:<user> --operation Write --topic {topic}" in one.remedy
    assert len(found) == 2
