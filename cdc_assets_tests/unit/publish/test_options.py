"""Options of the client by Java's names and by librdkafka's."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from cdc_assets.adapters.kafka.broker import check_options
from cdc_assets.adapters.kafka.options import connection_options, producer_options
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.errors import ConfigurationError
from cdc_assets_tests.certificates import self_signed
from cdc_assets_tests.kafka.option_names import is_option

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def settings(**options: str) -> KafkaSettings:
    given = tuple((name.replace("_", "."), text) for name, text in options.items())
    return KafkaSettings(servers="a:1,b:2", producer=given)


def arguments(**options: str) -> dict[str, Any]:
    """Of the producer, which takes them."""
    check_options(settings(**options))
    return producer_options(settings(**options), "id")


@pytest.mark.parametrize(
    "given",
    [
        {"sasl_mechanism": "PLAIN", "sasl_jaas_config": f'{PLAIN} required username="cdc" password="p\\"; x=1";'},
        {"sasl_mechanisms": "PLAIN", "sasl_username": "cdc", "sasl_password": 'p"; x=1'},
    ],
)
def test_java_and_librdkafka_name_the_same_user(given: dict[str, str]) -> None:
    own = settings(security_protocol="SASL_PLAINTEXT", **given)
    check_options(own)
    for found in (producer_options(own, "id"), connection_options(own)):
        assert (found["sasl.username"], found["sasl.password"]) == ("cdc", 'p"; x=1')
        assert found["sasl.mechanisms"] == "PLAIN"
        assert "sasl.jaas.config" not in found


JAAS = {
    f'{PLAIN} required username="cdc" password="hidden" tokenauth="true";': "tokenauth",
    f'{PLAIN} required username="cdc", password="hidden";': "one login module",
    f'{PLAIN} required username="cdc" password="hidden"; {PLAIN} required username="x";': "one login module",
    f'{PLAIN} username="cdc" password="hidden";': "one login module",
    f'{PLAIN} required username="cdc" password="hidden;': "one login module",
    'username="cdc" password="hidden"': "one login module",
}


@pytest.mark.parametrize("jaas", JAAS)
def test_what_a_login_of_java_cannot_be_taken_for_is_refused_without_its_secret(jaas: str) -> None:
    with pytest.raises(ConfigurationError, match=JAAS[jaas]) as told:
        producer_options(settings(sasl_mechanism="PLAIN", sasl_jaas_config=jaas), "id")
    assert "producer.sasl.jaas.config" in str(told.value)
    assert "hidden" not in str(told.value)


def test_options_of_a_login_of_java_that_librdkafka_has_are_taken() -> None:
    modules = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
        "com.sun.security.auth.module.Krb5LoginModule",
    )
    tokens = f"{modules[0]} required\n clientId=cdc clientSecret = 's' extension_pool=\"a\" extension_cluster=b ;"
    found = connection_options(settings(sasl_mechanism="OAUTHBEARER", sasl_jaas_config=tokens))
    assert (found["sasl.oauthbearer.client.id"], found["sasl.oauthbearer.client.secret"]) == ("cdc", "s")
    assert found["sasl.oauthbearer.extensions"] == "pool=a,cluster=b"
    kerberos = f'{modules[1]} required useKeyTab=true storeKey=true keyTab="/k" principal="cdc@EXAMPLE";'
    found = connection_options(settings(sasl_mechanism="GSSAPI", sasl_jaas_config=kerberos))
    assert (found["sasl.kerberos.keytab"], found["sasl.kerberos.principal"]) == ("/k", "cdc@EXAMPLE")


def test_files_of_certificates_have_names_in_java_and_in_librdkafka(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    java = {"ssl_truststore_location": str(certificate), "ssl_keystore_location": str(both), "ssl_keystore_type": "PEM"}
    native = {"ssl_ca_location": str(certificate), "ssl_certificate_location": str(certificate)}
    native["ssl_key_location"] = str(key)
    inline = {"ssl_ca_pem": certificate.read_text(), "ssl_keystore_key": key.read_text()}
    inline["ssl_keystore_certificate_chain"] = certificate.read_text()
    for given in (java, native, inline):
        assert arguments(security_protocol="ssl", **given)
    others = connection_options(settings(**java))
    assert others["ssl.ca.location"] == str(certificate)
    assert others["ssl.certificate.location"] == others["ssl.key.location"] == str(both)


def test_checks_of_certificates_are_turned_off_as_in_java_and_in_librdkafka() -> None:
    name = "ssl.endpoint.identification.algorithm"
    assert arguments(security_protocol="SSL", **{name.replace(".", "_"): ""})[name] == "none"
    assert arguments(security_protocol="SSL", enable_ssl_certificate_verification="false")
    assert connection_options(settings(ssl_endpoint_identification_algorithm=""))[name] == "none"


@pytest.mark.parametrize("password", ["right", "wrong", None])
def test_a_key_with_a_password(tmp_path: Path, password: str | None) -> None:
    certificate, key = self_signed(tmp_path, b"right")
    given = {"ssl_certificate_location": str(certificate), "ssl_key_location": str(key)}
    given |= {"ssl_key_password": password} if password else {}
    if password == "right":
        assert arguments(security_protocol="SSL", **given)
        return
    with pytest.raises(ConfigurationError, match=r"ssl\.key\.location") as told:
        arguments(security_protocol="SSL", **given)
    assert "wrong" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("acks", "1", "acks"),
        ("compression_type", "brotli", "none or gzip or snappy or lz4 or zstd"),
        ("compression_level", "99", "range"),
        ("request_timeout_ms", "soon", "request.timeout.ms"),
        ("partitioner", "random", "murmur2_random"),
        ("partitioner_class", "org.example.Own", "DefaultPartitioner"),
        ("interceptor_classes", "org.example.Own", "No such configuration property"),
        ("security_protocol", "TLS", "security.protocol"),
        ("ssl_truststore_location", __file__, "PEM"),
        ("ssl_truststore_location", "/nowhere", "a file"),
        ("ssl_enabled_protocols", "TLSv1.3", "TLSv1.2,TLSv1.3"),
        ("transaction_timeout_ms", "29999", "at least 30000"),
        ("max_request_size", "much", "message.max.bytes"),
        ("transactional_id", "own", "sets itself"),
    ],
)
def test_what_the_client_does_not_have_is_refused(name: str, text: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as error:
        arguments(**{name: text})
    assert "producer." + name.replace("_", ".") in str(error.value)


@pytest.mark.parametrize("name", ["error_cb", "logger", "on_delivery", "default.topic.config"])
def test_what_is_no_text_for_the_client_is_refused(name: str) -> None:
    own = KafkaSettings(servers="a:1", producer=((name, "x"),))
    with pytest.raises(ConfigurationError, match=re.escape(f"producer.{name}")):
        check_options(own)


@pytest.mark.parametrize(("number", "own"), [("-1", "0"), ("0", "0"), ("1000", "1000")])
def test_idle_connections_are_kept_if_java_or_librdkafka_is_told_so(number: str, own: str) -> None:
    assert arguments(connections_max_idle_ms=number)["connections.max.idle.ms"] == own


@pytest.mark.parametrize(
    ("java", "native"),
    [
        ({"max.request.size": "5000"}, {"message.max.bytes": "5000"}),
        ({"delivery.timeout.ms": "9000"}, {"message.timeout.ms": "9000"}),
        ({"delivery.timeout.ms": "120000"}, {"message.timeout.ms": "60000"}),  # no longer than a transaction
        ({"delivery.timeout.ms": "120000", "transaction.timeout.ms": "90000"}, {"message.timeout.ms": "90000"}),
        (
            {"compression.type": "zstd", "compression.zstd.level": "7"},
            {"compression.type": "zstd", "compression.level": "7"},
        ),
        ({"metadata.max.age.ms": "700"}, {"topic.metadata.refresh.interval.ms": "700"}),
        ({"linger.ms": "5", "batch.size": "16384", "retries": "7"}, {"linger.ms": "5", "batch.size": "16384"}),
        ({"queue.buffering.max.kbytes": "100"}, {"queue.buffering.max.kbytes": "100", "linger.ms": "100"}),
    ],
)
def test_options_reach_the_client(java: dict[str, str], native: dict[str, str]) -> None:
    found = arguments(**java)
    assert {name: found[name] for name in native} == native
    assert found["bootstrap.servers"] == "a:1,b:2"
    assert found["transactional.id"] == "id"


ELSEWHERE = {
    "sasl.kerberos.ticket.renew.jitter": "0.05",
    "sasl.kerberos.ticket.renew.window.factor": "0.8",
    "sasl.oauthbearer.clock.skew.seconds": "30",
    "sasl.oauthbearer.expected.audience": "kafka",
    "sasl.oauthbearer.expected.issuer": "me",
    "sasl.oauthbearer.header.urlencode": "false",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "3600000",
    "sasl.oauthbearer.jwks.endpoint.url": "https://id/keys",
    "sasl.oauthbearer.scope.claim.name": "scope",
    "sasl.oauthbearer.sub.claim.name": "sub",
    "socket.connection.setup.timeout.max.ms": "30000",
    "socket.connection.setup.timeout.ms": "10000",
    "socket.keepalive.enable": "true",
    "reconnect.backoff.max.ms": "1000",
    "client.dns.lookup": "use_all_dns_ips",
    "metadata.recovery.strategy": "rebootstrap",
    "statistics.interval.ms": "1000",
    "max.block.ms": "60000",
    "ssl.protocol": "TLSv1.3",
    "ssl.enabled.protocols": "TLSv1.2, TLSv1.3",
    "enable.idempotence": "true",
    "acks": "all",
    "send.buffer.bytes": "100000",
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_one_of_the_clients_lacks_does_not_stop_the_other(name: str) -> None:
    given = settings(**{name: ELSEWHERE[name]})
    assert arguments(**{name: ELSEWHERE[name]})
    assert AdminClient(connection_options(given)) is not None


def test_what_makes_connections_safe_reaches_each_client() -> None:
    """A producer that logs in by other options than those who create topics and read markers would publish nothing."""
    given = {
        "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "https.ca.location": "/ca.pem",
        "ssl.crl.location": "/crl.pem",
        "connections.max.idle.ms": "1000",
    }
    own = KafkaSettings("a:1", producer=tuple(given.items()))
    assert given.items() <= connection_options(own).items()
    assert given.items() <= producer_options(own, "id").items()


def test_a_producer_that_writes_nowhere_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        producer_options(KafkaSettings("a:1", producer=(("test.mock.num.brokers", "3"),)), "id")


def test_what_is_promised_is_taken() -> None:
    table = (
        (Path(__file__).parents[3] / "docs/kafka.md")
        .read_text()
        .partition("those of Java's producer.\n\n")[2]
        .partition("\n\n")[0]
    )
    promised = {name for name in re.findall(r"`([a-z0-9.]+)`", table) if "." in name and not name.startswith(".")}
    assert len(promised) > 30
    assert not {name for name in promised if not is_option(name)}


SECRETS = {
    "sasl.password": "hidden-1",
    "ssl.key.password": "hidden-2",
    "ssl.keystore.password": "hidden-3",
    "ssl.key.pem": "hidden-4",
    "sasl.oauthbearer.client.secret": "hidden-5",
    "sasl.jaas.config": f'{PLAIN} required username="cdc" password="hidden-6";',
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"acks": "1"},
        {"unknown.option": "x"},
        {"compression.type": "x"},
        {"request.timeout.ms": "x"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"},
        {"security.protocol": "SSL", "ssl.certificate.location": "/nowhere"},
        {"security.protocol": "SSL", "ssl.ca.pem": "hidden-7"},
    ],
)
def test_no_secret_is_told(wrong: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ConfigurationError) as told:
        arguments(**SECRETS, **wrong)
    assert "hidden" not in str(told.value) + caplog.text
    right = settings(**SECRETS, **{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"})
    assert "hidden" not in repr(right) + caplog.text


def test_an_unknown_option_is_named_without_its_value() -> None:
    with pytest.raises(ConfigurationError, match=r"producer\.own\.token") as error:
        arguments(own_token="secret", linger_ms="5")
    assert "secret" not in str(error.value)
    assert "linger.ms" not in str(error.value)


def test_what_the_jvm_has_alone_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    producer_options(settings(buffer_memory="1", max_block_ms="5", linger_ms="10", sasl_login_class="x"), "id")
    [message] = caplog.messages
    assert "buffer.memory, max.block.ms, sasl.login.class." in message


def test_a_login_with_tokens_takes_its_credentials_from_java_or_librdkafka() -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    jaas = f"{module} required clientId='cdc' clientSecret='s' scope='kafka' ;"
    url = {"sasl_oauthbearer_token_endpoint_url": "https://id/token"}
    given = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "sasl_jaas_config": jaas, **url}
    for found in (arguments(**given), connection_options(settings(**given))):
        assert found["sasl.oauthbearer.method"] == "oidc"
        assert found["sasl.oauthbearer.client.secret"] == "s"
    del given["sasl_jaas_config"]
    with pytest.raises(ConfigurationError, match=r"sasl\.oauthbearer"):
        arguments(**given)
