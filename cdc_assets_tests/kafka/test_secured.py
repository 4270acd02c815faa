"""Certificates and users of a real broker, by the names of Java's producer and of librdkafka."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from cdc_assets.adapters.kafka.preflight import inspect_kafka
from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.errors import ConnectionLostError
from cdc_assets.publish.records import RecordSlice
from cdc_assets_tests.certificates import self_signed
from cdc_assets_tests.kafka.broker import PASSWORD, Broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("secured"))[0]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[Broker]:
    both = certificate.parent / "both.pem"
    both.write_bytes((certificate.parent / "key.pem").read_bytes() + certificate.read_bytes())
    with Broker(tmp_path_factory.mktemp("kafka") / "broker", both) as running:
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = UserScramCredentialUpsertion("cdc", scram, PASSWORD.encode())
        running.admin.alter_user_scram_credentials([wanted])["cdc"].result(60)
        yield running


def options(kind: str, certificate: Path, password: str) -> dict[str, str]:
    if kind == "java":
        jaas = f'{MODULE} required username="cdc" password="{password}";'
        return {
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificate),
        }
    return {
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "cdc",
        "sasl.password": password,
        "ssl.ca.location": str(certificate),
    }


@pytest.mark.parametrize("kind", ["java", "librdkafka"])
def test_a_user_who_is_known_writes_and_another_does_not(broker: Broker, certificate: Path, kind: str) -> None:
    def ours(password: str) -> KafkaBroker:
        given = {"security.protocol": "SASL_SSL", **options(kind, certificate, password)}
        return KafkaBroker(KafkaSettings(servers=broker.secured, producer=tuple(given.items())), kind)

    right = ours(PASSWORD)
    assert right.open() is None
    assert not right.prepare([kind])
    right.begin()
    column = pa.array([b"1"], pa.large_binary())
    assert right.send(kind, RecordSlice(1, pa.array(["1"]), column, column)) == (1, "")
    assert not right.commit("marker")
    assert right.open() == "marker"
    right.close()
    wrong = ours("wrong-one")
    with pytest.raises(ConnectionLostError) as told:
        wrong._start()
    assert "wrong-one" not in str(told.value)
    wrong.close()
    found = list(inspect_kafka(right._settings, kind))
    assert [one.ok for one in found] == [True, True], found
    assert found[0].actual == "reached, 1 broker"
    [found_wrong] = inspect_kafka(wrong._settings, kind)
    assert (found_wrong.check, found_wrong.ok, found_wrong.blocking) == ("Kafka", False, True)
    assert "uthentication" in found_wrong.actual, found_wrong
    assert "wrong-one" not in str(found_wrong)
